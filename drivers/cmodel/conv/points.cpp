// Forward and input gradient where result channels are whole vectors: those run along the channels, and positions are
// read one by one where they lie in the window, so that no im2col matrix is made at all.
#include <algorithm>

#include "drivers/cmodel/conv/epilogue.h"
#include "drivers/cmodel/conv/packed.h"
#include "drivers/cmodel/conv/tuning.h"
#include "drivers/cmodel/product/kernels/kernels.h"

namespace cmodel::conv {

void multiply_points(const product::Micro& micro, const WeightBlock& weights, const std::vector<Run>& runs,
                     const uint32_t* window, const int64_t* offsets, const Target& target) {
  for (int64_t i = 0; i < weights.rows; i += weights.strip) {
    const int64_t cols = std::min(weights.strip, weights.rows - i);
    for (const Run& run : runs) {
      const int64_t from = run.taps.first * weights.per_tap, length = run.taps.last * weights.per_tap - from;
      const uint32_t* b = weights.data + i * weights.words + from * cols;
      const int64_t tiles = (run.length + micro.span_rows - 1) / micro.span_rows;
      for (int64_t t = 0; t < tiles; ++t) {  // of the same height but for one
        const int64_t begin = run.length * t / tiles, end = run.length * (t + 1) / tiles;
        micro.points(length, window + run.at + begin, offsets + from, b,
                     target.sums + (run.position + begin) * target.ld + i, target.ld, end - begin, cols,
                     target.accumulate);
      }
    }
  }
}

void emit_points(const Context& context, const Results& at, float* results, int64_t ld, float* space) {
  const int64_t points = at.points(), channels = at.channels;
  const auto transpose = [&](float* to, int64_t to_ld) {
    for (int64_t c = 0; c < channels; c += kChannelsTogether) {
      product::micro_f32().deep(results + c, ld, points, std::min(kChannelsTogether, channels - c), to_ld,
                                reinterpret_cast<uint32_t*>(to + c * to_ld));
    }
  };
  const auto has_nan = [&] {  // then see conv/padding.cpp
    return product::kernel_set().has_nan(results, (points - 1) * ld + channels);
  };
  if (context.epilogue && (points < kFewRowPoints || context.epilogue->channels_last()) && !has_nan() &&
      context.epilogue->run_points(at, results, ld)) {
    return;
  }
  const Tensor& out = context.result;
  const bool lines = out.stride[4] == 1 && (at.rows == 1 || out.stride[3] == at.cols);
  const bool last = out.stride[1] == 1;
  if (!context.job.program && (last || (lines && out.dtype == NPU_F32)) && !has_nan()) {
    char* first = out.at(at, at.channel);
    if (!last) return transpose(reinterpret_cast<float*>(first), out.stride[1]);
    for (int64_t y = 0; y < at.rows; ++y) {
      product::store_block(results + y * at.cols * ld, ld, at.cols, channels,
                           first + y * out.stride[3] * out.element_size(), out.dtype, out.stride[4], int64_t(1));
    }
    return;
  }
  transpose(space, points);
  emit(context, at, Sums<float>{space, points, at.cols});
}

}  // namespace cmodel::conv
