// REDUCE and SCAN of every kind of fold, over several dimensions and segments, with what else a program may do.
#include <algorithm>

#include "support/program/op_info.h"
#include "tools/driver_test/case.h"
#include "tools/driver_test/programs.h"

using namespace driver_test;

namespace {

bool is_real(int compute) {
  return compute == NPU_F32 || compute == NPU_F64;
}

// A custom fold of two numbers: maps x -> a x + b, one after the other. Associative, as combine segments must be, but
// not commutative. Whole numbers wrap, so that it is exact.
void affine(Builder& b) {
  const Id a1 = b.arg(0, NPU_I64), b1 = b.arg(1, NPU_I64), a2 = b.arg(2, NPU_I64), b2 = b.arg(3, NPU_I64);
  b.yield(0, b.op(NPU_OP_MUL, a1, a2));
  b.yield(1, b.op(NPU_OP_FMA, b1, a2, b2));
}

// The place of an element within its row, in row-major order.
Id place(Builder& b, const Case& c) {
  Id at = none;
  for (int d = c.command.rank - c.command.inner_rank; d < c.command.rank; d++) {
    const Id here = b.index(static_cast<uint32_t>(d));
    at = at == none ? here : b.op(NPU_OP_FMA, at, b.size(static_cast<uint32_t>(d)), here);
  }
  return at == none ? b.constant(NPU_I64, 0) : at;
}

struct Made {
  Id fold;
  std::vector<int> types;  // of its members
};

// One fold or scan of any kind that the value's type has.
Made any_fold(Random& random, Builder& b, const Case& c, Id x, Id mask, bool combine) {
  const int compute = b.type(x);
  std::vector<int> kinds = {NPU_FOLD_MAX, NPU_FOLD_MIN, NPU_FOLD_ARGMAX, NPU_FOLD_ARGMIN};
  if (compute != NPU_BOOL) kinds.insert(kinds.end(), {NPU_FOLD_SUM, NPU_FOLD_PROD});
  if (!is_real(compute)) kinds.insert(kinds.end(), {NPU_FOLD_AND, NPU_FOLD_OR, NPU_FOLD_XOR});
  if (is_real(compute)) kinds.insert(kinds.end(), {NPU_FOLD_WELFORD, NPU_FOLD_WELFORD});
  int kind = combine ? int{NPU_FOLD_CUSTOM} : random.pick(kinds);
  if (kind == NPU_FOLD_PROD && is_real(compute)) x = b.op(NPU_OP_SIGN, x);
  Id second = none, third = none;
  std::vector<int> types = {compute};
  if (kind == NPU_FOLD_ARGMAX || kind == NPU_FOLD_ARGMIN) {
    second = place(b, c);
    types = {compute, NPU_I64};
  } else if (kind == NPU_FOLD_WELFORD) {
    if (random.chance(40)) {
      second = b.op(NPU_OP_ABS, x);
      third = b.constant(compute, 2);
    }
    types = {compute, compute, compute};
  } else if (kind == NPU_FOLD_CUSTOM) {
    x = compute == NPU_I64 ? x : b.cast(x, NPU_I64);
    second = place(b, c);
    types = {NPU_I64, NPU_I64};
  }
  const Id fold = c.command.kind == NPU_SCAN ? b.scan(kind, x, second, third) : b.fold(kind, x, second, third, mask);
  return {fold, types};
}

// A value that a fold may take: of one operand or two, with a place in it, or looked up.
Id any_value(Random& random, Builder& b, Case& c, uint32_t in, int compute) {
  Id x = b.load(in, compute);
  if (compute == NPU_BOOL || random.chance(40)) return x;
  if (random.chance(30)) x = b.op(NPU_OP_NEG, x);
  if (random.chance(30)) x = b.op(NPU_OP_MAX, x, b.load(c.input(random, c.operands[in].dtype, Data::kSmall), compute));
  if (random.chance(20) && c.command.rank) {
    const auto d = static_cast<uint32_t>(random.below(c.command.rank));
    const Id at = b.op(NPU_OP_MOD, b.index(d), b.constant(NPU_I64, 5));
    x = b.op(NPU_OP_MIN, x, b.load_at(c.table(random, c.operands[in].dtype, 5, Data::kSmall), compute, at));
  }
  return x;
}

void store_members(Random& random, Builder& b, Case& c, const Made& made, int rank) {
  for (uint32_t k = 0; k < made.types.size(); k++)
    b.store(c.output(random, made.types[k], false, rank), b.get(made.fold, k, made.types[k]));
}

Id as_real(Builder& b, Id value) {
  return b.type(value) == NPU_F32 ? value : b.cast(value, NPU_F32);
}

// Folds; what is stored beside them, in place or not; rows that compute; points that see rows and folds.
Case reduce_in_segments(Random& random) {
  const std::vector<int64_t> size = random_sizes(random, 1, 4, random.chance(20) ? 8000 : 1500);
  Case c(NPU_REDUCE, size, static_cast<int>(random.between(0, static_cast<int64_t>(size.size()))));
  const int kept = c.command.rank - c.command.inner_rank;
  const int dtype = random.pick(all_dtypes()), compute = npu::compute_dtype(dtype);
  const bool combine = random.chance(25), in_place = random.chance(30);
  const uint32_t out = in_place ? c.output(random, dtype) : none,
                 in = in_place ? out : c.input(random, dtype, Data::kSmall);
  if (in_place) fill(random, c.buffers[static_cast<size_t>(c.buffer_of(in))], Data::kSmall);
  Builder b("segments", combine ? NPU_SEGMENT_COMBINE : NPU_SEGMENT_EACH);
  if (combine) {
    affine(b);
    b.segment(NPU_SEGMENT_EACH);
  }
  const Id x = any_value(random, b, c, in, compute);
  const Id mask = random.chance(40) ? b.compare(NPU_OP_GT, x, b.constant(compute, 0)) : none;
  std::vector<Made> made = {any_fold(random, b, c, x, mask, combine)};
  if (random.chance(30)) made.push_back(any_fold(random, b, c, x, none, false));
  if (in_place) b.store(out, x);
  b.segment(NPU_SEGMENT_ROW);
  for (const Made& fold : made) store_members(random, b, c, fold, kept);
  if (random.chance(50)) {  // what rows make of it, for points and other rows
    const Id half = b.op(NPU_OP_MUL, as_real(b, made[0].fold), b.constant(NPU_F32, 0.5));
    const Id row = b.op(NPU_OP_MAX, half, b.load(c.input(random, NPU_F32, Data::kSmall), NPU_F32));
    b.segment(NPU_SEGMENT_EACH);
    const Id again = b.op(NPU_OP_ADD, as_real(b, b.load(in, compute)), row);
    b.store(c.output(random, NPU_F32), again);
    if (random.chance(50)) {
      const Id largest = b.fold(NPU_FOLD_MAX, again);
      b.segment(NPU_SEGMENT_ROW);
      b.store(c.output(random, NPU_F32, false, kept), b.op(NPU_OP_SUB, largest, row));
    }
  }
  if (is_real(compute)) c.tolerance = Tolerance::near(1e-4, 1e-4);
  c.set(b);
  return c;
}

// Points and rows over which nothing is folded; each has something to store.
Case reduce_without_folds(Random& random) {
  const std::vector<int64_t> size = random_sizes(random, 1, 4, 1500);
  Case c(NPU_REDUCE, size, static_cast<int>(random.between(0, static_cast<int64_t>(size.size()))));
  const int kept = c.command.rank - c.command.inner_rank;
  Builder b("no_folds");
  b.store(c.output(random, NPU_F32), b.op(NPU_OP_NEG, b.load(c.input(random, NPU_F32, Data::kReal), NPU_F32)));
  if (random.chance(50)) {
    b.segment(NPU_SEGMENT_ROW);
    b.store(c.output(random, NPU_I64, false, kept), b.load(c.input(random, NPU_I64, Data::kSpecial), NPU_I64));
  }
  c.set(b);
  return c;
}

// Scans; scans of what they come to; what is stored beside them, in place or not.
Case scan_in_segments(Random& random) {
  Case c(NPU_SCAN, random_sizes(random, 1, 3, random.chance(20) ? 8000 : 1500), 1);
  const int dtype = random.pick(all_dtypes()), compute = npu::compute_dtype(dtype);
  const bool combine = random.chance(25), in_place = random.chance(30);
  const uint32_t out = in_place ? c.output(random, dtype) : none,
                 in = in_place ? out : c.input(random, dtype, Data::kSmall);
  if (in_place) fill(random, c.buffers[static_cast<size_t>(c.buffer_of(in))], Data::kSmall);
  Builder b("segments", combine ? NPU_SEGMENT_COMBINE : NPU_SEGMENT_EACH);
  if (combine) {
    affine(b);
    b.segment(NPU_SEGMENT_EACH);
  }
  const Id x = any_value(random, b, c, in, compute);
  std::vector<Made> made = {any_fold(random, b, c, x, none, combine)};
  if (random.chance(30)) made.push_back(any_fold(random, b, c, x, none, false));
  const bool beside = in_place && random.chance(50);
  if (beside) b.store(out, x);
  b.segment(NPU_SEGMENT_EACH);
  if (in_place && !beside) b.store(out, made[0].fold);
  for (const Made& fold : made) store_members(random, b, c, fold, -1);
  if (random.chance(40)) {
    const Id most = b.scan(NPU_FOLD_MAX, b.op(NPU_OP_NEG, as_real(b, made[0].fold)));
    b.segment(NPU_SEGMENT_EACH);
    b.store(c.output(random, NPU_F32), b.op(NPU_OP_ADD, most, as_real(b, made.back().fold)));
  }
  if (is_real(compute)) c.tolerance = Tolerance::near(1e-4, 1e-3);
  c.set(b);
  return c;
}

}  // namespace

RANDOM_TEST("REDUCE: every kind of fold, in segments that store and compute", reduce_in_segments);
RANDOM_TEST("REDUCE: points and rows without a fold", reduce_without_folds);
RANDOM_TEST("SCAN: every kind of scan, in segments that store and scan again", scan_in_segments);
