// Epilogues that a GEMM packet has itself: a bias per row or column, and not below 0. All others are programs over the
// sums.
#include "drivers/rtl/lower.h"
#include "support/value.h"

using namespace npu_hw;

namespace rtl {
namespace {

// What a value of the epilogue is.
enum class Is { kOther, kSum, kLoad, kZero };

bool is_float(uint32_t type) {
  return type == TYPE_F32 || type == TYPE_BF16 || type == TYPE_F16;
}

}  // namespace

// The epilogue as flags of a packet, with the operands that hold bias (-1: none) and result; false if it is not of this
// kind. Order matters: what is added is added once, then compared with 0 as max(x, 0) does.
bool Lowering::simple_epilogue(Epilogue* out) const {
  if (!program_) {
    const int type = hardware_type(command_.operands[2].dtype);
    return type >= 0 && is_float(static_cast<uint32_t>(type));
  }
  std::vector<Is> is(program_->instrs.size(), Is::kOther);
  bool stored = false;
  for (size_t i = 0; i < is.size(); i++) {
    const npu_instr& in = program_->instrs[i];
    if (in.op == NPU_OP_SEGMENT) continue;
    if (in.mask != NPU_NO_VALUE || stored) return false;
    const Is a = in.a == NPU_NO_VALUE ? Is::kOther : is[in.a], b = in.b == NPU_NO_VALUE ? Is::kOther : is[in.b];
    if (in.op == NPU_OP_STORE) {
      const int type = hardware_type(command_.operands[in.imm].dtype);
      if (a != Is::kSum || in.a + 1u != i || type < 0 || !is_float(static_cast<uint32_t>(type))) return false;
      out->result = in.imm;
      stored = true;
    } else if (in.dtype != NPU_F32) {
      return false;
    } else if (in.op == NPU_OP_ACC) {
      is[i] = Is::kSum;
    } else if (in.op == NPU_OP_LOAD && out->bias < 0) {
      const npu_operand& o = command_.operands[in.imm];
      const int type = hardware_type(o.dtype);
      if ((o.flags & NPU_OPERAND_IMMEDIATE) || type < 0 || !is_float(static_cast<uint32_t>(type))) return false;
      out->bias = static_cast<int>(in.imm);
      is[i] = Is::kLoad;
    } else if (in.op == NPU_OP_CONST && program_->consts[in.imm] == 0) {
      is[i] = Is::kZero;
    } else if (in.op == NPU_OP_ADD && !(out->flags & (FLAG_BIAS | FLAG_RELU)) &&
               ((a == Is::kSum && b == Is::kLoad) || (a == Is::kLoad && b == Is::kSum))) {
      out->flags |= FLAG_BIAS;
      is[i] = Is::kSum;
    } else if (in.op == NPU_OP_MAX && a == Is::kSum && b == Is::kZero) {
      out->flags |= FLAG_RELU;
      is[i] = Is::kSum;
    } else {
      return false;
    }
  }
  return stored && (out->bias < 0) == !(out->flags & FLAG_BIAS);
}

// The bias over the result's space, if it has a value for each row or for each column. `n` is the first of the
// dimensions that are columns, those behind it included; those before `m` are batches.
bool Lowering::bias_view(const Epilogue& epilogue, int m, int n, View* out) {
  if (epilogue.bias < 0) return true;
  *out = operand(static_cast<uint32_t>(epilogue.bias));
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

}  // namespace rtl
