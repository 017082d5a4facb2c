// What a GEMM packet does of an epilogue itself: a bias per row or column, and not below 0. The rest is a program over
// what the packet wrote.
#include <utility>

#include "drivers/rtl/lower/lower.h"
#include "support/reference/value.h"

using namespace npu_hw;

namespace rtl {
namespace {

bool is_float(int dtype) {
  const int type = hardware_type(dtype);
  return type == TYPE_F32 || type == TYPE_BF16 || type == TYPE_F16;
}

}  // namespace

// Follows the sums from instruction to instruction, as long as each value has one reader and the packet can compute
// what that reads. Order matters: what is added is added once, then compared with 0 as max(x, 0) does. A bias has a
// value for each row or column of dimensions `m` and `n` of the space; m < 0: none is possible.
Lowering::Epilogue Lowering::packet_epilogue(int acc_dtype, int m, int n) {
  Epilogue out;
  if (!program_) {
    const int dtype = command_.operands[2].dtype;
    out.whole = acc_dtype == NPU_F32 ? is_float(dtype) : dtype == acc_dtype;
    if (out.whole) out.result = 2;
    return out;
  }
  const std::vector<npu_instr>& instrs = program_->instrs;
  std::vector<std::vector<uint16_t>> readers(instrs.size());
  size_t left = 0, sums = 0;  // instructions that the packet does not know of, those that name the sums
  uint16_t value = 0;
  for (size_t i = 0; i < instrs.size(); i++) {
    for (uint16_t id : {instrs[i].a, instrs[i].b, instrs[i].c, instrs[i].mask})
      if (id != NPU_NO_VALUE) readers[id].push_back(static_cast<uint16_t>(i));
    left += instrs[i].op != NPU_OP_SEGMENT;
    if (instrs[i].op == NPU_OP_ACC) value = static_cast<uint16_t>(i), sums++;
  }
  if (acc_dtype != NPU_F32 || sums != 1) return out;
  out.done.push_back(value);
  left--;
  while (readers[value].size() == 1) {
    const uint16_t next = readers[value][0];
    const npu_instr& in = instrs[next];
    if (in.mask != NPU_NO_VALUE || in.dtype != NPU_F32 || in.b == NPU_NO_VALUE) break;
    const uint16_t id = in.a == value ? in.b : in.a;
    const npu_instr& other = instrs[id];
    if (in.op == NPU_OP_ADD && out.flags == 0 && m >= 0 && other.op == NPU_OP_LOAD && bias_view(other, m, n, &out.bias))
      out.flags |= FLAG_BIAS;
    else if (in.op == NPU_OP_MAX && !(out.flags & FLAG_RELU) && in.a == value && other.op == NPU_OP_CONST &&
             program_->consts[other.imm] == 0)
      out.flags |= FLAG_RELU;
    else
      break;
    left -= readers[id].size() == 1 ? 2 : 1;  // with its other argument, if nobody else reads that
    value = next;
    out.done.push_back(value);
  }
  for (uint16_t id : readers[value]) {
    const npu_instr& in = instrs[id];
    if (in.op != NPU_OP_STORE || in.mask != NPU_NO_VALUE || in.a != value) continue;
    const int dtype = command_.operands[in.imm].dtype;
    out.whole = left == 1 && is_float(dtype);
    if (!out.whole && (dtype != NPU_F32 || is_touched(in.imm))) continue;
    out.store = id;
    out.result = static_cast<int>(in.imm);
    break;
  }
  return out;
}

// A bias over the result's space. `n` is the first of the dimensions that are columns, those behind it included; those
// before `m` are batches.
bool Lowering::bias_view(const npu_instr& load, int m, int n, View* out) {
  const npu_operand& o = command_.operands[load.imm];
  if (load.mask != NPU_NO_VALUE || load.dtype != NPU_F32 || (o.flags & NPU_OPERAND_IMMEDIATE) || !is_float(o.dtype))
    return false;
  *out = operand(load.imm);
  const int64_t width = type_width(out->type);
  int64_t columns = 1;
  for (int d = n; d < space_.rank; d++) {
    if (d > n && out->stride[d] != 0) return false;
    columns *= space_.size[d];
  }
  if (out->stride[m] == 0 && out->stride[n] == 0) {  // one value for all: right where rows or columns are one
    if (columns != 1 && space_.size[m] != 1) return false;
    out->stride[columns == 1 ? n : m] = width;
  }
  if (out->stride[n] != 0 && n + 1 < space_.rank && columns != space_.size[n]) return false;
  return (out->stride[m] == 0 && out->stride[n] == width) || (out->stride[m] == width && out->stride[n] == 0);
}

// Whether the program reads or writes memory of this operand, which it stores to once, in another way as well: then it
// must be written behind all else.
bool Lowering::is_touched(uint32_t index) const {
  const auto range = [&](uint32_t operand) {
    const npu_operand& o = command_.operands[operand];
    const int64_t width = npu::dtype_size(o.dtype);
    __int128 low = o.addr, high = low + width;
    for (int d = 0; d < space_.rank; d++) {
      const __int128 reach = static_cast<__int128>(space_.size[d] - 1) * o.stride[d] * width;
      (reach < 0 ? low : high) += reach;
    }
    return std::pair(low, high);
  };
  const auto [low, high] = range(index);
  int stores = 0;
  for (const npu_instr& in : program_->instrs) {
    if (in.op == NPU_OP_LOAD_AT || in.op == NPU_OP_STORE_AT) return true;
    if (in.op == NPU_OP_STORE && in.imm == index) {
      stores++;
    } else if ((in.op == NPU_OP_LOAD || in.op == NPU_OP_STORE) && !dry_) {  // else there are no addresses
      const auto [first, end] = range(in.imm);
      const bool memory = !(command_.operands[in.imm].flags & NPU_OPERAND_IMMEDIATE);
      if (memory && first < high && low < end) return true;
    }
  }
  return stores > 1;
}

}  // namespace rtl
