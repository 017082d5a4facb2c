// A kernel of one point with stride 1 is a matrix product: the command becomes the MATMUL it is.
#include <algorithm>
#include <utility>
#include <vector>

#include "drivers/cmodel/conv/conv.h"
#include "drivers/cmodel/conv/epilogue.h"
#include "drivers/cmodel/plan/plan.h"
#include "drivers/cmodel/product/packed.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel::conv {
namespace {

// The distance between neighbouring points when z, y and x together walk memory evenly (or nowhere); false: they do
// not.
bool point_stride(const Tensor& tensor, const int64_t* size, int64_t* stride) {
  int64_t expected = 0;
  bool any = false;
  *stride = 1;
  for (int d = 2; d >= 0; --d) {
    if (size[d] == 1) continue;
    if (!any) *stride = expected = tensor.stride[d + 2];
    any = true;
    if (tensor.stride[d + 2] != expected) return false;
    expected *= size[d];
  }
  return true;
}

bool is_pointwise(const Shape& shape) {
  for (int d = 0; d < 3; ++d) {
    if (shape.kernel[d] != 1 || shape.stride[d] != 1 || shape.padding[d] != 0 ||
        shape.in_size[d] != shape.out_size[d]) {
      return false;
    }
  }
  return true;
}

// Whether the epilogue asks for coordinates or sizes, which are those of CONV.
bool uses_index(const Job& job) {
  if (!job.program) return false;
  for (const Op& op : job.program->plan->ops) {
    if (op.op == NPU_OP_INDEX || op.op == NPU_OP_SIZE) return true;
  }
  return false;
}

}  // namespace

bool try_pointwise(const Context& context, const Tensor& source, const Weights& weights) {
  const Shape& shape = context.shape;
  if (!is_pointwise(shape)) return false;
  const int64_t points = shape.in_size[0] * shape.in_size[1] * shape.in_size[2];
  const int64_t sources = weights.swapped ? shape.out_channels : shape.in_channels;
  const int64_t results = weights.swapped ? shape.in_channels : shape.out_channels;
  if (sources * results < 64 || uses_index(context.job))
    return false;  // depthwise and nearly so: the window kernel wins

  // Every operand as [batch, group, channel, point].
  struct View {
    int64_t batch, group, channel, point;
  };
  const size_t count = context.job.command.operand_count;
  std::vector<View> views(count);
  views[0] = {source.stride[0], sources * source.stride[1], source.stride[1], 0};
  if (!point_stride(source, shape.in_size, &views[0].point)) return false;
  for (size_t o = 2; o < count; ++o) {
    const Tensor tensor = tensor_of(context.job.operands[o], shape.spatial_rank);
    views[o] = {tensor.stride[0], results * tensor.stride[1], tensor.stride[1], 0};
    if (!point_stride(tensor, shape.in_size, &views[o].point)) return false;
  }
  // Channels last: points are the rows of the product, so that results are written as they lie.
  const size_t stored = context.epilogue ? context.epilogue->stored() : 2;
  const bool by_points = views[stored].channel == 1 && views[stored].point != 1;
  bool merged = by_points;  // images and points are one dimension
  for (size_t o = 0; o < count; ++o) merged = merged && (o == 1 || views[o].batch == points * views[o].point);
  merged = merged && shape.groups == 1;

  std::vector<Operand> operands(context.job.operands, context.job.operands + count);
  Job job = context.job;
  job.operands = operands.data();
  npu_command& command = job.command;
  command.kind = NPU_MATMUL;
  command.u.matmul = {sources, context.job.command.u.conv.acc_dtype, context.job.command.u.conv.flags, {}};
  int rank = 0;
  const auto dimension = [&](int64_t size, auto&& stride) {
    command.size[rank] = size;
    for (size_t o = 0; o < count; ++o) operands[o].stride[rank] = stride(o);
    ++rank;
  };
  const int64_t w_group = weights.group_stride(shape);
  if (!merged) dimension(shape.batch, [&](size_t o) { return o == 1 ? 0 : views[o].batch; });
  if (!merged) dimension(shape.groups, [&](size_t o) { return o == 1 ? w_group : views[o].group; });
  // Strides of A: rows, k; of B: k, columns.
  if (by_points) {
    dimension(merged ? shape.batch * points : points,
              [&](size_t o) { return o == 1 ? weights.source_stride() : views[o].point; });
    dimension(results, [&](size_t o) { return o == 1 ? weights.result_stride() : views[o].channel; });
  } else {
    dimension(results, [&](size_t o) { return o == 1 ? weights.result_stride() : views[o].channel; });
    dimension(points, [&](size_t o) { return o == 1 ? weights.source_stride() : views[o].point; });
    std::swap(operands[0], operands[1]);
  }
  command.rank = static_cast<uint8_t>(rank);
  Failure failure;
  return run_matmul(job, failure);
}

