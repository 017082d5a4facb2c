// Folds: a REDUCE packet each, over values that lie row by row. The order is that of docs/isa.md; only Welford's mean
// and variance are taken in two passes instead.
#include <limits>

#include "drivers/rtl/lower.h"

using namespace npu_hw;

namespace rtl {
namespace {

struct FoldOperation {
  uint32_t op, identity;
};

FoldOperation operation(int kind, int dtype) {
  const bool real = dtype == NPU_F32;
  switch (kind) {
    case NPU_FOLD_SUM:
      if (dtype != NPU_BOOL) return {real ? VEC_ADD : VEC_IADD, 0};
      break;
    case NPU_FOLD_PROD:
      if (dtype != NPU_BOOL) return {real ? VEC_MUL : VEC_IMUL, real ? 0x3f800000u : 1u};
      break;
    case NPU_FOLD_MAX:
      return {real ? VEC_MAX : VEC_IMAX, real ? 0xff800000u : dtype == NPU_BOOL ? 0u : 0x80000000u};
    case NPU_FOLD_MIN:
      return {real ? VEC_MIN : VEC_IMIN, real ? 0x7f800000u : dtype == NPU_BOOL ? 1u : 0x7fffffffu};
    case NPU_FOLD_AND:
      return {VEC_AND, dtype == NPU_BOOL ? 1u : ~0u};
    case NPU_FOLD_OR:
      return {VEC_OR, 0};
    case NPU_FOLD_XOR:
      return {VEC_XOR, 0};
    default:
      break;
  }
  throw Unsupported{std::string("the fold ") + npu::fold_name(kind) + " of type " + npu::dtype_name(dtype)};
}

}  // namespace

Lowering::Value Lowering::fold(int kind, const Value& given) {
  const FoldOperation how = operation(kind, given.dtype);
  const int kept = space_.rank - command_.inner_rank;
  // The packet folds one dimension: the inner ones must be one in memory.
  View source = given.view;
  bool together = !source.immediate;
  int64_t inner = 1, step = 0;
  for (int d = space_.rank - 1; d >= kept; d--) {
    if (space_.size[d] == 1) continue;
    if (inner == 1) step = source.stride[d];
    together = together && source.stride[d] == step * inner;
    inner *= space_.size[d];
  }
  if (!together) {
    source = apply(given.dtype, VEC_MOV, source).view;
    step = type_width(source.type);
  }
  Space rows = space_;
  rows.rank = kept;
  View result = contiguous(rows, given.dtype == NPU_F32 ? TYPE_F32 : TYPE_I32);
  for (int d = kept; d < NPU_MAX_RANK; d++) result.stride[d] = 0;
  rows.size[rows.rank++] = inner;
  source.stride[kept] = step;
  emit(OP_REDUCE, how.op, rows, result, source, immediate(how.identity));
  return {result, given.dtype};
}

// mean, sum of squared distances, count.
std::array<Lowering::Value, NPU_MAX_TUPLE> Lowering::welford(const Value& given) {
  if (given.dtype != NPU_F32) throw Unsupported{"moments of this type"};
  const Space all = space_;
  Space rows = space_;
  rows.rank -= command_.inner_rank;
  int64_t inner = 1;
  for (int d = rows.rank; d < all.rank; d++) inner *= all.size[d];
  const View count = number(static_cast<float>(inner));
  const Value sum = fold(NPU_FOLD_SUM, given);
  space_ = rows;
  View mean = apply(NPU_F32, VEC_DIV, sum.view, count).view;
  for (int d = rows.rank; d < NPU_MAX_RANK; d++) mean.stride[d] = 0;
  space_ = all;
  const View distance = apply(NPU_F32, VEC_SUB, given.view, mean).view;
  const Value squares = fold(NPU_FOLD_SUM, apply(NPU_F32, VEC_MUL, distance, distance));
  return {Value{mean, NPU_F32}, squares, Value{count, NPU_F32}};
}

}  // namespace rtl
