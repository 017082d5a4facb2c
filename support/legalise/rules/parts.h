// The parts of the table, each beside its code.
#pragma once
#include "support/legalise/rules/rule.h"

namespace npu::legalise {

extern const std::span<const Rule> product_rules;
extern const std::span<const Rule> dense_rules;
extern const std::span<const Rule> index_rules;
extern const std::span<const Rule> rank_rules;
extern const std::span<const Rule> identity_rules;
extern const std::span<const Rule> type_rules;
extern const std::span<const Rule> cut_rules;
extern const std::span<const Rule> front_rules;
extern const std::span<const Rule> function_rules;

constexpr uint32_t kProducts = for_kind(NPU_MATMUL) | for_kind(NPU_CONV);
constexpr uint32_t kAnyKind = (1u << NPU_COMMAND_COUNT) - 1;

}  // namespace npu::legalise
