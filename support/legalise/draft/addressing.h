// Addresses that a program computes: offsets from an operand's first element.
#pragma once
#include <array>
#include <vector>

#include "support/legalise/draft/writer.h"

namespace npu::legalise {

class Addressing {
 public:
  // For programs that are written out of `source`'s.
  explicit Addressing(const Draft& source) : source_(source) {}

  // `plus` (an i64, or none) and the coordinates of the point times `stride` and `shift`, where the source's instruction
  // `id` stands. Coordinates are written once per segment.
  uint16_t offset(Writer& writer, uint16_t id, uint16_t plus, const std::vector<int64_t>& stride, int64_t shift = 0);

 private:
  const Draft& source_;
  int segment_ = -1;
  std::array<uint16_t, NPU_MAX_RANK> coordinates_{};
};

}  // namespace npu::legalise
