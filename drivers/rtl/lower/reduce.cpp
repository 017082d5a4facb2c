// Scans, and folds: a REDUCE packet each, over values that lie row by row. The order is that of docs/isa.md; only
// Welford's mean and variance are taken in two passes instead.
#include <algorithm>
#include <limits>

#include "drivers/rtl/lower/lower.h"

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

// Few elements per row: an operation per element, for all rows at once, in the order of the packet.
Lowering::Value Lowering::fold_few(uint32_t op, uint32_t identity, const Value& given, int64_t inner) {
  const Space all = space_;
  const int kept = all.rank - command_.inner_rank;
  std::vector<View> lanes;
  for (int64_t i = 0; i < inner; i++) {
    View one = given.view;
    int64_t rest = i;
    for (int d = all.rank - 1; d >= kept; d--) {
      one.addr += static_cast<uint64_t>(rest % all.size[d] * one.stride[d]);
      rest /= all.size[d];
    }
    for (int d = kept; d < NPU_MAX_RANK; d++) one.stride[d] = 0;
    lanes.push_back(one);
  }
  space_.rank = kept;
  if (op == VEC_ADD)  // 0 + -0 is 0
    for (View& lane : lanes) lane = apply(given.dtype, op, immediate(0), lane).view;
  for (size_t apart = LANES / 2; apart; apart /= 2) {
    for (size_t i = 0; i + apart < lanes.size(); i++)
      lanes[i] = apply(given.dtype, op, lanes[i], lanes[i + apart]).view;
    lanes.resize(std::min(lanes.size(), apart));
  }
  // Nothing was combined: a NaN becomes the one that arithmetic yields.
  if (inner == 1 && op != VEC_ADD)
    lanes[0] = given.dtype == NPU_F32 ? apply(given.dtype, op, immediate(identity), lanes[0]).view
                                      : apply(given.dtype, VEC_MOV, lanes[0]).view;
  space_ = all;
  return {lanes[0], given.dtype};
}

// In pieces of 16 bits, whose sums fit a lane; high words wrap as they should.
Lowering::Value Lowering::sum_long(const Value& given) {
  const Range piece{0, 0xffff};
  const Value low = fold(NPU_FOLD_SUM, {apply(NPU_I64, VEC_AND, given.view, immediate(0xffff)).view, NPU_I64, piece});
  const Value next =
      fold(NPU_FOLD_SUM, {apply(NPU_I64, VEC_UMULH, given.view, immediate(0x10000)).view, NPU_I64, piece});
  const Value top = fold(NPU_FOLD_SUM, {high_word(given), NPU_I32});
  const Space all = space_;
  space_.rank -= command_.inner_rank;
  Value sum = add(low, multiply(next, integer(0x10000)));
  sum.high = apply(NPU_I32, VEC_IADD, high_word(sum), top.view).view;
  sum.wide = true;
  for (int d = space_.rank; d < NPU_MAX_RANK; d++) sum.view.stride[d] = sum.high.stride[d] = 0;
  space_ = all;
  return sum;
}

// The best high word, then the best low word, as an unsigned number, of those that have it.
Lowering::Value Lowering::extreme_long(int kind, const Value& given) {
  constexpr uint32_t sign = 0x80000000;
  const Value high = fold(kind, {given.high, NPU_I32});
  const View low = apply(NPU_I32, VEC_XOR, given.view, immediate(sign)).view;
  const Value best{apply(NPU_BOOL, VEC_IEQ, given.high, high.view).view, NPU_BOOL};
  const Value other{immediate(operation(kind, NPU_I32).identity), NPU_I32};
  const Value found = fold(kind, select(best, {low, NPU_I32}, other));
  const Space all = space_;
  space_.rank -= command_.inner_rank;
  Value made = apply(NPU_I64, VEC_XOR, found.view, immediate(sign));
  for (int d = space_.rank; d < NPU_MAX_RANK; d++) made.view.stride[d] = 0;
  space_ = all;
  made.wide = true;
  made.high = high.view;
  return made;
}

