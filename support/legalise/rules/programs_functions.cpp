// Functions that a chip lacks, by the sequences that define them.
#include "support/legalise/rules/inline.h"
#include "support/legalise/rules/parts.h"
#include "support/reference/functions.h"

namespace npu::legalise {
namespace {

bool function_by_sequence(const Draft& refused, Script& script) {
  if (!refused.program) return false;
  int chosen = -1;
  for (const npu_instr& in : refused.program->instrs)
    if (in.dtype == NPU_F32 && sequence(in.op)) {
      chosen = in.op;
      break;
    }
  if (chosen < 0) return false;
  script.add(inlined_where(refused, *sequence(chosen),
                           [&](const npu_instr& in) { return in.op == chosen && in.dtype == NPU_F32; }));
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
