// CONV as strided copies and GEMM. The input is laid out as a matrix with a row for every channel and kernel position
// and a column for every output position (zeros where the window leaves the input), so that
//   output[oc, position] = sum over rows of weight[oc, row] * matrix[row, position],
// the gradient of the weight is a product with the same matrix, and the gradient of the input is made by the way back:
// a product into such a matrix, whose rows are added to where they came from.
#include <algorithm>

#include "drivers/rtl/lower.h"

using namespace npu_hw;

namespace rtl {
namespace {

constexpr int64_t kBf16 = 2, kF32 = 4;

int64_t product_of(const int64_t* values, uint32_t n) {
  int64_t product = 1;
  for (uint32_t d = 0; d < n; d++) product *= values[d];
  return product;
}

}  // namespace

// Copies an operand of a convolution, [outer, channel, spatial...], to bf16 parts. `to` has its strides in this order.
void Lowering::pack(uint32_t index, const Space& shape, const View& to, int64_t part_stride, const Split& split) {
  const Space kept = space_;
  space_ = shape;
  for (int i = 0; i < split.parts; i++) {
    View slice = to;
    slice.addr += static_cast<uint64_t>(i * part_stride);
    vector(VEC_MOV, slice, split.source[part_of(index, i, split)]);
  }
  space_ = kept;
}

// Every output position that kernel position `tap` joins with a position inside the input, as a space [batch, groups,
// channels of a group, positions...]; false: none. `input` and `matrix` are moved to the first of them; their strides
// at dimension 0 to 2 are given, those of the positions are of one step along the input and along the positions.
bool Lowering::window(int64_t tap, Space* space, View* input, View* matrix) {
  const npu_conv& u = command_.u.conv;
  space->rank = 3 + static_cast<int>(u.spatial_rank);
  space->size[0] = u.batch;
  space->size[1] = u.groups;
  space->size[2] = u.in_channels / u.groups;
  for (int d = static_cast<int>(u.spatial_rank) - 1; d >= 0; d--) {
    const int64_t at = tap % u.kernel[d];
    tap /= u.kernel[d];
    const int64_t shift = at * u.dilation[d] - u.padding[d];  // input position of output position 0
    const int64_t first = shift >= 0 ? 0 : (-shift + u.stride[d] - 1) / u.stride[d];
    const int64_t end =
        std::min(u.out_size[d], shift >= u.in_size[d] ? 0 : (u.in_size[d] - 1 - shift) / u.stride[d] + 1);
    if (end <= first) return false;
    space->size[3 + d] = end - first;
    input->addr += static_cast<uint64_t>((first * u.stride[d] + shift) * input->stride[3 + d]);
    matrix->addr += static_cast<uint64_t>(first * matrix->stride[3 + d]);
    input->stride[3 + d] *= u.stride[d];
  }
  return true;
}

// The input as a matrix of bf16 parts: `to` has the strides of batch, group, channel and positions.
void Lowering::unfold(uint32_t index, const View& to, int64_t tap_stride, int64_t part_stride, const Split& split) {
  const npu_conv& u = command_.u.conv;
  const Space kept = space_;
  for (int i = 0; i < split.parts; i++)
    for (int64_t tap = 0; tap < product_of(u.kernel, u.spatial_rank); tap++) {
      const View& whole = split.source[part_of(index, i, split)];
      View from = whole, place = to;
      from.stride[0] = whole.stride[0];
      from.stride[1] = whole.stride[1] * (u.in_channels / u.groups);
      for (uint32_t d = 0; d <= u.spatial_rank; d++) from.stride[2 + d] = whole.stride[1 + d];
      place.addr += static_cast<uint64_t>(i * part_stride + tap * tap_stride);
      Space space;
      if (window(tap, &space, &from, &place)) emit(OP_VECTOR, VEC_MOV, space, place, from);
    }
  space_ = kept;
}

void Lowering::lower_conv() {
  const npu_conv& u = command_.u.conv;
  const int spatial = static_cast<int>(u.spatial_rank);
  if (u.acc_dtype != NPU_F32) throw Unsupported{std::string("convolutions in ") + npu::dtype_name(u.acc_dtype)};
  for (uint32_t i = 0; i < 2; i++)
    if (const int t = command_.operands[i].dtype; t != NPU_F32 && t != NPU_BF16 && t != NPU_F16)
      throw Unsupported{std::string("convolutions of type ") + npu::dtype_name(t)};
  const View sums = contiguous(space_, TYPE_F32);
  if (!dry_) convolve(sums, spatial);
  if (program_)
    lower_program(&sums);
  else
    store(2, {sums, NPU_F32}, true);
}

void Lowering::convolve(const View& sums, int spatial) {
  const npu_conv& u = command_.u.conv;
  const int64_t channels = u.in_channels / u.groups, filters = u.out_channels / u.groups;
  const int64_t taps = product_of(u.kernel, u.spatial_rank), places = product_of(u.out_size, u.spatial_rank);
  const int64_t rows = channels * taps;
  if (channels == 0 || filters == 0 || rows == 0 || places == 0 || u.batch == 0)
    throw Unsupported{"convolutions over nothing"};
  const bool plain = command_.operands[0].dtype == NPU_BF16 && command_.operands[1].dtype == NPU_BF16;
  const bool split = !plain && !(u.flags & NPU_MATMUL_REDUCED);

  Space input, weight, output;  // shapes
  for (Space* s : {&input, &weight, &output}) s->rank = 2 + spatial;
  input.size[0] = output.size[0] = u.batch;
  input.size[1] = u.in_channels, output.size[1] = u.out_channels;
  weight.size[0] = u.out_channels, weight.size[1] = channels;
  for (int d = 0; d < spatial; d++) {
    input.size[2 + d] = u.in_size[d], output.size[2 + d] = u.out_size[d], weight.size[2 + d] = u.kernel[d];
  }
  const bool forward = u.mode == NPU_CONV_FORWARD, to_input = u.mode == NPU_CONV_GRAD_INPUT;
  const Split left = split_operand(forward || to_input ? 1 : 0, forward || to_input ? weight : output, split);
  const Split right = split_operand(forward || to_input ? 0 : 1, forward ? input : to_input ? output : input, split);
  const int64_t parts = left.parts;

  // Positions row by row, `unit` bytes each.
  const auto positions = [&](View* view, int from, const int64_t* size, int64_t unit) {
    for (int d = spatial - 1; d >= 0; d--) view->stride[from + d] = unit, unit *= size[d];
  };
  const auto scratch = [&](int64_t bytes, uint32_t type, bool zero) {
    View view;
    view.type = type;
    view.addr = take_scratch(static_cast<uint64_t>(bytes));
    if (zero) {
      Space all;
      all.rank = 1, all.size[0] = bytes / type_width(type);
      View flat = view;
      flat.stride[0] = type_width(type);
      emit(OP_VECTOR, VEC_MOV, all, flat, immediate(0));
    }
    return view;
  };
  // One GEMM per group; batches of size n. Strides: batch, rows (lanes), columns (k).
  const auto gemm = [&](int64_t batches, int64_t m, int64_t n, int64_t k, const View& c, int64_t c_group, const View& a,
                        int64_t a_group, const View& b, int64_t b_group) {
    Space batch;
    batch.rank = 1, batch.size[0] = batches;
    for (int64_t g = 0; g < u.groups; g++) {
      View views[3] = {c, a, b};
      const int64_t hops[3] = {c_group, a_group, b_group};
      for (int i = 0; i < 3; i++) views[i].addr += static_cast<uint64_t>(g * hops[i]);
      multiply(batch, m, n, k, views[0], views[1], views[2]);
    }
  };
  const auto with = [](View view, int64_t s0, int64_t s1, int64_t s2) {
    view.stride[0] = s0, view.stride[1] = s1, view.stride[2] = s2;
    return view;
  };

  if (forward) {
    // weight: [filters of all groups][parts][rows]
    View a = scratch(u.out_channels * parts * rows * kBf16, TYPE_BF16, false);
    a = with(a, parts * rows * kBf16, taps * kBf16, 0);
    positions(&a, 2, u.kernel, kBf16);
    pack(1, weight, a, rows * kBf16, left);
    // matrix: [groups][batch][parts][rows][places]
    const int64_t one = parts * rows * places * kBf16;
    View b = scratch(u.groups * u.batch * one, TYPE_BF16, true);
    b = with(b, one, u.batch * one, taps * places * kBf16);
    positions(&b, 3, u.out_size, kBf16);
    unfold(0, b, places * kBf16, rows * places * kBf16, right);
    gemm(u.batch, filters, places, parts * rows, with(sums, u.out_channels * places * kF32, places * kF32, kF32),
         filters * places * kF32, with(a, 0, parts * rows * kBf16, kBf16), filters * parts * rows * kBf16,
         with(b, one, kBf16, places * kBf16), u.batch * one);
  } else if (u.mode == NPU_CONV_GRAD_WEIGHT) {
    // gradient: [filters of all groups][parts][batch][places]; matrix: [groups][rows][parts][batch][places]
    const int64_t run = u.batch * places;
    View a = scratch(u.out_channels * parts * run * kBf16, TYPE_BF16, false);
    a = with(a, places * kBf16, parts * run * kBf16, 0);
    positions(&a, 2, u.out_size, kBf16);
    pack(0, output, a, run * kBf16, left);
    View b = scratch(u.groups * rows * parts * run * kBf16, TYPE_BF16, true);
    b = with(b, places * kBf16, rows * parts * run * kBf16, taps * parts * run * kBf16);
    positions(&b, 3, u.out_size, kBf16);
    unfold(1, b, parts * run * kBf16, run * kBf16, right);
    gemm(1, filters, rows, parts * run, with(sums, 0, rows * kF32, kF32), filters * rows * kF32,
         with(a, 0, parts * run * kBf16, kBf16), filters * parts * run * kBf16, with(b, 0, parts * run * kBf16, kBf16),
         rows * parts * run * kBf16);
  } else {
    // weight: [groups][rows][parts][filters]; gradient: [batch][groups][parts][filters][places]
    const int64_t run = parts * filters;
    View a = scratch(u.groups * rows * run * kBf16, TYPE_BF16, false);
    for (int64_t g = 0; g < u.groups; g++) {
      Split part = left;
      Space shape = weight;
      shape.size[0] = filters;
      for (View& source : part.source) source.addr += static_cast<uint64_t>(g * filters * source.stride[0]);
      View to = with(a, kBf16, taps * run * kBf16, 0);
      to.addr += static_cast<uint64_t>(g * rows * run * kBf16);
      positions(&to, 2, u.kernel, run * kBf16);
      pack(1, shape, to, filters * kBf16, part);
    }
    const int64_t one = run * places * kBf16;
    View b = scratch(u.batch * u.groups * one, TYPE_BF16, false);
    for (int64_t g = 0; g < u.groups; g++) {
      Split part = right;
      Space shape = output;
      shape.size[1] = filters;
      for (View& source : part.source) source.addr += static_cast<uint64_t>(g * filters * source.stride[1]);
      View to = with(b, u.groups * one, places * kBf16, 0);
      to.addr += static_cast<uint64_t>(g * one);
      positions(&to, 2, u.out_size, kBf16);
      pack(0, shape, to, filters * places * kBf16, part);
    }
    View matrix = scratch(u.batch * u.groups * rows * places * kF32, TYPE_F32, false);
    gemm(u.batch, rows, places, run, with(matrix, u.groups * rows * places * kF32, places * kF32, kF32),
         rows * places * kF32, with(a, 0, run * kBf16, kBf16), rows * run * kBf16,
         with(b, u.groups * one, kBf16, places * kBf16), one);
    vector(VEC_MOV, sums, immediate(0));
    for (int64_t tap = 0; tap < taps; tap++) {
      const int64_t area = product_of(u.in_size, u.spatial_rank) * kF32;
      View to = with(sums, u.in_channels * area, channels * area, area);
      positions(&to, 3, u.in_size, kF32);
      View from = with(matrix, u.groups * rows * places * kF32, rows * places * kF32, taps * places * kF32);
      from.addr += static_cast<uint64_t>(tap * places * kF32);
      positions(&from, 3, u.out_size, kF32);
      Space space;
      if (window(tap, &space, &to, &from)) emit(OP_VECTOR, VEC_ADD, space, to, to, from);
    }
  }
}

}  // namespace rtl
