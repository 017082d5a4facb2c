// Streams. A c10::Stream of an npu device is an id; this maps it to the driver's stream. Id 0 is the device's default
// stream; others come from a fixed pool per device and priority, as on cuda.
#pragma once
#include <c10/core/Stream.h>

#include "csrc/core/device/device.h"

namespace torch_npu {

c10::Stream default_stream(c10::DeviceIndex device);
// Priorities outside of the device's range are clamped. A smaller number is more urgent.
c10::Stream stream_from_pool(int priority, c10::DeviceIndex device);
// Of the calling thread. device -1 is the current device.
c10::Stream current_stream(c10::DeviceIndex device = -1);
void set_current_stream(c10::Stream stream);

// The driver's handles. current_stream_handle is the hot path: the device must be open.
npu_stream* stream_handle(c10::Stream stream);
npu_stream* current_stream_handle(c10::DeviceIndex device) noexcept;
int stream_priority(c10::Stream stream);
// {least, greatest}: greatest is the smaller number.
std::pair<int, int> stream_priority_range(c10::DeviceIndex device);
// The stream with this handle, for reports; the default stream if there is none.
c10::Stream stream_of_handle(c10::DeviceIndex device, const npu_stream* handle) noexcept;

bool query_stream(c10::Stream stream);
void synchronize_stream(c10::Stream stream);

}  // namespace torch_npu
