// CONV as strided copies and GEMM. One operand is laid out as a matrix with a row for every channel and kernel position
// and a column for every position of the result, so that
//   output[oc, position] = sum over rows of weight[oc, row] * matrix[row, position],
// and likewise both gradients; rows are in the order of docs/isa.md. Where kernel and position meet nothing the matrix
// has a gap, an element with all bits set, which takes no part in a GEMM with FLAG_GAPS.
#include <algorithm>

#include "drivers/rtl/lower/lower.h"

using namespace npu_hw;

namespace rtl {
namespace {

constexpr uint32_t kMinusZero = 0x80000000;  // adding it changes no number, and makes every NaN the one that is no gap

int64_t product_of(const int64_t* values, uint32_t n) {
  int64_t product = 1;
  for (uint32_t d = 0; d < n; d++) product *= values[d];
  return product;
}

// Whether dimensions [first, rank) are one in memory, each step of it one element.
bool together(const View& view, const Space& space, int first) {
  int64_t step = type_width(view.type);
  for (int d = space.rank - 1; d >= first; d--) {
    if (space.size[d] != 1 && view.stride[d] != step) return false;
    step *= space.size[d];
  }
  return true;
}

// Positions row by row, `unit` bytes each, as dimensions `from` and up of a view.
void set_positions(View* view, int from, uint32_t spatial, const int64_t* size, int64_t unit) {
  for (int d = static_cast<int>(spatial) - 1; d >= 0; d--) view->stride[from + d] = unit, unit *= size[d];
}

View with(View view, int64_t s0, int64_t s1, int64_t s2) {
  view.stride[0] = s0, view.stride[1] = s1, view.stride[2] = s2;
  return view;
}

}  // namespace

// Every output position that kernel position `tap` joins with a position inside the input, as a space [batch, groups,
// channels of a group, positions...]; false: none. `input` and `output` are moved to the first of them; their strides
// at dimension 0 to 2 are given, those of the positions are of one step.
bool Lowering::window(int64_t tap, int64_t channels, Space* space, View* input, View* output) {
  const npu_conv& u = command_.u.conv;
  space->rank = 3 + static_cast<int>(u.spatial_rank);
  space->size[0] = u.batch;
  space->size[1] = u.groups;
  space->size[2] = channels;
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
    output->addr += static_cast<uint64_t>(first * output->stride[3 + d]);
    input->stride[3 + d] *= u.stride[d];
  }
  return true;
}

// Whether a matrix of so many positions has elements that no window fills.
bool Lowering::has_gaps(int64_t channels, int64_t places) {
  const npu_conv& u = command_.u.conv;
  const int64_t taps = product_of(u.kernel, u.spatial_rank);
  int64_t filled = 0;
  for (int64_t tap = 0; tap < taps; tap++) {
    Space space;
    View input, output;
    if (window(tap, channels, &space, &input, &output)) filled += space.points();
  }
  return filled != u.batch * u.groups * channels * taps * places;
}

// Operand `index` as a matrix: `to` has the strides of batch, group, channel of the group and positions.
void Lowering::unfold(uint32_t index, int64_t channels, const View& to, int64_t tap_stride) {
  const npu_conv& u = command_.u.conv;
  const bool backwards = u.mode == NPU_CONV_GRAD_INPUT;  // from outputs to inputs
  Space shape;
  shape.rank = 2 + static_cast<int>(u.spatial_rank);
  shape.size[0] = u.batch;
  shape.size[1] = channels * u.groups;
  std::copy_n(backwards ? u.out_size : u.in_size, u.spatial_rank, shape.size + 2);
  const View whole = operand(index, shape, command_.operands[index].stride);
  for (int64_t tap = 0; tap < product_of(u.kernel, u.spatial_rank); tap++) {
    View from = with(whole, whole.stride[0], whole.stride[1] * channels, whole.stride[1]), place = to;
    for (uint32_t d = 0; d < u.spatial_rank; d++) from.stride[3 + d] = whole.stride[2 + d];
    place.addr += static_cast<uint64_t>(tap * tap_stride);
    Space space;
    if (backwards ? window(tap, channels, &space, &place, &from) : window(tap, channels, &space, &from, &place))
      emit(OP_VECTOR, VEC_ADD, space, place, from, immediate(kMinusZero));
  }
}

View Lowering::image(uint64_t bytes, uint32_t type, bool gaps) {
  View view;
  view.type = type;
  view.addr = take_scratch(bytes);
  if (gaps) {
    Space words;
    words.rank = 1, words.size[0] = static_cast<int64_t>((bytes + 3) / 4);
    View flat = view;
    flat.type = TYPE_I32, flat.stride[0] = 4;
    emit(OP_VECTOR, VEC_MOV, words, flat, immediate(~0u));
  }
  return view;
}

