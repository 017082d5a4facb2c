// Weight gradient with one channel on either side of each group: a tap's sum runs over all positions.
#include <algorithm>
#include <vector>

#include "drivers/cmodel/conv/kernels/kernels.h"
#include "drivers/cmodel/conv/weight_gradient/weight_gradient.h"
#include "drivers/cmodel/conv/window.h"

namespace cmodel::conv {
namespace {

const char* refuses(const WeightGradient& w) {
  if (w.context.acc_dtype != NPU_F32) return "sums are not f32";
  return w.inputs != 1 || w.outputs != 1 ? "a group has several channels" : nullptr;
}

void run(const WeightGradient& w) {
  const Shape& shape = w.shape;
  const Pieces pieces(shape.batch, shape.out_size[0], shape.out_size[1], shape.out_size[2], kDepthwisePositions);
  const Tensor& from = w.gradient;
  const bool in_place = from.dtype == NPU_F32 && from.stride[4] == 1;
  const auto run = [&](int64_t first, int64_t last) {
    Window<float> window(w.forward, 1, pieces.rows, pieces.cols);
    product::Scratch space(sizeof(float) * pieces.rows * pieces.cols);
    for (int64_t group = first; group < last; ++group) {
      std::vector<double> sums(size_t(w.taps), 0.0);
      for (int64_t i = 0; i < pieces.count; ++i) {
        const Piece p = pieces.at(i);
        window.fill(w.input, p, group, 1);
        const float* lines = in_place ? reinterpret_cast<const float*>(from.at(p, group)) : space.as<float>();
        for (int64_t y = 0; y < p.rows && !in_place; ++y) {
          product::load_line<float>(from.dtype, from.at(p.n, group, p.z, p.y + y, p.x), from.stride[4], p.cols,
                                    space.as<float>() + y * p.cols);
        }
        kernels().tap_sums(sums.data(), lines, in_place ? from.stride[3] : p.cols, p.rows, p.cols, window.data(),
                           window.pitch(), window.offsets().data(), w.taps);
      }
      std::vector<float> result(sums.begin(), sums.end());
      finish(w, group, 0, 1, result.data());
    }
  };
  parallel_for(shape.groups, grain_for(w.positions * w.taps, kTaskWork), run);
}

}  // namespace

constinit const WeightGradientWay depthwise_gradient = {"depthwise", refuses, always<run, const WeightGradient>};

}  // namespace cmodel::conv
