// Streams whose work is recorded instead of run, for graphs (graph.h). Everything that gives work to a driver's stream
// asks here first; while nothing is captured that is one load. A stream, not a thread, is captured: the backward pass
// runs on threads of its own.
#pragma once
#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>

#include "csrc/core/device/device.h"

namespace torch_npu {

class NPUGeneratorImpl;

extern std::atomic<int> g_captures;  // running

inline bool any_capture() noexcept {
  return g_captures.load(std::memory_order_relaxed) != 0;
}

// Number of the capture that the stream takes part in, or 0.
uint64_t capture_of(const npu_stream* stream) noexcept;

// True: recorded, and there is nothing else to do. Throws Unsupported where the driver would refuse the command.
bool capture_command(const Device& device, npu_stream* stream, const npu_command& command);
bool capture_copy(npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size);
// Pinned memory is read again at each replay; other memory is kept as it is now.
bool capture_write(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, bool pinned);
// Throws where the memory is not pinned, because the host would go on with what is not there yet.
bool capture_read(npu_stream* stream, void* dst, npu_addr src, uint64_t size, bool pinned);

// The stream waits for an event that was recorded in this capture: it joins. Nothing happens if the capture is over.
void join_capture(uint64_t capture, const Device& device, npu_stream* stream);

// Throws if the stream is being captured: what the host computes would not be computed again.
void refuse_host_in_capture(const npu_stream* stream);

// Random numbers in a capture: a seed that stands for the generator's, and an offset from where it will be at replay.
std::optional<std::pair<uint64_t, uint64_t>> capture_philox(npu_stream* stream, NPUGeneratorImpl* generator,
                                                            uint64_t increment);

// Throws if the stream (any stream of the device, if null) is being captured: the host cannot wait for recorded work.
void refuse_in_capture(c10::DeviceIndex device, const npu_stream* stream, const char* doing);

}  // namespace torch_npu
