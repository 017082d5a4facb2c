// What the memory tells the sanitizer. It is implemented above, in csrc/core/observe/sanitizer, which looks at all of
// the memory; this header is all that the memory knows of it.
#pragma once
#include <c10/core/Device.h>
#include <c10/util/ArrayRef.h>

#include <vector>

#include "csrc/core/memory/memory_watch.h"
#include "npu/runtime.h"

namespace torch_npu::sanitizer {

inline bool is_on() noexcept {
  return memory_watch() & kWatchSanitizer;
}

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
