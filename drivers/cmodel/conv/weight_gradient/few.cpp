// Weight gradient of few positions in F32: the im2col matrix is small beside the result, which is written once, line by
// line. Vectors run along the weights of an output channel, and the gradient is read as [output][position].
#include <algorithm>
#include <cmath>
#include <vector>

#include "drivers/cmodel/conv/line.h"
#include "drivers/cmodel/conv/weight_gradient/weight_gradient.h"
#include "drivers/cmodel/product/packed.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {
namespace {

using product::Micro;
using product::Scratch;

constexpr int64_t kMostPoints = 128, kLeastPairs = 1 << 9;

// What each tap reads at each position: [tap][position], of a line of the input; negative: padding.
std::vector<int32_t> sources_of(const Shape& shape, const Phase& axes, const Tensor& line, int64_t pitch) {
  const int64_t* size = shape.out_size;
  const int64_t image = size[0] * size[1] * size[2], points = shape.batch * image;
  std::vector<int32_t> sources;
  for (const Tap& a : axes[0].taps) {
    for (const Tap& b : axes[1].taps) {
      for (const Tap& c : axes[2].taps) {
        const Tap* taps[3] = {&a, &b, &c};
        for (int64_t p = 0; p < pitch; ++p) {
          const int64_t q[3] = {p % image / (size[1] * size[2]), p / size[2] % size[1], p % size[2]};
          int64_t source = p / image * line.stride[0];
          bool inside = p < points;
          for (int d = 0; d < 3; ++d) {
            const int64_t at = q[d] * axes[d].source_step + taps[d]->offset;
            inside &= at >= 0 && at < axes[d].source_size;
            source += at * line.stride[2 + d];
          }
          sources.push_back(inside ? int32_t(source) : -1);
        }
      }
    }
  }
  return sources;
}

// Are results one array, with channels behind the taps?
bool is_channels_last(const Context& context, int64_t taps) {
  const Shape& s = context.shape;
  const Tensor& out = context.result;
  if (context.job.program || out.dtype != NPU_F32) return false;
  const int64_t size[5] = {s.groups * s.out_channels, s.in_channels, s.kernel[0], s.kernel[1], s.kernel[2]};
  const int64_t stride[5] = {s.in_channels * taps, 1, s.kernel[1] * s.kernel[2] * s.in_channels,
                             s.kernel[2] * s.in_channels, s.in_channels};
  for (int d = 0; d < 5; ++d) {
    if (size[d] > 1 && out.stride[d] != stride[d]) return false;
  }
  return true;
}

}  // namespace

bool try_few_grad_weight(const Context& context, const Phase& forward, const Tensor& gradient, const Tensor& input) {
  const Shape& shape = context.shape;
  const Micro& micro = product::micro_f32();
  const int64_t taps = shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
  const int64_t outputs = shape.out_channels, inputs = shape.in_channels, depth = inputs * taps;
  const int64_t points = shape.batch * shape.out_size[0] * shape.out_size[1] * shape.out_size[2];
  if (context.acc_dtype != NPU_F32 || gradient.dtype != NPU_F32 || input.dtype != NPU_F32 || points == 0 ||
      points > kMostPoints || inputs * outputs < kLeastPairs) {
    return false;
  }
  const bool channels_last = is_channels_last(context, taps);
  if (!channels_last && !is_dense(context, taps)) return false;
  // The im2col matrix would cost too much beside the product; lines of a few points cost more where there is none.
  if (10 * points > (shape.out_size[2] < 4 ? 8 : 4) * outputs) return false;
  const int64_t pitch = (points + kLanes - 1) / kLanes * kLanes;
  const Line gradient_line(shape.batch, shape.out_size, gradient), line(shape.batch, shape.in_size, input);
  const std::vector<int32_t> sources = sources_of(shape, forward, line.dense(), pitch);

  // The gradient, and whether padding's zeros may be multiplied by it.
  Scratch gradient_space(sizeof(float) * size_t(shape.groups * outputs * points));
  float* grad = gradient_space.as<float>();
  for (int64_t o = 0; o < shape.groups * outputs; ++o) {
    gradient_line.read(reinterpret_cast<const float*>(gradient.data) + o * gradient.stride[1], grad + o * points);
  }
  const bool finite =
      std::all_of(grad, grad + shape.groups * outputs * points, [](float value) { return std::isfinite(value); });
  if (!finite && std::any_of(sources.begin(), sources.end(), [](int32_t at) { return at < 0; })) return false;

  // The im2col matrix in strips of columns, from lines of the input.
  const auto line_size = int64_t(line.space());
  Scratch input_space(sizeof(float) * size_t(shape.groups * inputs * line_size));
  float* channels = input_space.as<float>();
  parallel_for(shape.groups * inputs, std::max<int64_t>(1, (1 << 14) / line_size), [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) {
      line.read(reinterpret_cast<const float*>(input.data) + c * input.stride[1], channels + c * line_size);
    }
  });
  const int64_t strips = (depth + micro.cols - 1) / micro.cols, strip_size = points * micro.cols;
  Scratch column_space(sizeof(float) * size_t(shape.groups * strips * strip_size));
  float* columns = column_space.as<float>();
  const auto pack = [&](int64_t first, int64_t last) {
    Scratch space(sizeof(float) * size_t(micro.cols * pitch));
    float* lines = space.as<float>();
    for (int64_t i = first; i < last; ++i) {
      const int64_t group = i / strips, begin = i % strips * micro.cols,
                    cols = std::min<int64_t>(micro.cols, depth - begin);
      for (int64_t k = 0; k < cols; ++k) {
        const int64_t channel = channels_last ? (begin + k) % inputs : (begin + k) / taps;
        const int64_t tap = channels_last ? (begin + k) / inputs : (begin + k) % taps;
        kernels().select(channels + (group * inputs + channel) * line_size, line.size(), sources.data() + tap * pitch,
                         pitch, lines + k * pitch);
      }
      micro.deep(lines, pitch, cols, points, product::padded_cols(micro, cols),
                 reinterpret_cast<uint32_t*>(columns + i * strip_size));
    }
  };
  parallel_for(shape.groups * strips, std::max<int64_t>(1, (1 << 15) / strip_size), pack);

  const int64_t strip = product::even_rows(micro, outputs), row_strips = (outputs + strip - 1) / strip;
  float* result = reinterpret_cast<float*>(context.result.data);
  const auto run = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t group = i / row_strips, row = i % row_strips * strip, rows = std::min(strip, outputs - row);
      const float* a = grad + (group * outputs + row) * points;
      for (int64_t j = 0; j < strips; ++j) {
        const int64_t cols = std::min<int64_t>(micro.cols, depth - j * micro.cols);
        micro.loose(points, a, int64_t(sizeof(float)) * points,
                    reinterpret_cast<const uint32_t*>(columns + (group * strips + j) * strip_size),
                    result + (group * outputs + row) * depth + j * micro.cols, depth, rows, cols, false);
      }
    }
  };
  parallel_for(shape.groups * row_strips, std::max<int64_t>(1, (1 << 17) / (strip * depth * points)), run);
  return true;
}

}  // namespace cmodel::conv
