// Pinned host memory: PyTorch's caching host allocator over the drivers' host_alloc.
#pragma once
#include <ATen/core/CachingHostAllocator.h>

#include "csrc/core/device/device.h"

namespace torch_npu {

at::HostAllocator* host_allocator();

// Whether the pointer lies in pinned memory of any driver.
bool is_pinned(const void* ptr) noexcept;
// Whether copies with this device may say NPU_COPY_PINNED: the memory came from the same driver instance. After such a
// copy, host_allocator()->record_event(ptr, context, stream) keeps the memory from being reused too early.
bool is_pinned_for(const void* ptr, c10::DeviceIndex device) noexcept;

}  // namespace torch_npu
