#include "support/program/rewrite.h"

#include <bit>

namespace npu {
namespace {

npu_instr blank(int op, int dtype) {
  npu_instr in{};
  in.op = static_cast<uint8_t>(op);
  in.dtype = static_cast<uint8_t>(dtype);
  in.a = in.b = in.c = in.mask = NPU_NO_VALUE;
  return in;
}

}  // namespace

Rewrite::Rewrite(const Program& from) : from_(from), made_(from) {
  made_.instrs.clear();
}

Program Rewrite::run(const Visit& visit) {
  std::vector<uint16_t> now(from_.instrs.size());
  const auto renamed = [&](uint16_t id) { return id == NPU_NO_VALUE ? id : now[id]; };
  for (uint16_t i = 0; i < from_.instrs.size(); ++i) {
    npu_instr in = from_.instrs[i];
    in.a = renamed(in.a), in.b = renamed(in.b), in.c = renamed(in.c), in.mask = renamed(in.mask);
    visited_ = i;
    now[i] = visit(*this, in);
  }
  return made_;
}

uint16_t Rewrite::emit(const npu_instr& in) {
  made_.instrs.push_back(in);
  return static_cast<uint16_t>(made_.instrs.size() - 1);
}

uint16_t Rewrite::op(int op, int dtype, uint16_t a, uint16_t b, uint16_t c, uint32_t imm) {
  npu_instr in = blank(op, dtype);
  in.a = a, in.b = b, in.c = c, in.imm = imm;
  return emit(in);
}

uint16_t Rewrite::cast(uint16_t a, int to, int via) {
  return op(NPU_OP_CAST, to, a, NPU_NO_VALUE, NPU_NO_VALUE, static_cast<uint32_t>(via));
}

uint16_t Rewrite::constant(int dtype, double value) {
  const bool real = dtype == NPU_F32 || dtype == NPU_F64;
  made_.consts.push_back(real ? std::bit_cast<uint64_t>(value) : static_cast<uint64_t>(static_cast<int64_t>(value)));
  npu_instr in = blank(NPU_OP_CONST, dtype);
  in.imm = static_cast<uint32_t>(made_.consts.size() - 1);
  return emit(in);
}

uint16_t Rewrite::load(uint32_t operand, int dtype) {
  npu_instr in = blank(NPU_OP_LOAD, dtype);
  in.imm = operand;
  made_.operand_count = std::max(made_.operand_count, operand + 1);
  return emit(in);
}

void Rewrite::store(uint32_t operand, uint16_t value) {
  npu_instr in = blank(NPU_OP_STORE, NPU_DTYPE_NONE);
  in.imm = operand;
  in.a = value;
  made_.operand_count = std::max(made_.operand_count, operand + 1);
  emit(in);
}

Program program_of(const npu_command& command) {
  Program none;
  none.name = "store";
  none.instrs = {blank(NPU_OP_SEGMENT, NPU_DTYPE_NONE)};
  Rewrite out(none);
  return out.run([&](Rewrite& made, const npu_instr& in) {
    const uint16_t segment = made.emit(in);
    if (command.kind == NPU_COPY) {
      made.store(0, made.load(1, compute_dtype(command.operands[1].dtype)));
    } else {
      const int acc = command.kind == NPU_MATMUL ? command.u.matmul.acc_dtype : command.u.conv.acc_dtype;
      made.store(2, made.emit(blank(NPU_OP_ACC, acc)));
    }
    return segment;
  });
}

}  // namespace npu
