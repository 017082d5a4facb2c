// What the files of csrc/core need of each other and nobody else does.
#pragma once
#include <c10/core/Stream.h>

#include <optional>

#include "csrc/core/device/device.h"

namespace torch_npu {

// stream.cpp: makes the default stream of a device that is being opened.
void open_streams(Device& device);
// stream.cpp: which of ours a driver's stream is, on whatever device.
std::optional<c10::Stream> find_stream(const npu_stream* handle);
// allocator.cpp: makes its memory cache.
void open_memory(Device& device);
// allocator.cpp: memory of the device's current stream, for work that is given to it; throws where there is none.
npu_addr allocate_scratch(c10::DeviceIndex index, uint64_t size);
void free_scratch(c10::DeviceIndex index, npu_addr addr);
// launch.cpp: reads TORCH_NPU_BLOCKING, once.
void read_launch_settings();
// launch.cpp: submits to a stream of the device whether or not it is being captured.
void submit_to(const Device& device, npu_stream* stream, const npu_command& command);
// launch.cpp: submit asks capture_command first.
void watch_for_captures(bool on) noexcept;
// launch.cpp: from now on submit throws the sentence about forked processes.
void forbid_launches() noexcept;

}  // namespace torch_npu
