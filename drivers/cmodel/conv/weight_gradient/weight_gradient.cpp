#include "drivers/cmodel/conv/weight_gradient/weight_gradient.h"

#include <algorithm>
#include <type_traits>

namespace cmodel::conv {
namespace {

// Few enough positions at a time that the im2col matrix stays in the cache.
Pieces pieces_of(const WeightGradient& w) {
  const Shape& s = w.shape;
  return {s.batch, s.out_size[0], s.out_size[1], s.out_size[2],
          std::clamp(kColumnElements / std::max<int64_t>(1, w.depth), kGradientLeast, kGradientMost)};
}

}  // namespace

Cut::Cut(const WeightGradient& w) : pieces(pieces_of(w)), block(w.inputs) {
  // Where even that is too much, channels of the input are taken in blocks; each reads the gradient once more.
  while (block > kLeastChannels && block * w.taps * pieces.positions > kColumnElements * 5 / 4) block = (block + 1) / 2;
  blocks = (w.inputs + block - 1) / block;
}

Cut::Task Cut::at(const WeightGradient& w, int64_t task) const {
  const int64_t part = task % parts, channel = task / parts % blocks * block;
  return {part,
          task / (parts * blocks),
          channel,
          std::min(block, w.inputs - channel),
          pieces.count * part / parts,
          pieces.count * (part + 1) / parts};
}

int64_t parts_of(const WeightGradient& w, const Cut& cut) {
  const int64_t tasks = cut.blocks * w.shape.groups;
  int64_t parts = 1;
  while (parts * tasks < kGradientTasks && w.positions >= 4 * parts * kGradientLeast &&
         w.size * parts < kGradientElements && w.positions * w.size / (parts * tasks) > kPartWork) {
    parts *= 2;
  }
  return std::min(parts, cut.pieces.count);
}

bool is_dense(const WeightGradient& w, bool channels_last) {
  static constexpr int kOrder[2][5] = {{4, 3, 2, 1, 0}, {1, 4, 3, 2, 0}};  // the innermost dimension first
  const Shape& s = w.shape;
  const Tensor& out = w.context.result;
  if (w.context.job.program || out.dtype != NPU_F32) return false;
  const int64_t size[5] = {s.groups * w.outputs, w.inputs, s.kernel[0], s.kernel[1], s.kernel[2]};
  int64_t expected = 1;
  for (const int d : kOrder[channels_last]) {
    if (size[d] > 1 && out.stride[d] != expected) return false;
    expected *= size[d];
  }
  return true;
}

template <class T>
void finish(const WeightGradient& w, int64_t output, int64_t channel, int64_t channels, T* sums, bool stored) {
  const int64_t* kernel = w.shape.kernel;
  for (int64_t z = 0; z < kernel[0]; ++z, sums += kernel[1] * kernel[2]) {
    const Results at{{output, z, 0, kernel[1], 0, kernel[2]}, channel, channels};
    const Sums<T> some{sums, w.taps, kernel[2]};
    if constexpr (std::is_same_v<T, float>) {
      if (stored) {
        leave_out_padding(w.context, at, some);
        continue;
      }
    }
    emit(w.context, at, some);
  }
}

template <class T>
void add_up(const WeightGradient& w, T* sums, int64_t parts, bool stored) {
  const auto outputs = [&](int64_t first, int64_t last) {
    for (int64_t part = 1; part < parts; ++part) {
      const T* more = sums + part * w.size;
      for (int64_t i = first * w.depth; i < last * w.depth; ++i) sums[i] += more[i];
    }
    for (int64_t o = first; o < last; ++o) finish(w, o, 0, w.inputs, sums + o * w.depth, stored);
  };
  parallel_for(w.shape.groups * w.outputs, grain_for(w.depth * parts, kLineElements), outputs);
}

template void finish<float>(const WeightGradient&, int64_t, int64_t, int64_t, float*, bool);
template void add_up<float>(const WeightGradient&, float*, int64_t, bool);
template void add_up<double>(const WeightGradient&, double*, int64_t, bool);
template void add_up<uint32_t>(const WeightGradient&, uint32_t*, int64_t, bool);
template void add_up<uint64_t>(const WeightGradient&, uint64_t*, int64_t, bool);

bool weight_gradient(const Context& context, const Phase& forward, const Tensor& gradient, const Tensor& input) {
  static constexpr const WeightGradientWay* kWays[] = {&depthwise_gradient, &pointwise_gradient, &few_gradient,
                                                       &lines_gradient,     &packed_gradient,    &column_gradient};
  const WeightGradient problem{context, forward, gradient, input};
  return run_first(context.job.command, kWays, problem);
}

}  // namespace cmodel::conv
