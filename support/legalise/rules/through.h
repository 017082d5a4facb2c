// A command on copies of its operands.
#pragma once
#include <vector>

#include "support/legalise/draft/uses.h"
#include "support/legalise/rules/rule.h"

namespace npu::legalise {

// Which operands get scratch of their own, and of what type; -1: not this one.
using Copies = std::vector<int>;

// Copies in front of what is read, and behind of what is written. Copies are dense; what is broadcast stays so, unless
// `full`. False: operands of one memory, of which one is written, would part.
bool through_copies(const Draft& refused, const Copies& copies, bool full, Script& script);

// Operands that no copy can stand for: immediates, and memory whose elements the program computes.
bool is_fixed(const Operand& operand, const Use& use);

}  // namespace npu::legalise
