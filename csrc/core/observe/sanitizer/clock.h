// Vector clocks: what of the other streams' work is known to be done before.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace torch_npu::sanitizer {

// One piece of work: the tick-th of a stream. Ticks begin at 1.
struct Stamp {
  uint32_t stream = 0;
  uint64_t tick = 0;
};

// For each stream, the last piece of its work that comes before. Streams it has not heard of are at 0.
class Clock {
 public:
  bool has(Stamp stamp) const { return stamp.tick <= at(stamp.stream); }
  uint64_t at(uint32_t stream) const { return stream < ticks_.size() ? ticks_[stream] : 0; }

  void join(const Clock& other) {
    if (ticks_.size() < other.ticks_.size()) ticks_.resize(other.ticks_.size());
    for (size_t k = 0; k < other.ticks_.size(); ++k) ticks_[k] = std::max(ticks_[k], other.ticks_[k]);
  }
  // The stream's own next piece of work.
  Stamp step(uint32_t stream) {
    if (ticks_.size() <= stream) ticks_.resize(stream + 1);
    return {stream, ++ticks_[stream]};
  }

 private:
  std::vector<uint64_t> ticks_;
};

}  // namespace torch_npu::sanitizer
