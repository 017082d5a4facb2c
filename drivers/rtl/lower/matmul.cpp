// MATMUL: inputs of bf16, f32 and int8 as they are, in the order of docs/isa.md; others as f32, which holds them
// exactly.
#include "drivers/rtl/lower/lower.h"

using namespace npu_hw;

namespace rtl {

// The type that the engine multiplies in.
uint32_t Lowering::product_type(uint32_t flags) const {
  const int a = command_.operands[0].dtype, b = command_.operands[1].dtype;
  if (a == NPU_I8) return TYPE_I8;
  if (a == NPU_BF16 && b == NPU_BF16) return TYPE_BF16;
  const bool may_round = (flags & NPU_MATMUL_REDUCED) && a != NPU_F16 && b != NPU_F16;
  return may_round ? TYPE_BF16 : TYPE_F32;
}

// An input as the GEMM wants it: [batches..., lanes, k] of `type`, neighbours along k or along the lanes. `space` and
// the strides of operand `index` are in this order already.
View Lowering::matrix(uint32_t index, const Space& space, uint32_t type) {
  const int last = space.rank - 1;
  View view = operand(index, space, command_.operands[index].stride);
  const int64_t width = type_width(type);
  if (view.type == type) {
    if (space.size[last] == 1) view.stride[last] = width;
    if (view.stride[last] != width && space.size[last - 1] == 1) view.stride[last - 1] = width;
    if (view.stride[last] == width || view.stride[last - 1] == width) return view;
  }
  const View packed = contiguous(space, type);
  emit(OP_VECTOR, VEC_MOV, space, packed, view);
  return packed;
}

void Lowering::multiply(const Space& batches, int64_t m, int64_t n, int64_t k, const View& result, const View& a,
                        const View& b, uint32_t flags, const View& bias) {
  const int rank = batches.rank;
  for (int64_t size : {m, n, k})
    if (size > INT32_MAX) throw Unsupported{"a matrix of 2^31 rows, columns or more"};
  Packet packet;
  packet.opcode = OP_GEMM;
  packet.flags = static_cast<uint16_t>(flags);
  const View* views[4] = {&result, &a, &b, &bias};
  // The places of rows, columns and k in an operand's strides: m and n of the result, lanes and k of an input.
  const int places[4][2] = {{1, 2}, {1, 3}, {2, 3}, {1, 2}};
  const int operands = flags & FLAG_BIAS ? 4 : 3;
  for (int i = 0; i < operands; i++) {
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
    for (int i = 0; i < operands; i++) {
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
      for (int i = 0; i < operands; i++)
        one.addr[i] += static_cast<uint64_t>(rest % batches.size[d] * views[i]->stride[d]);
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
  // Results go to memory as they are if nothing is left to be done, or if the rest can read them there.
  Epilogue epilogue;
  if (k > 0 || !program_) epilogue = packet_epilogue(u.acc_dtype, rank - 2, rank - 1);
  const View result = epilogue.result >= 0 ? operand(static_cast<uint32_t>(epilogue.result))
                                           : contiguous(space_, integer ? TYPE_I32 : TYPE_F32);
  if (k == 0) {
    vector(VEC_MOV, result, immediate(0));
  } else {
    Space left = space_, right = space_;
    left.size[rank - 1] = k;
    right.size[rank - 2] = n;
    right.size[rank - 1] = k;
    std::swap(operands_[1].stride[rank - 2], operands_[1].stride[rank - 1]);  // [..., k, n] to [..., n, k]
    const uint32_t type = product_type(u.flags);
    const View a = matrix(0, left, type), b = matrix(1, right, type);
    multiply(batches, m, n, k, result, a, b, epilogue.flags, epilogue.bias);
  }
  if (epilogue.whole) return;
  if (program_)
    lower_program(&result, &epilogue);
  else
    store(2, {result, integer ? NPU_I32 : NPU_F32}, true);
}

}  // namespace rtl