// A packet for each element of a row, all rows at once.
View Lowering::scan_words(uint32_t op, uint32_t identity, const View& given) {
  const int last = space_.rank - 1;
  const View source = given.immediate ? materialize(given) : given;
  const View made = contiguous(space_, source.type <= TYPE_F16 ? TYPE_F32 : TYPE_I32);
  Space rows = space_;
  rows.rank = last;
  View before = immediate(identity);
  for (int64_t i = 0; i < space_.size[last]; i++) {
    View from = source, to = made;
    from.addr += static_cast<uint64_t>(i * source.stride[last]);
    to.addr += static_cast<uint64_t>(i * made.stride[last]);
    emit(OP_VECTOR, op, rows, to, before, from, View());
    before = to;
  }
  return made;
}

Lowering::Value Lowering::scan(int kind, const Value& given) {
  const FoldOperation how = operation(kind, given.dtype);
  const int64_t length = space_.size[space_.rank - 1];
  if (length > 4096) throw Unsupported{"a scan of more than 4096 elements"};
  const Range range = range_of(given);
  const __int128 least = static_cast<__int128>(range.least) * length, most = static_cast<__int128>(range.most) * length;
  const bool extreme = kind == NPU_FOLD_MAX || kind == NPU_FOLD_MIN;
  const bool fits = extreme || (kind == NPU_FOLD_SUM && least >= INT32_MIN && most <= INT32_MAX);
  if (given.dtype != NPU_I64 || (!given.wide && fits)) {
    Value made{scan_words(how.op, how.identity, given.view), given.dtype};
    if (given.dtype == NPU_I64 && extreme) made.range = range;
    return made;
  }
  if (kind != NPU_FOLD_SUM)
    throw Unsupported{std::string("the scan ") + npu::fold_name(kind) + " of integers beyond 32 bits"};
  Value made{scan_words(VEC_IADD, 0, given.view), NPU_I64};
  const View carry = apply(NPU_I32, VEC_ULT, made.view, given.view).view;
  made.high = scan_words(VEC_IADD, 0, apply(NPU_I32, VEC_IADD, high_word(given), carry).view);
  made.wide = true;
  return made;
}

Lowering::Value Lowering::fold(int kind, const Value& given) {
  if (given.wide && (kind == NPU_FOLD_MAX || kind == NPU_FOLD_MIN)) return extreme_long(kind, given);
  if (given.wide && kind != NPU_FOLD_SUM)
    throw Unsupported{std::string("the fold ") + npu::fold_name(kind) + " of integers beyond 32 bits"};
  const FoldOperation how = operation(kind, given.dtype);
  const int kept = space_.rank - command_.inner_rank;
  int64_t inner = 1, row_count = 1;
  for (int d = 0; d < space_.rank; d++) (d < kept ? row_count : inner) *= space_.size[d];
  Range range = range_of(given);
  if (kind == NPU_FOLD_SUM || kind == NPU_FOLD_PROD) {
    const __int128 least = static_cast<__int128>(std::min<int64_t>(range.least, 0)) * inner,
                   most = static_cast<__int128>(std::max<int64_t>(range.most, 0)) * inner;
    const bool fits = kind == NPU_FOLD_SUM && least >= INT32_MIN && most <= INT32_MAX;
    if (given.dtype == NPU_I64 && (given.wide || !fits)) {
      if (kind == NPU_FOLD_PROD || inner >= 1 << 15)
        throw Unsupported{"products, and sums of 2^15 elements and more, of i64"};
      return sum_long(given);
    }
    range = fits ? Range{static_cast<int64_t>(least), static_cast<int64_t>(most)} : Range{};
  } else if (kind != NPU_FOLD_MAX && kind != NPU_FOLD_MIN) {
    range = {};
  }
  View source = given.view;
  // REDUCE waits for its tree after each row.
  if (!source.immediate && inner <= LANES && row_count >= inner) {
    Value made = fold_few(how.op, how.identity, given, inner);
    made.range = range;
    return made;
  }
  // The packet folds one dimension: the inner ones must be one in memory.
  bool together = !source.immediate;
  int64_t length = 1, step = 0;
  for (int d = space_.rank - 1; d >= kept; d--) {
    if (space_.size[d] == 1) continue;
    if (length == 1) step = source.stride[d];
    together = together && source.stride[d] == step * length;
    length *= space_.size[d];
  }
  if (!together) {
    source = materialize(source);
    step = type_width(source.type);
  }
  Space rows = space_;
  rows.rank = kept;
  View result = contiguous(rows, given.dtype == NPU_F32 ? TYPE_F32 : TYPE_I32);
  for (int d = kept; d < NPU_MAX_RANK; d++) result.stride[d] = 0;
  rows.size[rows.rank++] = inner;
  source.stride[kept] = step;
  emit(OP_REDUCE, how.op, rows, result, source, immediate(how.identity));
  return {result, given.dtype, range};
}

