#include "csrc/core/observe/sanitizer/order.h"

namespace torch_npu::sanitizer {

uint32_t Order::stream(const npu_stream* handle, int device) {
  const auto [place, is_new] = numbers_.try_emplace(handle, static_cast<uint32_t>(streams_.size()));
  if (is_new) streams_.push_back({device, {}});
  return place->second;
}

const Clock& Order::now(uint32_t stream) {
  streams_[stream].clock.join(host_);
  return streams_[stream].clock;
}

void Order::waits(uint32_t stream, const npu_event* event) {
  const auto found = events_.find(event);
  if (found != events_.end()) streams_[stream].clock.join(found->second);
}

void Order::reached(const npu_event* event) {
  const auto found = events_.find(event);
  if (found != events_.end()) host_.join(found->second);
}

void Order::finished_all(int device) {
  for (const Stream& stream : streams_) {
    if (stream.device == device) host_.join(stream.clock);
  }
}

}  // namespace torch_npu::sanitizer
