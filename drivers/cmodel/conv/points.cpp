// Forward and input gradient where result channels are whole vectors: those run along the channels, and positions are
// read one by one where they lie in the window, so that no im2col matrix is made at all.
#include <algorithm>

#include "drivers/cmodel/conv/epilogue.h"
#include "drivers/cmodel/conv/packed.h"
#include "drivers/cmodel/product/kernels.h"

namespace cmodel::conv {

void multiply_points(const product::Micro& micro, const uint32_t* weights, int64_t strip, int64_t taps, int64_t words,
                     const std::vector<Segment>& segments, const uint32_t* window, const int64_t* offsets, int64_t m,
                     float* c, int64_t ldc, bool accumulate) {
  for (int64_t i = 0; i < m; i += strip) {
    const int64_t cols = std::min(strip, m - i);
    for (const Segment& segment : segments) {
      const int64_t from = segment.first_tap * words, length = (segment.last_tap - segment.first_tap) * words;
      const uint32_t* b = weights + i * taps * words + from * cols;
      const int64_t tiles = (segment.length + micro.span_rows - 1) / micro.span_rows;
      for (int64_t t = 0; t < tiles; ++t) {  // of the same height but for one
        const int64_t begin = segment.length * t / tiles, end = segment.length * (t + 1) / tiles;
        micro.points(length, window + segment.at + begin, offsets + from, b, c + (segment.position + begin) * ldc + i,
                     ldc, end - begin, cols, accumulate);
      }
    }
  }
}

void emit_points(const Context& context, const Pieces::Piece& p, int64_t channel, int64_t channels, float* results,
                 int64_t ld, float* space) {
  const product::Micro& plain = product::micro_f32();
  constexpr int64_t kTogether = 16;  // channels, each one a line in memory
  const int64_t points = p.rows * p.cols;
  const auto turn = [&](float* to, int64_t to_ld) {
    for (int64_t c = 0; c < channels; c += kTogether) {
      plain.deep(results + c, ld, points, std::min(kTogether, channels - c), to_ld,
                 reinterpret_cast<uint32_t*>(to + c * to_ld));
    }
  };
  if (context.epilogue && (points < kFewPoints || context.epilogue->channels_last()) &&
      !product::kernel_set().has_nan(results, (points - 1) * ld + channels) &&
      context.epilogue->run_points({p.n, channel, channels, p.z, p.y, p.rows, p.x, p.cols}, results, ld)) {
    return;
  }
  const Tensor& out = context.result;
  const bool lines = out.stride[4] == 1 && (p.rows == 1 || out.stride[3] == p.cols);
  const bool last = out.stride[1] == 1;
  const bool stored = !context.job.program && (last || (lines && out.dtype == NPU_F32));
  if (stored && !product::kernel_set().has_nan(results, (points - 1) * ld + channels)) {  // else see conv/padding.cpp
    const int64_t size = npu::dtype_size(out.dtype);
    char* first = out.data + (p.n * out.stride[0] + channel * out.stride[1] + p.z * out.stride[2] +
                              p.y * out.stride[3] + p.x * out.stride[4]) *
                                 size;
    if (!last) return turn(reinterpret_cast<float*>(first), out.stride[1]);
    for (int64_t y = 0; y < p.rows; ++y) {
      product::store_block(results + y * p.cols * ld, ld, p.cols, channels, first + y * out.stride[3] * size, out.dtype,
                           out.stride[4], int64_t(1));
    }
    return;
  }
  turn(space, points);
  emit(context, p.n, channel, channels, p.z, p.y, p.rows, p.x, p.cols, space, points, p.cols);
}

}  // namespace cmodel::conv
