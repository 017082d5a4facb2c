// CONV of the reference executor: forward and both gradients, one sum at a time.
#include <algorithm>

#include "support/reference/machine.h"

namespace npu {
namespace {

// An operand of the convolution, converted once to the accumulation type, in row-major order.
template <typename T>
struct Dense {
  int64_t size[5];
  std::vector<T> data;

  Dense(Memory& memory, uint32_t operand, int64_t d0, int64_t d1, const int64_t* spatial, int rank, int acc) {
    size[0] = d0;
    size[1] = d1;
    std::copy_n(spatial, rank - 2, size + 2);
    data.resize(static_cast<size_t>(points(size, rank)));
    if (data.empty()) return;
    memory.expect_space(operand, size, rank, false);
    int64_t point[5] = {};
    size_t i = 0;
    do {
      const int64_t offset = offset_of(point, memory.operand(operand).stride, rank);
      data[i++] = get_value<T>(memory.load(operand, offset, acc));
    } while (next_point(point, size, rank));
  }
  const T* plane(int64_t i, int64_t j, int spatial) const {
    return data.data() + (i * size[1] + j) * points(size + 2, spatial);
  }
};

int64_t flat(const int64_t* point, const int64_t* size, int rank) {
  int64_t offset = 0;
  for (int d = 0; d < rank; ++d) offset = offset * size[d] + point[d];
  return offset;
}

template <typename T>
T multiply_add(T acc, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return acc + a * b;
  } else {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(acc) + static_cast<U>(a) * static_cast<U>(b));
  }
}

// The input position that output position `out` and kernel position `tap` meet at; false where it is padding.
bool input_position(const npu_conv& c, const int64_t* out, const int64_t* tap, int64_t* in) {
  for (uint32_t d = 0; d < c.spatial_rank; ++d) {
    in[d] = out[d] * c.stride[d] - c.padding[d] + tap[d] * c.dilation[d];
    if (in[d] < 0 || in[d] >= c.in_size[d]) return false;
  }
  return true;
}

// The output position whose kernel position `tap` reads input position `in`; false where there is none.
bool output_position(const npu_conv& c, const int64_t* in, const int64_t* tap, int64_t* out) {
  for (uint32_t d = 0; d < c.spatial_rank; ++d) {
    const int64_t reach = in[d] + c.padding[d] - tap[d] * c.dilation[d];
    if (reach < 0 || reach % c.stride[d]) return false;
    out[d] = reach / c.stride[d];
    if (out[d] >= c.out_size[d]) return false;
  }
  return true;
}

// point: batch, output channel, output position. Sum over input channel, then kernel position.
template <typename T>
T forward(const npu_conv& c, const Dense<T>& input, const Dense<T>& weight, const int64_t* point) {
  const int spatial = static_cast<int>(c.spatial_rank);
  const int64_t per_group = c.in_channels / c.groups, group = point[1] / (c.out_channels / c.groups);
  T acc = 0;
  for (int64_t i = 0; i < per_group; ++i) {
    const T* x = input.plane(point[0], group * per_group + i, spatial);
    const T* w = weight.plane(point[1], i, spatial);
    int64_t tap[3] = {}, in[3];
    do {
      if (input_position(c, point + 2, tap, in))
        acc = multiply_add(acc, x[flat(in, c.in_size, spatial)], w[flat(tap, c.kernel, spatial)]);
    } while (next_point(tap, c.kernel, spatial));
  }
  return acc;
}

// point: batch, input channel, input position. Sum over output channel, then kernel position.
template <typename T>
T grad_input(const npu_conv& c, const Dense<T>& grad, const Dense<T>& weight, const int64_t* point) {
  const int spatial = static_cast<int>(c.spatial_rank);
  const int64_t per_group = c.out_channels / c.groups, inputs = c.in_channels / c.groups, group = point[1] / inputs;
  T acc = 0;
  for (int64_t o = group * per_group; o < (group + 1) * per_group; ++o) {
    const T* g = grad.plane(point[0], o, spatial);
    const T* w = weight.plane(o, point[1] % inputs, spatial);
    int64_t tap[3] = {}, out[3];
    do {
      if (output_position(c, point + 2, tap, out))
        acc = multiply_add(acc, g[flat(out, c.out_size, spatial)], w[flat(tap, c.kernel, spatial)]);
    } while (next_point(tap, c.kernel, spatial));
  }
  return acc;
}

// point: output channel, input channel of its group, kernel position. Sum over batch, then output position.
template <typename T>
T grad_weight(const npu_conv& c, const Dense<T>& grad, const Dense<T>& input, const int64_t* point) {
  const int spatial = static_cast<int>(c.spatial_rank);
  const int64_t per_group = c.in_channels / c.groups, group = point[0] / (c.out_channels / c.groups);
  T acc = 0;
  if (points(c.out_size, spatial) == 0) return acc;
  for (int64_t b = 0; b < c.batch; ++b) {
    const T* g = grad.plane(b, point[0], spatial);
    const T* x = input.plane(b, group * per_group + point[1], spatial);
    int64_t out[3] = {}, in[3];
    do {
      if (input_position(c, out, point + 2, in))
        acc = multiply_add(acc, g[flat(out, c.out_size, spatial)], x[flat(in, c.in_size, spatial)]);
    } while (next_point(out, c.out_size, spatial));
  }
  return acc;
}

template <typename T>
void conv(const npu_command& command, const npu_program_desc* program, Memory& memory) {
  const npu_conv& c = command.u.conv;
  if (points(command.size, command.rank) == 0) return;
  const int rank = command.rank, acc = c.acc_dtype;
  ResultSink sink(command, program, memory, acc);
  const bool first_is_input = c.mode == NPU_CONV_FORWARD, second_is_input = c.mode == NPU_CONV_GRAD_WEIGHT;
  const Dense<T> first(memory, 0, c.batch, first_is_input ? c.in_channels : c.out_channels,
                       first_is_input ? c.in_size : c.out_size, rank, acc);
  const Dense<T> second = second_is_input
                              ? Dense<T>(memory, 1, c.batch, c.in_channels, c.in_size, rank, acc)
                              : Dense<T>(memory, 1, c.out_channels, c.in_channels / c.groups, c.kernel, rank, acc);
  int64_t point[NPU_MAX_RANK] = {};
  do {
    const T sum = c.mode == NPU_CONV_FORWARD      ? forward(c, first, second, point)
                  : c.mode == NPU_CONV_GRAD_INPUT ? grad_input(c, first, second, point)
                                                  : grad_weight(c, first, second, point);
    sink.put(point, value_of(sum));
  } while (next_point(point, command.size, rank));
}

}  // namespace

void run_conv(const npu_command& command, const npu_program_desc* program, Memory& memory) {
  switch (command.u.conv.acc_dtype) {
    case NPU_F32:
      return conv<float>(command, program, memory);
    case NPU_F64:
      return conv<double>(command, program, memory);
    case NPU_I32:
      return conv<int32_t>(command, program, memory);
    default:
      return conv<int64_t>(command, program, memory);
  }
}

}  // namespace npu
