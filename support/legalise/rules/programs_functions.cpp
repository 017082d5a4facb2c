// Functions that a chip lacks, by the sequences that define them.
#include <array>

#include "support/legalise/draft/writer.h"
#include "support/legalise/rules/parts.h"
#include "support/reference/functions.h"

namespace npu::legalise {
namespace {

// The sequence's instructions here, with its arguments; its result's value.
uint16_t inlined(Writer& writer, const Program& sequence, std::array<uint16_t, 2> arguments) {
  std::vector<uint16_t> here(sequence.instrs.size(), NPU_NO_VALUE);
  uint16_t result = NPU_NO_VALUE;
  const auto value = [&](uint16_t id) { return id == NPU_NO_VALUE ? id : here[id]; };
  for (uint16_t id = 1; id < sequence.instrs.size(); ++id) {
    const npu_instr& in = sequence.instrs[id];
    if (in.op == NPU_OP_LOAD)
      here[id] = arguments[in.imm];
    else if (in.op == NPU_OP_STORE)
      result = value(in.a);
    else if (in.op == NPU_OP_CONST)
      here[id] = writer.integer(in.dtype, static_cast<int64_t>(sequence.consts[in.imm]));
    else
      here[id] = writer.emit(static_cast<npu_op>(in.op), in.dtype, value(in.a), value(in.b), value(in.c), in.imm,
                             NPU_NO_VALUE, in.flags);
  }
  return result;
}

bool function_by_sequence(const Draft& refused, Script& script) {
  if (!refused.program) return false;
  int chosen = -1;
  for (const npu_instr& in : refused.program->instrs)
    if (in.dtype == NPU_F32 && sequence(in.op)) {
      chosen = in.op;
      break;
    }
  if (chosen < 0) return false;
  Draft target = refused;
  target.operands.clear();
  if (refused.command.kind == NPU_MATMUL || refused.command.kind == NPU_CONV)
    target.operands = {refused.operands[0], refused.operands[1]};
  target.params.clear();
  rewrite(refused, target, [&](Writer& writer, uint16_t id, const npu_instr& in) {
    if (in.op != chosen || in.dtype != NPU_F32) return false;
    writer.provide(id, inlined(writer, *sequence(chosen), {writer.value(in.a), writer.value(in.b)}));
    return true;
  });
  script.add(target);
  return true;
}

constexpr Rule kRules[] = {
    {.name = "function by its sequence",
     .why = "isa.md defines the function by these instructions; those of the sequence that are functions have theirs",
     .price = Price::kPass,
     .kinds = kAnyKind & ~for_kind(NPU_COPY) & ~for_kind(NPU_SORT),
     .repeats = true,
     .make = function_by_sequence},
};

}  // namespace

const std::span<const Rule> function_rules = kRules;

}  // namespace npu::legalise
