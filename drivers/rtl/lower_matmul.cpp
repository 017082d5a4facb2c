// MATMUL: bf16 and int8 as they are; f32 and f16 as sums of bf16 parts (docs/design.md, "The NPU in RTL").
#include "drivers/rtl/lower.h"

using namespace npu_hw;

namespace rtl {
namespace {

constexpr int kParts = 6;  // products of parts that make one f32 product
// Which part of A and of B each of them multiplies, smallest products first.
constexpr int kPartOf[2][kParts] = {{2, 0, 1, 1, 0, 0}, {0, 2, 1, 0, 1, 0}};

}  // namespace

int Lowering::part_of(uint32_t index, int i, const Split& split) {
  return split.parts == 1 ? 0 : kPartOf[index][i];
}

Lowering::Split Lowering::split_operand(uint32_t index, const Space& shape, bool split) {
  Split made;
  made.source[0] = operand(index, shape, command_.operands[index].stride);
  if (!split) return made;
  made.parts = kParts;
  const Space kept = space_;
  space_ = shape;
  for (int part = 1; part < 3; part++) {
    made.source[part] = contiguous(shape, TYPE_F32);
    vector(VEC_RESIDUE, made.source[part], made.source[part - 1]);
  }
  space_ = kept;
  return made;
}

// An input as the GEMM wants it: [batches..., lanes, k], neighbours along k or along the lanes. `space` and the strides
// of operand `index` are in this order already. An f32 input becomes kParts * k steps of bf16.
View Lowering::matrix(uint32_t index, const Space& space, bool split, int* parts) {
  const npu_operand& o = command_.operands[index];
  const int last = space.rank - 1;
  View view = operand(index, space, o.stride);
  const int64_t width = type_width(view.type);
  const Space kept = space_;
  space_ = space;
  if (view.type == TYPE_I8 || (view.type == TYPE_BF16 && !split)) {
    *parts = 1;
    if (space.size[last] == 1) view.stride[last] = width;
    if (view.stride[last] != width && space.size[last - 1] == 1) view.stride[last - 1] = width;
    if (view.stride[last] != width && view.stride[last - 1] != width) {
      const View packed = contiguous(space, view.type);
      vector(VEC_MOV, packed, view);
      view = packed;
    }
  } else if (!split) {
    *parts = 1;
    const View packed = contiguous(space, TYPE_BF16);
    vector(VEC_MOV, packed, view);
    view = packed;
  } else {
    *parts = kParts;
    Space wide = space;
    wide.size[last] *= kParts;
    const View packed = contiguous(wide, TYPE_BF16);
    const Split sources = split_operand(index, space, true);
    for (int i = 0; i < kParts; i++) {
      View slice = packed;
      slice.addr += static_cast<uint64_t>(i * space.size[last]) * type_width(TYPE_BF16);
      vector(VEC_MOV, slice, sources.source[part_of(index, i, sources)]);
    }
    view = packed;
  }
  space_ = kept;
  return view;
}

void Lowering::multiply(const Space& batches, int64_t m, int64_t n, int64_t k, const View& result, const View& a,
                        const View& b) {
  const int rank = batches.rank;
  for (int64_t size : {m, n, k})
    if (size > INT32_MAX) throw Unsupported{"a matrix of 2^31 rows, columns or more"};
  Packet packet;
  packet.opcode = OP_GEMM;
  const View* views[3] = {&result, &a, &b};
  // The places of rows, columns and k in an operand's strides: m and n of the result, lanes and k of an input.
  const int places[3][2] = {{1, 2}, {1, 3}, {2, 3}};
  for (int i = 0; i < 3; i++) {
    packet.set_type(i, views[i]->type);
    packet.addr[i] = views[i]->addr;
    for (int j = 0; j < 2; j++) {
      const int64_t stride = views[i]->stride[rank + j];
      if (stride != static_cast<int32_t>(stride)) throw Unsupported{"a stride of 2 GiB or more"};
      packet.stride[i][places[i][j]] = static_cast<int32_t>(stride);
    }
  }
  packet.size[1] = static_cast<uint32_t>(m);
  packet.size[2] = static_cast<uint32_t>(n);
  packet.size[3] = static_cast<uint32_t>(k);
  // The last batch dimension is the packet's own.
  const int inner = rank - 1;
  if (rank > 0) {
    packet.size[0] = static_cast<uint32_t>(batches.size[inner]);
    for (int i = 0; i < 3; i++) {
      const int64_t stride = views[i]->stride[inner];
      if (stride != static_cast<int32_t>(stride)) throw Unsupported{"a stride of 2 GiB or more"};
      packet.stride[i][0] = static_cast<int32_t>(stride);
    }
  }
  int64_t outer = 1;
  for (int d = 0; d < inner; d++) outer *= batches.size[d];
  for (int64_t index = 0; index < outer; index++) {
    Packet one = packet;
    int64_t rest = index;
    for (int d = inner - 1; d >= 0; d--) {
      for (int i = 0; i < 3; i++) one.addr[i] += static_cast<uint64_t>(rest % batches.size[d] * views[i]->stride[d]);
      rest /= batches.size[d];
    }
    packets.push_back(one);
  }
}

void Lowering::lower_matmul() {
  const npu_matmul& u = command_.u.matmul;
  const int rank = space_.rank;
  const int64_t m = space_.size[rank - 2], n = space_.size[rank - 1], k = dry_ ? 1 : u.k;
  const bool integer = u.acc_dtype == NPU_I32;
  if (!integer && u.acc_dtype != NPU_F32)
    throw Unsupported{std::string("products accumulated in ") + npu::dtype_name(u.acc_dtype)};
  for (uint32_t i = 0; i < 2; i++) {
    const int dtype = command_.operands[i].dtype;
    if (integer ? dtype != NPU_I8 : dtype != NPU_F32 && dtype != NPU_BF16 && dtype != NPU_F16)
      throw Unsupported{std::string("matrices of type ") + npu::dtype_name(dtype)};
  }
  Space batches = space_;
  batches.rank = rank - 2;
  // Results go to memory as they are if nothing is left to be done.
  const int result_type = program_ ? -1 : hardware_type(command_.operands[2].dtype);
  const bool direct = integer ? result_type == TYPE_I32
                              : result_type == TYPE_F32 || result_type == TYPE_BF16 || result_type == TYPE_F16;
  const View result = direct ? operand(2) : contiguous(space_, integer ? TYPE_I32 : TYPE_F32);
  if (k == 0) {
    vector(VEC_MOV, result, immediate(0));
  } else {
    Space left = space_, right = space_;
    left.size[rank - 1] = k;
    right.size[rank - 2] = n;
    right.size[rank - 1] = k;
    std::swap(operands_[1].stride[rank - 2], operands_[1].stride[rank - 1]);  // [..., k, n] to [..., n, k]
    const bool plain = command_.operands[0].dtype == NPU_BF16 && command_.operands[1].dtype == NPU_BF16;
    const bool split = !plain && !(u.flags & NPU_MATMUL_REDUCED);
    int parts = 1;
    const View a = matrix(0, left, split, &parts), b = matrix(1, right, split, &parts);
    multiply(batches, m, n, k * parts, result, a, b);
  }
  if (program_)
    lower_program(&result);
  else if (!direct)
    store(2, {result, integer ? NPU_I32 : NPU_F32}, true);
}

}  // namespace rtl
