// The parts of the table, each beside its code.
#pragma once
#include "support/legalise/rules/rule.h"

namespace npu::legalise {

extern const std::span<const Rule> number_rules;
extern const std::span<const Rule> number_sort_rules;
extern const std::span<const Rule> product_rules;

constexpr uint32_t kProducts = for_kind(NPU_MATMUL) | for_kind(NPU_CONV);
constexpr uint32_t kAnyKind = (1u << NPU_COMMAND_COUNT) - 1;

}  // namespace npu::legalise
