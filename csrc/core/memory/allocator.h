// Device memory for PyTorch: the c10 side of the memory cache in caching/. A DataPtr's data is a device address and
// its context the block of the cache.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>

#include <utility>
#include <vector>

#include "csrc/core/device/device.h"
#include "csrc/core/memory/caching/types.h"

namespace torch_npu {

namespace caching {
class CachingCore;
}

// What c10::GetAllocator(PrivateUse1) returns.
c10::DeviceAllocator* device_allocator();

// On the current device and stream. Addresses of different devices may be equal, so raw_delete wants the device.
void* raw_alloc(size_t size);
void raw_delete(void* ptr, c10::DeviceIndex device);

// Memory that is used on another stream than the one it was made on is not reused before that stream has passed the
// point where the memory is freed. Pointers that are not ours are ignored.
void record_stream(const c10::DataPtr& data, c10::Stream stream);

// The device of an address in use; the current device wins where several have it. -1: none has.
c10::DeviceIndex device_of_pointer(const void* ptr) noexcept;

// Memory statistics. They answer for a device that was never opened too: zeros.
caching::Stats memory_stats(c10::DeviceIndex device);
void reset_peak_memory_stats(c10::DeviceIndex device);
void reset_accumulated_memory_stats(c10::DeviceIndex device);
std::vector<caching::SegmentInfo> memory_snapshot(c10::DeviceIndex device);
void empty_cache();                                                  // of all opened devices
std::pair<uint64_t, uint64_t> memory_info(c10::DeviceIndex device);  // {free, total}; opens the device

// Between these two, memory asked for on the stream comes from the private pool `id`, and so do captured graphs' own
// addresses. begin_pool also holds the pool, as long as release_pool was not called as often.
void begin_pool(c10::DeviceIndex device, caching::PoolId id, npu_stream* stream);
void end_pool(c10::DeviceIndex device, npu_stream* stream);
void release_pool(c10::DeviceIndex device, caching::PoolId id);

// The cache of a device, which it opens: for what has no meaning beyond the cache itself.
caching::CachingCore& cache_of(c10::DeviceIndex device);

// The process takes no more than this part of the device's memory; 1 is all of it.
void set_memory_fraction(double fraction, c10::DeviceIndex device);
double memory_fraction(c10::DeviceIndex device);

}  // namespace torch_npu