// Elements that are left out count as the identity.
Lowering::Value Lowering::masked(int kind, const Value& given, const Value& mask) {
  if (mask.view.immediate && mask.view.bits) return given;
  const uint32_t identity = operation(kind, given.dtype).identity;
  Value left_out{immediate(identity), given.dtype};
  if (given.dtype == NPU_I64) left_out = integer(static_cast<int32_t>(identity));
  if (given.dtype == NPU_I64 && kind != NPU_FOLD_SUM) throw Unsupported{"a masked fold of i64"};
  return select(mask, given, left_out);
}

// The best value, then the lowest index where it is, then what exactly stood there (zeros have a sign).
std::array<Lowering::Value, NPU_MAX_TUPLE> Lowering::arg_fold(int kind, const Value& given, const Value& index,
                                                              const Value& mask) {
  const int best_kind = kind == NPU_FOLD_ARGMAX ? NPU_FOLD_MAX : NPU_FOLD_MIN;
  const Range places = range_of(index);
  if (given.dtype == NPU_I64 || index.wide || places.most >= INT32_MAX)
    throw Unsupported{std::string("the fold ") + npu::fold_name(kind) + " of integers beyond 32 bits"};
  const View x = given.view;
  const auto truth = [&](uint32_t op, const View& a, const View& b) { return apply(NPU_BOOL, op, a, b).view; };
  const Value best = fold(best_kind, masked(best_kind, given, mask));
  View hit;
  if (given.dtype == NPU_F32)  // a NaN beats every number, and is no number's equal
    hit = truth(VEC_OR, truth(VEC_EQ, x, best.view), truth(VEC_XOR, truth(VEC_EQ, x, x), immediate(1)));
  else
    hit = truth(VEC_IEQ, x, best.view);
  hit = truth(VEC_AND, hit, mask.view);
  const Value none = integer(INT32_MAX, NPU_I64);
  Value at = fold(NPU_FOLD_MIN, select({hit, NPU_BOOL}, index, none));
  const View there = truth(VEC_AND, hit, truth(VEC_IEQ, index.view, at.view));
  Value value = fold(NPU_FOLD_OR, select({there, NPU_BOOL}, {x, NPU_I32}, integer(0, NPU_I32)));
  if (!mask.view.immediate || !mask.view.bits) {  // perhaps there was no element
    const Space all = space_;
    space_.rank -= command_.inner_rank;
    const Value empty = apply(NPU_BOOL, VEC_IEQ, at.view, immediate(INT32_MAX));
    at = select(empty, integer(-1), at);
    value = select(empty, {immediate(operation(best_kind, given.dtype).identity), NPU_I32}, value);
    for (Value* row : {&at, &value})
      for (int d = space_.rank; d < NPU_MAX_RANK; d++) row->view.stride[d] = 0;
    space_ = all;
  }
  at.range = {std::min<int64_t>(places.least, -1), places.most};
  return {Value{value.view, given.dtype}, at};
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
