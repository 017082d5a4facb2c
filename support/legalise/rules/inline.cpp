#include "support/legalise/rules/inline.h"

#include "support/legalise/draft/writer.h"

namespace npu::legalise {
namespace {

// The program's instructions here, with the arguments of `call`, an instruction of the source; its result's value.
uint16_t inlined(Writer& writer, const Program& program, const npu_instr& call) {
  std::vector<uint16_t> here(program.instrs.size(), NPU_NO_VALUE);
  uint16_t result = NPU_NO_VALUE;
  const auto value = [&](uint16_t id) { return id == NPU_NO_VALUE ? id : here[id]; };
  for (uint16_t id = 1; id < program.instrs.size(); ++id) {
    const npu_instr& in = program.instrs[id];
    if (in.op == NPU_OP_LOAD)
      here[id] = writer.value(in.imm == 0 ? call.a : in.imm == 1 ? call.b : call.c);
    else if (in.op == NPU_OP_STORE)
      result = value(in.a);
    else if (in.op == NPU_OP_CONST)
      here[id] = writer.integer(in.dtype, static_cast<int64_t>(program.consts[in.imm]));
    else
      here[id] = writer.emit(static_cast<npu_op>(in.op), in.dtype, value(in.a), value(in.b), value(in.c), in.imm,
                             NPU_NO_VALUE, in.flags);
  }
  return result;
}

}  // namespace

Draft inlined_where(const Draft& refused, const Program& program, const std::function<bool(const npu_instr&)>& wanted) {
  Draft target = refused;
  target.operands.clear();
  if (refused.command.kind == NPU_MATMUL || refused.command.kind == NPU_CONV)
    target.operands = {refused.operands[0], refused.operands[1]};
  target.params.clear();
  rewrite(refused, target, [&](Writer& writer, uint16_t id, const npu_instr& in) {
    if (!wanted(in)) return false;
    writer.provide(id, inlined(writer, program, in));
    return true;
  });
  return target;
}

}  // namespace npu::legalise