void Lowering::lower_conv() {
  const npu_conv& u = command_.u.conv;
  const int spatial = static_cast<int>(u.spatial_rank);
  if (u.acc_dtype != NPU_F32) throw Unsupported{std::string("convolutions in ") + npu::dtype_name(u.acc_dtype)};
  for (uint32_t i = 0; i < 2; i++)
    if (const int t = command_.operands[i].dtype; t != NPU_F32 && t != NPU_BF16 && t != NPU_F16)
      throw Unsupported{std::string("convolutions of type ") + npu::dtype_name(t)};
  // Results go to memory as they are if nothing is left to be done, or if the rest can read them there, and their
  // positions are neighbours.
  const bool to_weight = u.mode == NPU_CONV_GRAD_WEIGHT;
  Epilogue epilogue = packet_epilogue(NPU_F32, to_weight ? -1 : 1, 2);
  if (epilogue.result >= 0 && !together(operand(static_cast<uint32_t>(epilogue.result)), space_, to_weight ? 1 : 2)) {
    epilogue.store = epilogue.result = -1;
    epilogue.whole = false;
  }
  const View result =
      epilogue.result >= 0 ? operand(static_cast<uint32_t>(epilogue.result)) : contiguous(space_, TYPE_F32);
  if (!dry_) convolve(result, spatial, epilogue.flags, epilogue.bias);
  if (epilogue.whole) return;
  if (program_)
    lower_program(&result, &epilogue);
  else
    store(2, {result, NPU_F32}, true);
}

void Lowering::convolve(const View& result, int spatial, uint32_t flags, const View& bias) {
  const npu_conv& u = command_.u.conv;
  const uint32_t dims = u.spatial_rank;
  const int64_t channels = u.in_channels / u.groups, filters = u.out_channels / u.groups;
  const int64_t taps = product_of(u.kernel, dims), outputs = product_of(u.out_size, dims);
  if (channels == 0 || filters == 0 || taps == 0 || outputs == 0 || u.batch == 0)
    throw Unsupported{"convolutions over nothing"};
  const uint32_t type = product_type(u.flags);
  const int64_t width = type_width(type);
  const bool to_input = u.mode == NPU_CONV_GRAD_INPUT;
  const auto bytes = [&](int64_t elements) { return static_cast<uint64_t>(elements * width); };
  // One GEMM per group, from views of group 0: strides are batch, rows (lanes), columns (k).
  const auto gemm = [&](int64_t batches, int64_t m, int64_t n, int64_t k, const View& c, int64_t c_group, const View& a,
                        int64_t a_group, const View& b, int64_t b_group, bool gaps) {
    Space batch;
    batch.rank = 1, batch.size[0] = batches;
    for (int64_t g = 0; g < u.groups; g++) {
      View views[4] = {c, a, b, bias};
      const int64_t hops[4] = {c_group, a_group, b_group, m * bias.stride[1]};
      for (int i = 0; i < 4; i++) views[i].addr += static_cast<uint64_t>(g * hops[i]);
      multiply(batch, m, n, k, views[0], views[1], views[2], flags | (gaps ? FLAG_GAPS : 0), views[3]);
    }
  };
  const int64_t step = type_width(result.type);  // between positions of the result

  if (u.mode == NPU_CONV_GRAD_WEIGHT) {
    // gradient: [filters of all groups][batch][outputs]; matrix: [groups][rows][batch][outputs]
    const int64_t rows = channels * taps, run = u.batch * outputs;
    Space output;
    output.rank = 2 + spatial;
    output.size[0] = u.batch, output.size[1] = u.out_channels;
    std::copy_n(u.out_size, dims, output.size + 2);
    View a = with(image(bytes(u.out_channels * run), type, false), outputs * width, run * width, 0);
    set_positions(&a, 2, dims, u.out_size, width);
    emit(OP_VECTOR, VEC_MOV, output, a, operand(0, output, command_.operands[0].stride));
    const bool gaps = has_gaps(channels, outputs);
    View b =
        with(image(bytes(u.groups * rows * run), type, gaps), outputs * width, rows * run * width, taps * run * width);
    set_positions(&b, 3, dims, u.out_size, width);
    unfold(1, channels, b, run * width);
    gemm(1, filters, rows, run, with(result, 0, result.stride[0], step), filters * result.stride[0],
         with(a, 0, run * width, width), filters * run * width, with(b, 0, run * width, width), rows * run * width,
         gaps);
    return;
  }
  // weight: [groups][lanes][inner][taps]; matrix: [groups][batch][inner][taps][places]
  const int64_t lanes = to_input ? channels : filters, inner = to_input ? filters : channels, rows = inner * taps;
  const int64_t places = to_input ? product_of(u.in_size, dims) : outputs;
  Space weight;
  weight.rank = 3 + spatial;
  weight.size[0] = u.groups, weight.size[1] = filters, weight.size[2] = channels;
  std::copy_n(u.kernel, dims, weight.size + 3);
  int64_t stride[NPU_MAX_RANK] = {filters * command_.operands[1].stride[0]};
  std::copy_n(command_.operands[1].stride, 2 + spatial, stride + 1);
  View a = with(image(bytes(u.groups * lanes * rows), type, false), lanes * rows * width,
                (to_input ? taps : rows) * width, (to_input ? rows : taps) * width);
  set_positions(&a, 3, dims, u.kernel, width);
  emit(OP_VECTOR, VEC_MOV, weight, a, operand(1, weight, stride));
  const int64_t one = rows * places * width;
  const bool gaps = has_gaps(inner, places);
  View b =
      with(image(bytes(u.groups * u.batch * rows * places), type, gaps), one, u.batch * one, taps * places * width);
  set_positions(&b, 3, dims, to_input ? u.in_size : u.out_size, width);
  unfold(0, inner, b, places * width);
  gemm(u.batch, lanes, places, rows, with(result, result.stride[0], result.stride[1], step), lanes * result.stride[1],
       with(a, 0, rows * width, width), lanes * rows * width, with(b, one, width, places * width), u.batch * one, gaps);
}

}  // namespace rtl
