// CONV: the phases of a command, which way computes them, and where sums go.
#include "drivers/cmodel/conv/conv.h"

#include <algorithm>
#include <new>
#include <string>
#include <type_traits>

#include "drivers/cmodel/conv/epilogue.h"
#include "drivers/cmodel/product/kernels/micro.h"

namespace cmodel {
namespace conv {

Tensor tensor_of(const Operand& operand, int spatial_rank) {
  Tensor tensor{operand.ptr, operand.dtype, {operand.stride[0], operand.stride[1], 0, 0, 0}};
  for (int d = 0; d < spatial_rank; ++d) tensor.stride[5 - spatial_rank + d] = operand.stride[2 + d];
  return tensor;
}

namespace {

// Rows of [channel][point] to memory where channels lie together and points are `step` elements apart.
void store_channels_last(const float* sums, int64_t ld, int64_t channels, int64_t points, char* to, int dtype,
                         int64_t step) {
  const product::Micro& micro = product::micro_f32();
  if (dtype == NPU_F32) {
    micro.deep(sums, ld, channels, points, step, reinterpret_cast<uint32_t*>(to));
    return;
  }
  constexpr int64_t kPoints = 32, kChannels = 64;
  uint32_t block[kPoints * kChannels];
  const int64_t size = npu::dtype_size(dtype);
  for (int64_t p = 0; p < points; p += kPoints) {
    const int64_t count = std::min(kPoints, points - p);
    for (int64_t c = 0; c < channels; c += kChannels) {
      const int64_t width = std::min(kChannels, channels - c);
      micro.deep(sums + c * ld + p, ld, width, count, kChannels, block);
      for (int64_t i = 0; i < count; ++i) {
        product::store_line<float>(dtype, to + ((p + i) * step + c) * size, 1, width,
                                   reinterpret_cast<const float*>(block) + i * kChannels);
      }
    }
  }
}

template <class T>
void store(const Tensor& out, const Results& at, const Sums<T>& sums) {
  char* first = out.at(at, at.channel);
  int64_t rows = at.rows, cols = at.cols, row_ld = sums.row_ld;
  if (row_ld == cols && out.stride[3] == cols * out.stride[4]) {  // whole rows: one line
    row_ld = cols *= rows;
    rows = 1;
  }
  const bool one_point = rows * cols == 1;  // then strides of x do not matter
  const bool one_line =
      rows == 1 && sums.channel_ld == cols && (one_point || out.stride[1] == cols * out.stride[4]);  // of all channels
  if (one_line) {
    return product::store_line<T>(out.dtype, first, one_point ? out.stride[1] : out.stride[4], at.channels * cols,
                                  sums.data);
  }
  if constexpr (std::is_same_v<T, float>) {
    if (out.stride[1] == 1 && at.channels > 1 && out.stride[4] >= at.channels) {
      for (int64_t y = 0; y < rows; ++y) {
        store_channels_last(sums.data + y * row_ld, sums.channel_ld, at.channels, cols,
                            first + y * out.stride[3] * out.element_size(), out.dtype, out.stride[4]);
      }
      return;
    }
  }
  for (int64_t c = 0; c < at.channels; ++c) {
    product::store_block(sums.data + c * sums.channel_ld, row_ld, rows, cols,
                         first + c * out.stride[1] * out.element_size(), out.dtype, out.stride[3], out.stride[4]);
  }
}

}  // namespace

template <class T>
void emit(const Context& context, const Results& at, const Sums<T>& sums) {
  if constexpr (std::is_floating_point_v<T>) leave_out_padding(context, at, sums);
  context.epilogue ? context.epilogue->run(at, sums) : store(context.result, at, sums);
}

template void emit<float>(const Context&, const Results&, const Sums<float>&);
template void emit<double>(const Context&, const Results&, const Sums<double>&);
template void emit<uint32_t>(const Context&, const Results&, const Sums<uint32_t>&);
template void emit<uint64_t>(const Context&, const Results&, const Sums<uint64_t>&);

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

constexpr const CorrelationWay* kCorrelationWays[] = {&pointwise,   &depthwise_channels_last, &lanes, &packed, &narrow,
                                                      &window_tiles};

bool run(const Context& context) {
  const Shape& shape = context.shape;
  const npu_command& command = context.job.command;
  const Tensor first = tensor_of(context.job.operands[0], shape.spatial_rank);
  const Tensor second = tensor_of(context.job.operands[1], shape.spatial_rank);
  if (command.u.conv.mode == NPU_CONV_GRAD_WEIGHT) {
    return weight_gradient(context, forward_phase(shape), first, second);
  }
  const bool forward = command.u.conv.mode == NPU_CONV_FORWARD;
  const Correlation problem{context,
                            first,
                            {second, !forward},
                            forward ? std::vector<Phase>{forward_phase(shape)} : grad_input_phases(shape)};
  return run_first(command, kCorrelationWays, problem);
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
  if (!product::is_accumulator(c.acc_dtype)) {
    failure = {NPU_ERROR_INVALID, "CONV: expected an accumulator of f32, f64, i32 or i64, got " +
                                      std::string(npu::dtype_name(c.acc_dtype))};
    return false;
  }
  const conv::Tensor result = given.program ? conv::Tensor{} : conv::tensor_of(given.operands[2], int(c.spatial_rank));
  try {
    std::optional<conv::Epilogue> epilogue;
    if (given.program) epilogue.emplace(given);
    if (epilogue && epilogue->is_behind()) return run_one_after_the_other(given, *epilogue, failure);
    const Job& job = epilogue ? epilogue->job() : given;
    return conv::run({job, conv::shape_of(c), result, c.acc_dtype, epilogue ? &*epilogue : nullptr});
  } catch (const std::bad_alloc&) {
    failure = {NPU_ERROR_MEMORY, "CONV: no host memory left for a converted copy of an operand"};
    return false;
  }
}

}  // namespace cmodel
