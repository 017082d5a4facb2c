#include "drivers/cmodel/conv/conv.h"

#include "drivers/cmodel/conv/epilogue.h"

#include <algorithm>
#include <new>
#include <string>
#include <type_traits>

namespace cmodel {
namespace conv {

Tensor tensor_of(const Operand& operand, int spatial_rank) {
  Tensor tensor{operand.ptr, operand.dtype, {operand.stride[0], operand.stride[1], 0, 0, 0}};
  for (int d = 0; d < spatial_rank; ++d) tensor.stride[5 - spatial_rank + d] = operand.stride[2 + d];
  return tensor;
}

namespace {

// acc[channel, point] to memory where channels lie together and points are `step` elements apart.
void store_channels_last(const float* acc, int64_t ld, int64_t channels, int64_t points, char* to, int dtype,
                         int64_t step) {
  const product::Micro& micro = product::micro_f32();
  if (dtype == NPU_F32) {
    micro.deep(acc, ld, channels, points, step, reinterpret_cast<uint32_t*>(to));
    return;
  }
  constexpr int64_t kPoints = 32, kChannels = 64;
  uint32_t block[kPoints * kChannels];
  const int64_t size = npu::dtype_size(dtype);
  for (int64_t p = 0; p < points; p += kPoints) {
    const int64_t count = std::min(kPoints, points - p);
    for (int64_t c = 0; c < channels; c += kChannels) {
      const int64_t width = std::min(kChannels, channels - c);
      micro.deep(acc + c * ld + p, ld, width, count, kChannels, block);
      for (int64_t i = 0; i < count; ++i) {
        product::store_line<float>(dtype, to + ((p + i) * step + c) * size, 1, width,
                                   reinterpret_cast<const float*>(block) + i * kChannels);
      }
    }
  }
}

}  // namespace

template <class T>
void emit(const Context& context, int64_t n, int64_t channel, int64_t channels, int64_t z, int64_t y0, int64_t rows,
          int64_t x0, int64_t cols, T* acc, int64_t channel_ld, int64_t row_ld) {
  if constexpr (std::is_floating_point_v<T>) {
    leave_out_padding(context, n, channel, channels, z, y0, rows, x0, cols, acc, channel_ld, row_ld);
  }
  if (context.epilogue) {
    context.epilogue->run({n, channel, channels, z, y0, rows, x0, cols}, acc, channel_ld, row_ld);
    return;
  }
  const Tensor& out = context.result;
  const int64_t size = npu::dtype_size(out.dtype);
  if (row_ld == cols && out.stride[3] == cols * out.stride[4]) {  // whole rows: one line
    cols *= rows;
    row_ld = cols;
    rows = 1;
  }
  const bool one_point = rows * cols == 1;  // then strides of x do not matter
  char* first = out.data + (n * out.stride[0] + channel * out.stride[1] + z * out.stride[2] + y0 * out.stride[3] +
                            x0 * out.stride[4]) *
                               size;
  if (rows == 1 && channel_ld == cols && (one_point || out.stride[1] == cols * out.stride[4])) {  // of all channels
    product::store_line<T>(out.dtype, first, one_point ? out.stride[1] : out.stride[4], channels * cols, acc);
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (out.stride[1] == 1 && channels > 1 && out.stride[4] >= channels) {
      for (int64_t y = 0; y < rows; ++y) {
        store_channels_last(acc + y * row_ld, channel_ld, channels, cols, first + y * out.stride[3] * size, out.dtype,
                            out.stride[4]);
      }
      return;
    }
  }
  for (int64_t c = 0; c < channels; ++c) {
    product::store_block(acc + c * channel_ld, row_ld, rows, cols, first + c * out.stride[1] * size, out.dtype,
                         out.stride[3], out.stride[4]);
  }
}

template void emit<float>(const Context&, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                          float*, int64_t, int64_t);
template void emit<double>(const Context&, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                           double*, int64_t, int64_t);
template void emit<uint32_t>(const Context&, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                             uint32_t*, int64_t, int64_t);
template void emit<uint64_t>(const Context&, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t,
                             uint64_t*, int64_t, int64_t);

namespace {

Shape shape_of(const npu_conv& c) {
  Shape shape{};
  shape.spatial_rank = int(c.spatial_rank);
  shape.batch = c.batch;
  shape.groups = c.groups;
  shape.in_channels = c.in_channels / c.groups;
  shape.out_channels = c.out_channels / c.groups;
  for (int d = 0; d < 3; ++d) {
    const int from = d - (3 - shape.spatial_rank);
    const bool real = from >= 0;
    shape.in_size[d] = real ? c.in_size[from] : 1;
    shape.out_size[d] = real ? c.out_size[from] : 1;
    shape.kernel[d] = real ? c.kernel[from] : 1;
    shape.stride[d] = real ? c.stride[from] : 1;
    shape.padding[d] = real ? c.padding[from] : 0;
    shape.dilation[d] = real ? c.dilation[from] : 1;
  }
  return shape;
}

Phase forward_phase(const Shape& s) {
  Phase phase;
  for (int d = 0; d < 3; ++d) {
    phase[d] = {s.out_size[d], 0, 1, s.in_size[d], s.stride[d], {}};
    for (int64_t k = 0; k < s.kernel[d]; ++k) phase[d].taps.push_back({k, k * s.dilation[d] - s.padding[d]});
  }
  return phase;
}

// Input position i gets output position s through tap k where s * stride = i + padding - k * dilation: for every
// residue of i modulo the stride, the taps for which that division is exact.
std::vector<Phase> grad_input_phases(const Shape& s) {
  std::vector<Axis> axes[3];
  for (int d = 0; d < 3; ++d) {
    for (int64_t residue = 0; residue < std::min(s.stride[d], s.in_size[d]); ++residue) {
      Axis axis{(s.in_size[d] - residue + s.stride[d] - 1) / s.stride[d], residue, s.stride[d], s.out_size[d], 1, {}};
      for (int64_t k = 0; k < s.kernel[d]; ++k) {
        const int64_t distance = residue + s.padding[d] - k * s.dilation[d];
        if (distance % s.stride[d] == 0) axis.taps.push_back({k, distance / s.stride[d]});
      }
      axes[d].push_back(std::move(axis));
    }
  }
  std::vector<Phase> phases;
  for (const Axis& z : axes[0]) {
    for (const Axis& y : axes[1]) {
      for (const Axis& x : axes[2]) phases.push_back({z, y, x});
    }
  }
  return phases;
}

template <class T>
void run(const Context& context) {
  const Shape& shape = context.shape;
  const Operand* operands = context.job.operands;
  const Tensor first = tensor_of(operands[0], shape.spatial_rank), second = tensor_of(operands[1], shape.spatial_rank);
  switch (context.job.command.u.conv.mode) {
    case NPU_CONV_FORWARD: {
      const Weights weights{second, false};
      const std::vector<Phase> phases{forward_phase(shape)};
      if (try_pointwise(context, first, weights) || try_depthwise_channels_last(context, phases, first, weights) ||
          try_lanes(context, phases, first, weights) || try_packed(context, phases, first, weights) ||
          try_narrow<T>(context, phases[0], first, weights)) {
        return;
      }
      correlate<T>(context, phases, first, weights);
      return;
    }
    case NPU_CONV_GRAD_INPUT: {
      const Weights weights{second, true};
      if (try_pointwise(context, first, weights)) return;
      const std::vector<Phase> phases = grad_input_phases(shape);
      if (try_depthwise_channels_last(context, phases, first, weights)) return;
      if (try_lanes(context, phases, first, weights) || try_packed(context, phases, first, weights)) return;
      const bool single = phases.size() == 1 && phases[0][2].result_step == 1 && phases[0][1].result_step == 1 &&
                          phases[0][0].result_step == 1;
      if (single && try_narrow<T>(context, phases[0], first, weights)) return;
      correlate<T>(context, phases, first, weights);
      return;
    }
    default:
      return grad_weight<T>(context, forward_phase(shape), first, second);
  }
}

}  // namespace
}  // namespace conv

namespace {

// A convolution that only writes its sums, then the program over these.
bool run_one_after_the_other(const Job& given, const conv::Epilogue& epilogue, Failure& failure) {
  const Operand operands[3] = {given.operands[0], given.operands[1], given.operands[epilogue.stored()]};
  Job sums = given;
  sums.program = nullptr;
  sums.operands = operands;
  sums.command.operand_count = 3;
  if (!run_conv(sums, failure)) return false;
  epilogue.run_behind();
  return true;
}

}  // namespace

bool run_conv(const Job& given, Failure& failure) {
  const npu_conv& c = given.command.u.conv;
  for (int d = 0; d < given.command.rank; ++d) {
    if (given.command.size[d] == 0) return true;
  }
  if (c.mode > NPU_CONV_GRAD_WEIGHT) {
    failure = {NPU_ERROR_INVALID, "CONV: expected mode 0, 1 or 2, got " + std::to_string(c.mode)};
    return false;
  }
  const conv::Tensor result = given.program ? conv::Tensor{} : conv::tensor_of(given.operands[2], int(c.spatial_rank));
  try {
    std::optional<conv::Epilogue> epilogue;
    if (given.program) epilogue.emplace(given);
    if (epilogue && epilogue->is_behind()) return run_one_after_the_other(given, *epilogue, failure);
    const Job& job = epilogue ? epilogue->job() : given;
    const conv::Context context{job, conv::shape_of(c), result, c.acc_dtype, epilogue ? &*epilogue : nullptr};
    switch (c.acc_dtype) {
      case NPU_F32:
        conv::run<float>(context);
        return true;
      case NPU_F64:
        conv::run<double>(context);
        return true;
      case NPU_I32:
        conv::run<uint32_t>(context);
        return true;
      case NPU_I64:
        conv::run<uint64_t>(context);
        return true;
      default:
        failure = {NPU_ERROR_INVALID, "CONV: expected an accumulator of f32, f64, i32 or i64, got " +
                                          std::string(npu::dtype_name(c.acc_dtype))};
        return false;
    }
  } catch (const std::bad_alloc&) {
    failure = {NPU_ERROR_MEMORY, "CONV: no host memory left for a converted copy of an operand"};
    return false;
  }
}

}  // namespace cmodel
