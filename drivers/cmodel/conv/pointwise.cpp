// A kernel of one point with stride 1 is a matrix product: the command becomes the MATMUL it is.
#include "drivers/cmodel/conv/pointwise.h"

#include <utility>
#include <vector>

#include "drivers/cmodel/conv/epilogue.h"
#include "drivers/cmodel/conv/tuning.h"
#include "drivers/cmodel/plan/plan.h"

namespace cmodel::conv {

std::optional<int64_t> point_stride(const Tensor& tensor, const int64_t* size) {
  int64_t expected = 0, stride = 1;
  bool any = false;
  for (int d = 2; d >= 0; --d) {
    if (size[d] == 1) continue;
    if (!any) stride = expected = tensor.stride[d + 2];
    any = true;
    if (tensor.stride[d + 2] != expected) return std::nullopt;
    expected *= size[d];
  }
  return stride;
}

const char* refuses_pointwise(const Shape& shape) {
  for (int d = 0; d < 3; ++d) {
    if (shape.kernel[d] != 1) return "the kernel has several points";
    if (shape.stride[d] != 1 || shape.padding[d] != 0 || shape.in_size[d] != shape.out_size[d]) {
      return "input and output are not the same points";
    }
  }
  const bool few = shape.in_channels * shape.out_channels < kPointwisePairs;
  return few ? "there are few channels" : nullptr;  // depthwise and nearly so: the window kernel wins
}

namespace {

// Whether the epilogue asks for coordinates or sizes, which are those of CONV.
bool uses_index(const Job& job) {
  if (!job.program) return false;
  for (const Op& op : job.program->plan->ops) {
    if (op.op == NPU_OP_INDEX || op.op == NPU_OP_SIZE) return true;
  }
  return false;
}

const char* refuses(const Correlation& c) {
  if (const char* reason = refuses_pointwise(c.shape)) return reason;
  if (uses_index(c.context.job)) return "the program asks for coordinates";
  for (size_t o = 0; o < c.context.job.command.operand_count; ++o) {
    const Tensor tensor = o == 0 ? c.source : tensor_of(c.context.job.operands[o], c.shape.spatial_rank);
    if (o != 1 && !point_stride(tensor, c.shape.in_size)) return "points of an operand are not evenly spaced";
  }
  return nullptr;
}

// Strides of an operand as [batch, group, channel, point]. Of the weight, which the product adds up along its source
// channels: [none, group, result channel, source channel].
struct View {
  int64_t batch, group, channel, point;
};

const char* run(const Correlation& c) {
  const Shape& shape = c.shape;
  const Context& context = c.context;
  const int64_t points = shape.in_size[0] * shape.in_size[1] * shape.in_size[2];
  const size_t count = context.job.command.operand_count;
  std::vector<View> views(count);
  for (size_t o = 0; o < count; ++o) {
    const Tensor tensor = o == 0 ? c.source : tensor_of(context.job.operands[o], shape.spatial_rank);
    const int64_t channel = tensor.stride[1], channels = o == 0 ? c.sources : c.results;
    views[o] = {tensor.stride[0], channels * channel, channel, point_stride(tensor, shape.in_size).value_or(0)};
  }
  const Weights& w = c.weights;
  views[1] = {0, w.group_stride(shape), w.result_stride(), w.source_stride()};
  // Channels last: points are the rows of the product, so that results are written as they lie.
  const size_t stored = context.epilogue ? context.epilogue->stored() : 2;
  const bool by_points = views[stored].channel == 1 && views[stored].point != 1;
  bool merged = by_points && shape.groups == 1;  // images and points are one dimension
  for (size_t o = 0; o < count; ++o) merged = merged && (o == 1 || views[o].batch == points * views[o].point);

  std::vector<Operand> operands(context.job.operands, context.job.operands + count);
  Job job = context.job;
  job.operands = operands.data();
  npu_command& command = job.command;
  command.kind = NPU_MATMUL;
  command.rank = 0;
  command.u.matmul = {c.sources, context.job.command.u.conv.acc_dtype, context.job.command.u.conv.flags, {}};
  const auto dimension = [&](int64_t size, int64_t View::* stride) {
    command.size[command.rank] = size;
    for (size_t o = 0; o < count; ++o) operands[o].stride[command.rank] = views[o].*stride;
    ++command.rank;
  };
  if (!merged) dimension(shape.batch, &View::batch);
  if (!merged) dimension(shape.groups, &View::group);
  // Strides of A: rows, k; of B: k, columns.
  if (by_points) {
    dimension(merged ? shape.batch * points : points, &View::point);
    dimension(c.results, &View::channel);
  } else {
    dimension(c.results, &View::channel);
    dimension(points, &View::point);
    std::swap(operands[0], operands[1]);
  }
  Failure failure;
  return run_matmul(job, failure) ? nullptr : "there was no memory for a copy of an operand";
}

}  // namespace

constinit const CorrelationWay pointwise = {"pointwise", refuses, run};

}  // namespace cmodel::conv
