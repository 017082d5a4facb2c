// Folds of what lies in memory: values that are computed first, and sums that are products.
#include "support/legalise/rules/folds/pieces.h"
#include "support/legalise/rules/parts.h"
#include "support/program/op_info.h"

namespace npu::legalise {

bool value_first(const Draft& refused, const Plain& plain, Script& script) {
  const Program& program = *refused.program;
  const npu_instr& fold = plain.instr;
  const auto loaded = [&](uint16_t id) {
    return id == NPU_NO_VALUE || (program.instrs[id].op == NPU_OP_LOAD && program.instrs[id].mask == NPU_NO_VALUE);
  };
  const bool simple_mask = !plain.masked() || (Combiner::flagged(plain) && loaded(fold.mask));
  if (simple_mask && loaded(fold.a) && loaded(fold.b) && loaded(fold.c)) return false;
  Draft map(NPU_MAP, refused.size());
  Writer writer(refused, map);
  copy_segment(writer, program, segments_of(program)[0], needs(program, {plain.id}));
  Tuple element;
  if (plain.kind == NPU_FOLD_WELFORD && fold.b == NPU_NO_VALUE && !plain.masked())
    element = {writer.value(fold.a)};
  else
    element = Combiner(writer, refused, plain).element();
  std::vector<Operand> made;
  for (const uint16_t value : element) {
    made.push_back(script.scratch(writer.type(value), refused.size()));
    writer.store(made.back(), value);
  }
  writer.finish(program.name);
  script.add(map);
  script.add(fold_again(refused, plain, refused.size(), made, plain.stores));
  return true;
}

namespace {

bool value_then_fold(const Draft& refused, Script& script) {
  const std::optional<Plain> fold = plain(refused, script);
  return fold && value_first(refused, *fold, script);
}

// Below that a MAP folds a row by itself; above, one long chain of additions loses too many bits.
constexpr int64_t kShortestProduct = 33, kLongestProduct = 4096;

bool sum_as_product(const Draft& refused, Script& script) {
  const std::optional<Plain> fold = plain(refused, script);
  if (!fold || fold->kind != NPU_FOLD_SUM || fold->masked() || fold->stores.size() != 1 || for_own_folds(refused))
    return false;
  const int kept = kept_rank(refused);
  const int64_t n = inner_points(refused, kept);
  const npu_instr& load = refused.program->instrs[fold->instr.a];
  if (refused.command.inner_rank != 1 || n < kShortestProduct || n > kLongestProduct || load.op != NPU_OP_LOAD ||
      load.mask != NPU_NO_VALUE || kept + 1 > NPU_MAX_RANK)
    return false;
  Operand row = refused.operands[load.imm];
  const int type = fold->types[0];
  // A product may take subnormal numbers of bf16 for zero, and has no u64.
  if (compute_dtype(row.form.dtype) != type || row.form.dtype == NPU_BF16 || type == NPU_U64 || row.immediate())
    return false;
  std::vector<int64_t> size = refused.size();
  const int64_t inner_stride = row.form.stride[kept];
  size.back() = 1;
  if (kept == 0) {
    size.push_back(1);
    row.form.stride[0] = 0;
    row.form.stride[1] = inner_stride;
  }
  const auto rank = static_cast<int>(size.size());
  const Operand dense = script.scratch(type, {n});
  Operand one;
  one.form.dtype = static_cast<uint8_t>(type);
  one.form.flags = NPU_OPERAND_IMMEDIATE;
  one.form.addr = type == NPU_F32 ? 0x3f800000 : type == NPU_F64 ? 0x3ff0000000000000 : 1;
  one.place.kind = Place::kLiteral;
  script.add(copy({n}, dense, one));
  Operand ones = first_dimensions(dense, 0);
  ones.form.stride[rank - 2] = 1;
  ones.form.stride[rank - 1] = 1;
  Draft product(NPU_MATMUL, size);
  product.command.u.matmul.k = n;
  product.command.u.matmul.acc_dtype = static_cast<uint8_t>(type);
  product.operands = {row, ones, first_dimensions(fold->stores[0].to, kept)};
  script.add(product);
  return true;
}

constexpr Rule kRules[] = {
    {.name = "a sum as a product with ones",
     .why = "a sum is a product of the row and a column of ones",
     .price = Price::kPass,
     .kinds = for_kind(NPU_REDUCE),
     .repeats = false,
     .make = sum_as_product},
    {.name = kValueFirst,
     .why = "what is folded lies in scratch, with the identity where an element is left out",
     .price = Price::kPass,
     .kinds = for_kind(NPU_REDUCE) | for_kind(NPU_SCAN),
     .repeats = false,
     .make = value_then_fold},
};

}  // namespace

const std::span<const Rule> value_rules = kRules;

}  // namespace npu::legalise
