// Who allocated what, and when: torch.npu.memory._record_memory_history. Off by default; an allocation then pays for
// one load. While on, each allocation and free takes a traceback (about two microseconds) and a lock.
#pragma once
#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "csrc/core/memory/memory_watch.h"
#include "npu/runtime.h"

namespace c10 {
struct GatheredContext;
}

namespace torch_npu::history {

using Traceback = std::shared_ptr<c10::GatheredContext>;

enum class Context { None, State, Alloc, All };  // tracebacks of: nothing, live memory, and allocations, and frees

struct Options {
  bool keeps_events = true;  // or what is live only
  Context context = Context::All;
  bool with_cpp_frames = false;
  uint64_t max_events = UINT64_MAX;       // per device; the oldest go first
  std::vector<std::string> skipped = {};  // actions
};

struct Event {
  const char* action;  // "alloc", as PyTorch's memory viewer calls it
  npu_addr addr;       // of an "oom": free bytes of the device
  uint64_t size;
  npu_stream* stream;
  int64_t time_us;  // of the system's clock
  Traceback traceback;
};

struct LiveBlock {
  npu_addr addr;
  uint64_t size;
  Traceback traceback;
};

struct Frame {
  std::string file, function;
  uint64_t line;
};

inline bool is_on() noexcept {
  return memory_watch() & kWatchHistory;
}

void start(const Options& options, bool forget);
void stop();

// What this thread allocates or gives back in the time of the scope was asked for here. Takes the traceback, for which
// Python's lock may be needed: no lock of the cache may be held.
class Scope {
 public:
  Scope();
  ~Scope();
  Scope(const Scope&) = delete;
};

// Called by the allocator, in a Scope.
void allocated(c10::DeviceIndex device, npu_addr addr, uint64_t size, npu_stream* stream);
// Before the cache has it; `is_pending`: other streams have to pass first, and then `free_completed` comes.
void freed(c10::DeviceIndex device, npu_addr addr, uint64_t size, npu_stream* stream, bool is_pending);
void free_completed(int device, npu_addr addr, uint64_t size, npu_stream* stream);
void out_of_memory(c10::DeviceIndex device, uint64_t requested, uint64_t device_free, npu_stream* stream);

std::vector<Event> events(c10::DeviceIndex device);
std::vector<LiveBlock> live_blocks(c10::DeviceIndex device);  // largest first

// One list of frames per traceback, innermost first; empty for null.
std::vector<std::vector<Frame>> symbolize(const std::vector<Traceback>& tracebacks);

// "train.py:31 (forward)": the innermost Python line outside of torch, or else the innermost one.
std::string place_of(const std::vector<Frame>& frames);
inline constexpr char kNoPython[] = "code outside of Python";

// "512.00 MiB by train.py:31 (forward)" for the largest live blocks: the innermost Python line outside of torch. Empty
// if nothing was recorded.
std::vector<std::string> largest_live(c10::DeviceIndex device, size_t count);

}  // namespace torch_npu::history
