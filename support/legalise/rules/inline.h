// Instructions replaced by programs.
#pragma once
#include <functional>

#include "support/legalise/draft/draft.h"

namespace npu::legalise {

// `refused` with `program` in the place of each instruction that is `wanted`: its operands are the instruction's
// arguments, and the last one its result.
Draft inlined_where(const Draft& refused, const Program& program, const std::function<bool(const npu_instr&)>& wanted);

}  // namespace npu::legalise
