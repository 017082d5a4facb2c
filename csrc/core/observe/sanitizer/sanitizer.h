// The sanitizer: wrong uses of device memory, found where they happen (docs/design/sanitizer.md). Off unless
// TORCH_NPU_SANITIZE or enable() say otherwise. It is told of commands, copies, events and waits by a watcher of the
// drivers, and of tensors by the allocator.
#pragma once
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <string>
#include <vector>

#include "csrc/core/memory/memory_watch.h"
#include "npu/runtime.h"

namespace torch_npu::sanitizer {

enum Checks : uint32_t { kMemory = 1, kInit = 2, kRace = 4, kAll = 7 };

struct Options {
  uint32_t checks = kAll;
  bool raises = true;  // at the op that is at fault, which is then not run; or else print and go on
};

// "memory,race"; throws for other words.
uint32_t parse_checks(const std::string& text);

// Memory that is in use counts as written, and work that was given as done.
void enable(const Options& options);
// As TORCH_NPU_SANITIZE and TORCH_NPU_SANITIZE_REPORT say; throws for other words.
void enable_from_environment();
void disable();
Options options();  // no checks: off

inline bool is_on() noexcept {
  return memory_watch() & kWatchSanitizer;
}

// -- the allocator --

// More bytes than a tensor asked for, so that none begins where another ends.
constexpr uint64_t kGap = 128;
struct Freed {
  npu_addr addr;
  npu_stream* owner;
  bool is_of_graphs;
  std::vector<const npu_stream*> passed;  // streams that will have passed before the memory has a new owner
};
// Before the cache is asked for memory of this stream, which could be any that was freed: raises where another stream
// may still be using such memory. No lock of the cache may be held in these.
void allocates(c10::DeviceIndex device, const npu_stream* owner);
void allocated(c10::DeviceIndex device, npu_addr addr, uint64_t size, npu_stream* owner, bool is_of_graphs);
void freed(c10::DeviceIndex device, const Freed& freed) noexcept;

// -- those who know more than a driver's call tells --

// What this thread submits in the time of the scope was recorded by a graph, and is asked for here.
class ReplayScope {
 public:
  ReplayScope();
  ~ReplayScope();
  ReplayScope(const ReplayScope&) = delete;

 private:
  bool entered_;
};

// Copies between host and device in the time of the scope carry only these elements; what else they move lies between
// them and is not looked at.
class Elements {
 public:
  Elements();
  ~Elements();
  Elements(const Elements&) = delete;
  void add(const void* data, c10::IntArrayRef sizes, c10::IntArrayRef strides, size_t width);

 private:
  bool entered_;
};

}  // namespace torch_npu::sanitizer