bool try_pointwise_grad_weight(const Context& context, const Tensor& gradient, const Tensor& input) {
  const Shape& shape = context.shape;
  int64_t g_point, i_point;
  if (context.acc_dtype != NPU_F32 || shape.batch == 0 || !is_pointwise(shape) ||
      shape.in_channels * shape.out_channels < 64 || !point_stride(gradient, shape.in_size, &g_point) ||
      !point_stride(input, shape.in_size, &i_point)) {
    return false;
  }
  int64_t images = shape.batch, points = shape.in_size[0] * shape.in_size[1] * shape.in_size[2];
  if (gradient.stride[0] == points * g_point && input.stride[0] == points * i_point) {
    points *= images;
    images = 1;
  }
  const int64_t outputs = shape.out_channels, inputs = shape.in_channels;
  const product::Micro& micro = product::micro_for(gradient.dtype, input.dtype);
  // Parts of the sum, by shape and not by threads, each over the points of some images or over some points of one.
  constexpr int64_t kCols = 256;
  const int64_t blocks = (inputs + kCols - 1) / kCols, weights = shape.groups * outputs * inputs;
  int64_t parts = 1;
  while (parts < 8 && parts * blocks * shape.groups < 8 && weights * parts < (2 << 20) &&
         images * points / parts >= 2048) {
    parts *= 2;
  }
  const int64_t g_size = npu::dtype_size(gradient.dtype), i_size = npu::dtype_size(input.dtype);
  product::Scratch space(sizeof(float) * parts * weights);
  float* total = space.as<float>();
  const auto run = [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      const int64_t part = task % parts, block = task / parts % blocks, group = task / (parts * blocks);
      const int64_t c0 = block * kCols, count = std::min(kCols, inputs - c0);
      float* sum = total + part * weights + group * outputs * inputs + c0;
      const int64_t begin = images * points * part / parts, end = images * points * (part + 1) / parts;
      for (int64_t at = begin; at < end;) {
        const int64_t n = at / points, point = at % points, length = std::min(points - point, end - at);
        const int64_t g_at = n * gradient.stride[0] + group * outputs * gradient.stride[1] + point * g_point;
        const int64_t i_at = n * input.stride[0] + (group * inputs + c0) * input.stride[1] + point * i_point;
        product::packed_gemm(
            micro, {gradient.data + g_at * g_size, gradient.dtype, outputs, length, gradient.stride[1], g_point},
            {input.data + i_at * i_size, input.dtype, count, length, input.stride[1], i_point}, at > begin, sum,
            inputs);
        at += length;
      }
    }
  };
  const int64_t tasks = parts * blocks * shape.groups;
  parallel_for(tasks, std::max<int64_t>(1, (1 << 18) / std::max<int64_t>(1, images * points * weights / tasks)), run);
  for (int64_t part = 1; part < parts; ++part) {
    for (int64_t i = 0; i < weights; ++i) total[i] += total[part * weights + i];
  }
  for (int64_t o = 0; o < shape.groups * outputs; ++o) {
    emit(context, o, 0, inputs, 0, 0, 1, 0, 1, total + o * inputs, 1, 1);
  }
  return true;
}

}  // namespace cmodel::conv
