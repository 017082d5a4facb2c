// Weight gradient of a kernel of one point: a product over points, in parts of the sum.
#include "drivers/cmodel/conv/pointwise.h"

#include <algorithm>

#include "drivers/cmodel/conv/weight_gradient/weight_gradient.h"
#include "drivers/cmodel/product/packed.h"

namespace cmodel::conv {
namespace {

const char* refuses(const WeightGradient& w) {
  if (w.context.acc_dtype != NPU_F32) return "sums are not f32";
  if (w.shape.batch == 0) return "there is nothing to add up";
  if (const char* reason = refuses_pointwise(w.shape)) return reason;
  const int64_t* size = w.shape.in_size;
  return point_stride(w.gradient, size) && point_stride(w.input, size) ? nullptr
                                                                       : "points of an operand are not evenly spaced";
}

void run(const WeightGradient& w) {
  const Shape& shape = w.shape;
  const int64_t g_point = *point_stride(w.gradient, shape.in_size), i_point = *point_stride(w.input, shape.in_size);
  int64_t points = shape.in_size[0] * shape.in_size[1] * shape.in_size[2];
  if (w.gradient.stride[0] == points * g_point && w.input.stride[0] == points * i_point) points *= shape.batch;
  const product::Micro& micro = product::micro_for(w.gradient.dtype, w.input.dtype);
  // Parts of the sum, by shape and not by threads, each over the points of some images or over some points of one.
  const int64_t blocks = (w.inputs + kPointCols - 1) / kPointCols;
  int64_t parts = 1;
  while (parts < kPointParts && parts * blocks * shape.groups < kPointParts && w.size * parts < kPointElements &&
         w.positions / parts >= kPointPositions) {
    parts *= 2;
  }
  const auto matrix = [&](const Tensor& t, int64_t n, int64_t channel, int64_t point, int64_t step, int64_t channels,
                          int64_t length) {
    return product::Matrix{
        t.at(n, channel, 0, 0, 0) + point * step * t.element_size(), t.dtype, channels, length, t.stride[1], step};
  };
  product::Scratch space(sizeof(float) * parts * w.size);
  float* total = space.as<float>();
  const auto run = [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t part = task % parts, block = task / parts % blocks, group = task / (parts * blocks);
      const int64_t c0 = block * kPointCols, count = std::min(kPointCols, w.inputs - c0);
      float* sums = total + part * w.size + group * w.outputs * w.inputs + c0;
      const int64_t begin = w.positions * part / parts, end = w.positions * (part + 1) / parts;
      for (int64_t at = begin; at < end;) {
        const int64_t n = at / points, point = at % points, length = std::min(points - point, end - at);
        product::packed_gemm(micro, matrix(w.gradient, n, group * w.outputs, point, g_point, w.outputs, length),
                             matrix(w.input, n, group * w.inputs + c0, point, i_point, count, length), at > begin, sums,
                             w.inputs);
        at += length;
      }
    }
  };
  const int64_t tasks = parts * blocks * shape.groups;
  parallel_for(tasks, grain_for(w.positions * w.size / tasks, kGradientWork), run);
  add_up(w, total, parts);
}

}  // namespace

constinit const WeightGradientWay pointwise_gradient = {"pointwise", refuses, always<run, const WeightGradient>};

}  // namespace cmodel::conv
