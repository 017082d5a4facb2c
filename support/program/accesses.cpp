#include "support/program/accesses.h"

namespace npu {

std::vector<Access> accesses_of(const npu_command& command, const npu_program_desc* program) {
  std::vector<Access> out;
  const auto whole = [&](uint32_t operand, bool write) {
    if (operand < command.operand_count) out.push_back({.operand = operand, .write = write, .rank = command.rank});
  };
  switch (command.kind) {
    case NPU_COPY:
      whole(1, false);
      whole(0, true);
      break;
    case NPU_SORT:
      for (uint32_t operand = 0; operand < 4; ++operand) whole(operand, operand >= 2);
      break;
    case NPU_MATMUL:
    case NPU_CONV:
      whole(0, false);
      whole(1, false);
      if (!program) whole(2, true);
      break;
    default:
      break;
  }
  int rank = command.rank;
  for (uint32_t i = 0; program && i < program->instr_count; ++i) {
    const npu_instr& in = program->instrs[i];
    if (in.op == NPU_OP_SEGMENT) rank = segment_rank(command, in.imm);
    const bool computed = in.op == NPU_OP_LOAD_AT || in.op == NPU_OP_STORE_AT;
    const bool write = in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT;
    if ((!computed && !write && in.op != NPU_OP_LOAD) || in.imm >= command.operand_count) continue;
    const bool meets = in.op == NPU_OP_STORE_AT && in.flags != NPU_STORE_SET;
    out.push_back({in.imm, write, computed, in.mask != NPU_NO_VALUE, meets, rank, static_cast<uint16_t>(i)});
  }
  return out;
}

}  // namespace npu
