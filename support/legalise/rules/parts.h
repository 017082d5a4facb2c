// The parts of the table, each beside its code.
#pragma once
#include "support/legalise/rules/rule.h"

namespace npu::legalise {

// Of operands: rank, computed addresses, dense copies, storage types.
extern const std::span<const Rule> rank_rules, index_rules, dense_rules, type_rules;
// Of programs: functions, identities, what is put in front, where they are cut.
extern const std::span<const Rule> function_rules, identity_rules, front_rules, cut_rules;
extern const std::span<const Rule> product_rules, conv_rules;
// Of numbers of 64 bits.
extern const std::span<const Rule> number_rules, number_sort_rules;
// Of SORT, SCATTER and COPY.
extern const std::span<const Rule> sort_rules, scatter_rules, copy_rules;
// Of REDUCE and SCAN.
extern const std::span<const Rule> segment_rules, shape_rules, fold_kind_rules, value_rules, piece_rules, scan_rules;

constexpr uint32_t kProducts = for_kind(NPU_MATMUL) | for_kind(NPU_CONV);
constexpr uint32_t kAnyKind = (1u << NPU_COMMAND_COUNT) - 1;

}  // namespace npu::legalise
