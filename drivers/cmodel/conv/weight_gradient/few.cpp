// Weight gradient of few positions in F32: the im2col matrix is small beside the result, which is written once, line by
// line. Vectors run along the weights of an output channel, and the gradient is read as [output][position].
#include <algorithm>
#include <cmath>
#include <vector>

#include "drivers/cmodel/conv/flat_channel.h"
#include "drivers/cmodel/conv/weight_gradient/weight_gradient.h"
#include "drivers/cmodel/product/packed.h"

namespace cmodel::conv {
namespace {

using product::Micro;
using product::Scratch;

// What each tap reads at each position: [tap][position], of a line of the input; negative: padding.
std::vector<int32_t> sources_of(const WeightGradient& w, const Tensor& line, int64_t pitch) {
  const Phase& axes = w.forward;
  const int64_t* size = w.shape.out_size;
  const int64_t image = size[0] * size[1] * size[2];
  std::vector<int32_t> sources;
  each_tap(axes, [&](const Tap& a, const Tap& b, const Tap& c) {
    const Tap* taps[3] = {&a, &b, &c};
    for (int64_t p = 0; p < pitch; ++p) {
      const int64_t q[3] = {p % image / (size[1] * size[2]), p / size[2] % size[1], p % size[2]};
      int64_t source = p / image * line.stride[0];
      bool inside = p < w.positions;
      for (int d = 0; d < 3; ++d) {
        inside &= axes[d].is_inside(q[d], *taps[d]);
        source += (q[d] * axes[d].source_step + taps[d]->offset) * line.stride[2 + d];
      }
      sources.push_back(inside ? int32_t(source) : -1);
    }
  });
  return sources;
}

const char* refuses(const WeightGradient& w) {
  if (w.context.acc_dtype != NPU_F32 || w.gradient.dtype != NPU_F32 || w.input.dtype != NPU_F32) {
    return "not all is f32";
  }
  if (w.positions == 0) return "there is nothing to add up";
  if (w.positions > kFewPoints) return "there are many positions";
  if (w.inputs * w.outputs < kFewPairs) return "there are few channels";
  if (!is_dense(w) && !is_dense(w, true)) return "results are not one array of f32";
  // The im2col matrix would cost too much beside the product; lines of a few points cost more where there is none.
  const int64_t percent = w.shape.out_size[2] < kShortLine ? kFewPercentShort : kFewPercent;
  return 100 * w.positions > percent * w.outputs ? "the im2col matrix is large beside the product" : nullptr;
}

class Few {
 public:
  explicit Few(const WeightGradient& w)
      : w_(w),
        micro_(product::micro_f32()),
        channels_last_(is_dense(w, true)),
        pitch_((w.positions + kLanes - 1) / kLanes * kLanes),
        strips_((w.depth + micro_.cols - 1) / micro_.cols),
        strip_size_(w.positions * micro_.cols),
        input_(w.shape.batch, w.shape.in_size, w.input),
        sources_(sources_of(w, input_.dense(), pitch_)),
        gradient_space_(sizeof(float) * size_t(w.shape.groups * w.outputs * w.positions)),
        column_space_(sizeof(float) * size_t(w.shape.groups * strips_ * strip_size_)) {}

  // False: padding's zeros may not be multiplied by the gradient.
  bool gather_gradient() {
    const FlatChannel flat(w_.shape.batch, w_.shape.out_size, w_.gradient);
    const int64_t outputs = w_.shape.groups * w_.outputs;
    float* to = gradient_space_.as<float>();
    for (int64_t o = 0; o < outputs; ++o) {
      flat.read(reinterpret_cast<const float*>(w_.gradient.data) + o * w_.gradient.stride[1], to + o * w_.positions);
    }
    return std::all_of(to, to + outputs * w_.positions, [](float value) { return std::isfinite(value); }) ||
           std::none_of(sources_.begin(), sources_.end(), [](int32_t at) { return at < 0; });
  }

  // The im2col matrix in strips of columns, from lines of the input.
  void pack() {
    const int64_t size = int64_t(input_.space()), inputs = w_.shape.groups * w_.inputs;
    Scratch channels(sizeof(float) * size_t(inputs * size));
    parallel_for(inputs, grain_for(size, kLineElements), [&](int64_t first, int64_t last) {
      for (int64_t c = first; c < last; ++c) {
        input_.read(reinterpret_cast<const float*>(w_.input.data) + c * w_.input.stride[1],
                    channels.as<float>() + c * size);
      }
    });
    parallel_for(w_.shape.groups * strips_, grain_for(strip_size_, kPackElements), [&](int64_t first, int64_t last) {
      Scratch lines(sizeof(float) * size_t(micro_.cols * pitch_));
      for (int64_t i = first; i < last; ++i) pack_strip(i, channels.as<float>(), lines.as<float>());
    });
  }

  void multiply() {
    const int64_t strip = product::even_rows(micro_, w_.outputs), row_strips = (w_.outputs + strip - 1) / strip;
    const auto rows_of = [&](int64_t i) {
      const int64_t group = i / row_strips, row = i % row_strips * strip, rows = std::min(strip, w_.outputs - row);
      const int64_t output = group * w_.outputs + row;
      const float* a = gradient_space_.as<float>() + output * w_.positions;
      float* to = reinterpret_cast<float*>(w_.context.result.data) + output * w_.depth;
      for (int64_t j = 0; j < strips_; ++j) {
        const int64_t cols = std::min<int64_t>(micro_.cols, w_.depth - j * micro_.cols);
        micro_.loose(w_.positions, a, int64_t(sizeof(float)) * w_.positions,
                     column_space_.as<uint32_t>() + (group * strips_ + j) * strip_size_, to + j * micro_.cols, w_.depth,
                     rows, cols, false);
      }
    };
    const int64_t grain = grain_for(strip * w_.depth * w_.positions, kTaskWork);
    parallel_for(w_.shape.groups * row_strips, grain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) rows_of(i);
    });
  }

 private:
  void pack_strip(int64_t i, const float* channels, float* lines) {
    const int64_t group = i / strips_, begin = i % strips_ * micro_.cols;
    const int64_t cols = std::min<int64_t>(micro_.cols, w_.depth - begin);
    for (int64_t k = 0; k < cols; ++k) {
      const int64_t channel = channels_last_ ? (begin + k) % w_.inputs : (begin + k) / w_.taps;
      const int64_t tap = channels_last_ ? (begin + k) / w_.inputs : (begin + k) % w_.taps;
      kernels().select(channels + (group * w_.inputs + channel) * int64_t(input_.space()), input_.size(),
                       sources_.data() + tap * pitch_, pitch_, lines + k * pitch_);
    }
    micro_.deep(lines, pitch_, cols, w_.positions, product::padded_cols(micro_, cols),
                column_space_.as<uint32_t>() + i * strip_size_);
  }

  const WeightGradient& w_;
  const Micro& micro_;
  const bool channels_last_;                   // of the result
  const int64_t pitch_, strips_, strip_size_;  // of a tap's sources; of the im2col matrix
  const FlatChannel input_;
  const std::vector<int32_t> sources_;
  Scratch gradient_space_, column_space_;
};

const char* run(const WeightGradient& w) {
  Few few(w);
  if (!few.gather_gradient()) return "the gradient is not finite, and meets padding";
  few.pack();
  few.multiply();
  return nullptr;
}

}  // namespace

constinit const WeightGradientWay few_gradient = {"few positions", refuses, run};

}  // namespace cmodel::conv
