// A driver that wraps others. It gives every call to one or more drivers ("sides"), keeps a mirror of the device's
// memory, and hands every command to a Watcher, which may compare, record or disturb. Everything is synchronous: when a
// call returns, its work is done on all sides, so a failure surfaces at the call that caused it.
//
// A wrapping driver implements make_watcher and wrapper_name; wrapper.cpp brings npu_driver_get and all else.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "support/loading/driver_library.h"
#include "support/program/program.h"
#include "support/verify/mirror.h"

struct npu_program {
  npu_device* device = nullptr;
  npu::Program source;
  uint64_t number = 0;              // counted per device
  std::vector<npu_program*> inner;  // null: that side does not have it
};

struct npu_stream {
  npu_device* device = nullptr;
  std::vector<npu_stream*> inner;
};

struct npu_event {
  npu_device* device = nullptr;
  npu_event* inner = nullptr;  // of side 0
};

namespace npu {
class Watcher;
}

struct npu_instance {
  std::string options;
  std::unique_ptr<npu::Watcher> watcher;
  std::vector<npu::OpenedDriver> sides;
  uint32_t devices = 0;
};

struct npu_device {
  npu_instance* instance = nullptr;
  uint32_t index = 0;
  std::recursive_mutex lock;  // one call at a time
  std::vector<npu_device*> inner;
  npu::Mirror mirror;
  npu_stream* own = nullptr;  // for work that no stream asked for
  uint64_t programs = 0, commands = 0;
  std::set<npu_stream*> streams;
  std::set<npu_event*> events;
  std::set<npu_program*> made;
};

namespace npu {

// What a call answers.
struct Outcome {
  npu_status status = NPU_OK;
  std::string text;
};

// One command and what is known about it. The mirror still has the memory from before it.
struct Launch {
  npu_stream* stream = nullptr;
  const npu_command* command = nullptr;
  npu_program_desc desc{};                    // of its program
  const npu_program_desc* program = nullptr;  // &desc, or null
  std::vector<Region> regions;
  uint64_t number = 0;  // of the command on its device, from 1

  npu_device& device() const { return *stream->device; }
  Mirror& mirror() const { return stream->device->mirror; }
};

// Called with the device's lock held.
class Watcher {
 public:
  virtual ~Watcher() = default;
  std::vector<std::string> sides;  // the drivers to wrap; side 0 is the one whose addresses callers see

  virtual Outcome run(Launch& launch) = 0;
  virtual void allocated(npu_device&, npu_addr, uint64_t) {}
  virtual void freed(npu_device&, npu_addr) {}
  virtual void wrote(npu_device&, npu_addr, const void*, uint64_t) {}
  virtual void copied(npu_device&, npu_addr, npu_addr, uint64_t) {}
  // Side 0 gave `data` to the host.
  virtual Outcome was_read(npu_device&, npu_addr, const std::byte* /*data*/, uint64_t) { return {}; }
  virtual void closed(npu_device&) {}
  // JSON for npu_wrapper_report, which Python asks.
  virtual std::string report() { return "{}"; }
  virtual void restart() {}
};

extern const char* const wrapper_name;
// `options` are those of the wrapper. Throws std::exception with what is wrong.
std::unique_ptr<Watcher> make_watcher(const std::string& options);

// Pieces for watchers. `side` counts from 0.
Outcome submit_to(const Launch& launch, size_t side, const npu_command& command);  // and waits
Outcome read_side(npu_stream& stream, size_t side, npu_addr addr, void* to, uint64_t size);
Outcome write_side(npu_stream& stream, size_t side, npu_addr addr, const void* from, uint64_t size);

}  // namespace npu

extern "C" {
// For Python and tools, beside the contract: the report of the last instance that was opened with these options, as
// JSON; null if there is none. Valid until the next call on the thread.
NPU_EXPORT const char* npu_wrapper_report(const char* options);
// Begins the counts of that instance anew.
NPU_EXPORT void npu_wrapper_restart(const char* options);
}
