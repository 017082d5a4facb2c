#include "support/legalise/draft/prune.h"

#include <vector>

#include "support/program/op_info.h"

namespace npu::legalise {
namespace {

bool stays(const npu_instr& in) {
  return in.dtype == NPU_DTYPE_NONE || in.op == NPU_OP_CHECK_INDEX || in.op == NPU_OP_FOLD || in.op == NPU_OP_SCAN;
}

// Keeps what is used, in order; says where each went.
template <class T>
std::vector<uint32_t> keep(std::vector<T>& all, const std::vector<bool>& used) {
  std::vector<uint32_t> place(all.size());
  uint32_t count = 0;
  for (size_t k = 0; k < all.size(); ++k) {
    place[k] = count;
    if (used[k]) all[count++] = all[k];
  }
  all.resize(count);
  return place;
}

bool names_operand(const npu_instr& in) {
  return in.op == NPU_OP_LOAD || in.op == NPU_OP_LOAD_AT || in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT;
}

void drop_instructions(Program& program) {
  std::vector<bool> used(program.instrs.size(), false);
  for (size_t k = used.size(); k-- > 0;) {
    const npu_instr& in = program.instrs[k];
    if (stays(in)) used[k] = true;
    if (!used[k]) continue;
    for (const uint16_t id : {in.a, in.b, in.c, in.mask})
      if (id != NPU_NO_VALUE) used[id] = true;
  }
  const std::vector<uint32_t> place = keep(program.instrs, used);
  for (npu_instr& in : program.instrs)
    for (uint16_t* id : {&in.a, &in.b, &in.c, &in.mask})
      if (*id != NPU_NO_VALUE) *id = static_cast<uint16_t>(place[*id]);
}

}  // namespace

void prune(Draft& draft) {
  Program program = *draft.program;
  drop_instructions(program);
  std::vector<bool> operands(draft.operands.size(), false), params(draft.params.size(), false),
      consts(program.consts.size(), false);
  if (draft.command.kind == NPU_MATMUL || draft.command.kind == NPU_CONV) operands[0] = operands[1] = true;
  for (const npu_instr& in : program.instrs) {
    if (names_operand(in)) operands[in.imm] = true;
    if (in.op == NPU_OP_PARAM) params[in.imm] = true;
    if (in.op == NPU_OP_CONST) consts[in.imm] = true;
  }
  const auto operand = keep(draft.operands, operands), param = keep(draft.params, params),
             constant = keep(program.consts, consts);
  for (npu_instr& in : program.instrs) {
    if (names_operand(in)) in.imm = operand[in.imm];
    if (in.op == NPU_OP_PARAM) in.imm = param[in.imm];
    if (in.op == NPU_OP_CONST) in.imm = constant[in.imm];
  }
  program.operand_count = static_cast<uint32_t>(draft.operands.size());
  program.param_count = static_cast<uint32_t>(draft.params.size());
  draft.program = std::make_shared<const Program>(std::move(program));
}

}  // namespace npu::legalise
