// What the weight gradients on register tiles have in common.
#pragma once
#include <algorithm>
#include <cstdint>

#include "drivers/cmodel/conv/conv.h"

namespace cmodel::conv {

constexpr int64_t kMost = 1024, kLeast = 512;   // positions of one product: with more, sums are read less often
constexpr int64_t kColumnElements = 256 << 10;  // of the im2col matrix: it stays in the cache

// How the work is cut, by the shape only, so that results do not depend on the number of threads: blocks of input
// channels, and parts of the batch, whose sums are added in order.
struct Cut {
  int64_t positions, block, blocks, parts = 1;
};

inline Cut cut_of(const Shape& shape, int64_t taps, int64_t weight_size) {
  Cut cut{};
  cut.positions = std::clamp(kColumnElements / std::max<int64_t>(1, shape.in_channels * taps), kLeast, kMost);
  cut.block = shape.in_channels;
  while (cut.block > 8 && cut.block * taps * cut.positions > kColumnElements * 5 / 4) cut.block = (cut.block + 1) / 2;
  cut.blocks = (shape.in_channels + cut.block - 1) / cut.block;
  const int64_t all = shape.batch * shape.out_size[0] * shape.out_size[1] * shape.out_size[2];
  const int64_t tasks = cut.blocks * shape.groups;
  cut.parts = 1;
  while (cut.parts * tasks < 16 && all >= 4 * cut.parts * kLeast && weight_size * cut.parts < (4 << 20) &&
         all * weight_size / (cut.parts * tasks) > (1 << 19)) {
    cut.parts *= 2;
  }
  return cut;
}

// Are results one array in the order of the sums?
inline bool is_dense(const Context& context, int64_t taps) {
  const Shape& s = context.shape;
  const Tensor& out = context.result;
  if (context.job.program || out.dtype != NPU_F32) return false;
  const int64_t size[5] = {s.groups * s.out_channels, s.in_channels, s.kernel[0], s.kernel[1], s.kernel[2]};
  const int64_t stride[5] = {s.in_channels * taps, taps, s.kernel[1] * s.kernel[2], s.kernel[2], 1};
  for (int d = 0; d < 5; ++d) {
    if (size[d] > 1 && out.stride[d] != stride[d]) return false;
  }
  return true;
}

}  // namespace cmodel::conv
