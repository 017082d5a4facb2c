// Seeing what the host asks of its drivers, for the debug log, the profiler, the memory history and the sanitizer. The
// host calls a copy of each driver's table. While nobody watches, the entries of the copy are the driver's own
// functions, so that looking costs nothing when nobody looks; while somebody does, they lead through the watchers
// first.
#pragma once
#include <memory>

#include "npu/runtime.h"

namespace npu {
struct Program;
}

namespace torch_npu {

// One call, as far as its arguments tell. Those that the function does not have are null or zero.
struct DriverCall {
  const char* function = "";        // "submit"
  const npu_driver* api = nullptr;  // the driver's own table: what a watcher calls through it is not watched
  npu_device* device = nullptr;
  npu_stream* stream = nullptr;
  npu_event* event = nullptr;
  const npu_command* command = nullptr;
  const npu_program_desc* program = nullptr;
  npu_addr addr = 0;                 // where a copy goes to or comes from, or what is freed
  npu_addr source = 0;               // of a copy on the device
  uint64_t size = 0;                 // bytes of memory or of a copy
  const void* host = nullptr;        // of a copy from or to the host
  uint32_t flags = 0;                // of a copy or an event
  const npu_addr* result = nullptr;  // of an allocation; valid when the call has succeeded
};

// Called on the thread of the call. `started` gives a number to `finished`, which a watcher may use as it likes. It may
// throw for a `submit` or a copy: then the call is not made, and the others hear that it has failed. After a failure
// the driver's error_text is still to be read by the caller: a watcher must not call the driver then.
class DriverWatcher {
 public:
  virtual ~DriverWatcher() = default;
  virtual uint64_t started(const DriverCall& call) = 0;
  virtual void finished(const DriverCall& call, npu_status status, uint64_t number) = 0;
};

// At most four at a time, and each once. A call that is under way may still reach a watcher just after it was removed:
// watchers are static objects.
void add_watcher(DriverWatcher* watcher);
void remove_watcher(DriverWatcher* watcher);

// The copy of a driver's table that the host calls. One per table and for ever.
const npu_driver* watchable(const npu_driver* driver);
// The other way round: what is called through this one is not watched.
const npu_driver* own_table(const npu_driver* copy);

// What a driver was told to make of this handle, whether or not anybody watched. Null: unknown.
std::shared_ptr<const npu::Program> program_of(const npu_program* handle);

}  // namespace torch_npu
