// REDUCE, SCAN and SORT against the reference.
#include <algorithm>
#include <set>

#include "support/program/op_info.h"
#include "tools/driver_test/case.h"
#include "tools/driver_test/programs.h"

using namespace driver_test;

namespace {

bool is_real(int compute) {
  return compute == NPU_F32 || compute == NPU_F64;
}

int64_t inner_points(const Case& c) {
  int64_t n = 1;
  for (int d = c.command.rank - c.command.inner_rank; d < c.command.rank; d++) n *= c.command.size[d];
  return n;
}

// A kind of fold that takes the type.
int fold_kind(Random& random, int compute) {
  std::vector<int> kinds = {NPU_FOLD_MAX, NPU_FOLD_MIN};
  if (compute != NPU_BOOL) kinds.insert(kinds.end(), {NPU_FOLD_SUM, NPU_FOLD_SUM, NPU_FOLD_PROD});
  if (!is_real(compute)) kinds.insert(kinds.end(), {NPU_FOLD_AND, NPU_FOLD_OR, NPU_FOLD_XOR});
  return random.pick(kinds);
}

// Up to three folds of one load, masked or not, stored per row. Whole numbers: exact in any order.
Case random_reduce(Random& random) {
  const std::vector<int64_t> size = random_sizes(random, 1, 5, random.chance(20) ? 30000 : 3000);
  Case c(NPU_REDUCE, size, static_cast<int>(random.between(0, static_cast<int64_t>(size.size()))));
  const int kept = c.command.rank - c.command.inner_rank;
  const int dtype = random.pick(all_dtypes()), compute = npu::compute_dtype(dtype);
  const bool small = random.chance(70);
  const uint32_t in = c.input(random, dtype, small || !is_real(compute) ? Data::kSmall : Data::kSpecial);
  Builder b("reduce");
  const Id x = b.load(in, compute);
  const Id mask = random.chance(25) ? b.compare(NPU_OP_NE, x, b.constant(compute, 1)) : none;
  const auto count = random.between(1, 3);
  std::vector<Id> folds;
  for (int i = 0; i < count; i++) {
    int kind = fold_kind(random, compute);
    if (is_real(compute) && (kind == NPU_FOLD_PROD || (!small && kind == NPU_FOLD_SUM))) kind = NPU_FOLD_MAX;
    folds.push_back(b.fold(kind, x, none, none, mask));
  }
  if (random.chance(30)) {  // a value of full rank stored beside the folds
    b.store(c.output(random, dtype), b.op(compute == NPU_BOOL ? NPU_OP_NOT : NPU_OP_NEG, x));
  }
  const bool again = random.chance(25);
  b.segment(NPU_SEGMENT_ROW);
  for (Id fold : folds) b.store(c.output(random, is_real(compute) ? int{NPU_F64} : int{NPU_I64}, false, kept), fold);
  if (again) {  // a further phase over the same rows that uses a folded value
    b.segment(NPU_SEGMENT_EACH);
    b.store(c.output(random, NPU_BOOL), b.compare(NPU_OP_EQ, b.load(in, compute), folds[0]));
  }
  if (is_real(compute)) c.tolerance = Tolerance::near(0);  // of both zeros the order decides which is the greatest
  c.set(b);
  return c;
}

// Rows that lie in short pieces, as the channels of images do, and what differs from their fold.
Case folds_of_pieces(Random& random) {
  static const std::vector<int64_t> lengths = {4, 16, 17, 25, 49, 64, 100, 257, 512, 513};
  static const std::vector<int> types = {NPU_F32, NPU_F32, NPU_F32, NPU_F64, NPU_F16, NPU_I32, NPU_I8};
  const int64_t rows = random.between(1, 12), pieces = random.between(2, 70), length = random.pick(lengths);
  Case c(NPU_REDUCE, {rows, pieces, length}, 2);
  const int dtype = random.pick(types), compute = npu::compute_dtype(dtype);
  const uint32_t in = c.input(random, dtype, Data::kSmall, true);
  const int64_t strides[3] = {length, rows * length, 1};
  std::copy_n(strides, 3, c.operands[in].stride);
  Builder b("pieces");
  const Id x = b.load(in, compute);
  const bool moments = is_real(compute) && random.chance(50);
  const Id fold = b.fold(moments             ? int{NPU_FOLD_WELFORD}
                         : random.chance(70) ? int{NPU_FOLD_SUM}
                                             : int{NPU_FOLD_MAX},
                         x);
  const Id value = moments ? b.get(fold, 0, compute) : fold;
  b.segment(NPU_SEGMENT_ROW);
  b.store(c.output(random, compute, true, 1), value);
  if (moments) b.store(c.output(random, compute, true, 1), b.get(fold, 1, compute));
  b.segment(NPU_SEGMENT_EACH);
  b.store(c.output(random, compute, true), b.op(NPU_OP_SUB, b.load(in, compute), value));
  if (moments) c.tolerance = Tolerance::near(1e-4, 1e-4);
  c.set(b);
  return c;
}

// Several tensors folded in one segment, each as it is loaded, and what is made of all of them: as two batch norms that
// are added up.
Case folds_of_tensors(Random& random) {
  static const std::vector<int64_t> lengths = {1, 4, 16, 49, 64, 257};
  static const std::vector<int> kinds = {NPU_FOLD_WELFORD, NPU_FOLD_WELFORD, NPU_FOLD_MAX, NPU_FOLD_MIN, NPU_FOLD_SUM};
  const int64_t rows = random.between(1, 40), pieces = random.between(1, 6), length = random.pick(lengths);
  Case c(NPU_REDUCE, {rows, pieces, length}, 2);
  const int64_t strides[3] = {length, rows * length, 1};
  const size_t count = static_cast<size_t>(random.between(2, 4));
  const bool late = random.chance(40), images = random.chance(70);  // late: folds need not follow their loads
  Builder b("tensors");
  std::vector<uint32_t> in;
  std::vector<Id> loaded, folds, values;
  std::vector<int> kind;
  for (size_t k = 0; k < count; k++) {
    const bool again = k > 0 && random.chance(20);
    in.push_back(again ? in[0] : c.input(random, NPU_F32, Data::kSmall, true));
    if (images) std::copy_n(strides, 3, c.operands[in[k]].stride);
    kind.push_back(random.pick(kinds));
  }
  for (size_t k = 0; k < count; k++) {
    loaded.push_back(b.load(in[k], NPU_F32));
    while (folds.size() <= k && (!late || k + 1 == count || random.chance(50)))
      folds.push_back(b.fold(kind[folds.size()], loaded[folds.size()]));
  }
  for (size_t k = 0; k < count; k++)
    values.push_back(kind[k] == NPU_FOLD_WELFORD ? b.get(folds[k], 0, NPU_F32) : folds[k]);
  b.segment(NPU_SEGMENT_ROW);
  for (size_t k = 0; k < count; k++) b.store(c.output(random, NPU_F32, true, 1), values[k]);
  const Id half = b.op(NPU_OP_MUL, values[0], b.constant(NPU_F32, 0.5));
  b.segment(NPU_SEGMENT_EACH);
  Id sum = half;
  for (size_t k = 0; k < count; k++) sum = b.op(NPU_OP_ADD, sum, b.op(NPU_OP_SUB, b.load(in[k], NPU_F32), values[k]));
  b.store(c.output(random, NPU_F32, true), b.op(NPU_OP_MAX, sum, b.constant(NPU_F32, 0.0)));
  c.tolerance = Tolerance::near(1e-4, 1e-4);
  c.set(b);
  return c;
}

// Sums of real numbers, where the order shows: compared by the sum of absolute values.
Case real_sum(Random& random) {
  const std::vector<int64_t> size = random_sizes(random, 1, 4, 20000);
  Case c(NPU_REDUCE, size, static_cast<int>(random.between(0, static_cast<int64_t>(size.size()))));
  static const std::vector<int> reals = {NPU_F32, NPU_F16, NPU_BF16, NPU_F64};
  const int dtype = random.pick(reals), compute = npu::compute_dtype(dtype);
  Builder b("real_sum");
  Id x = b.load(c.input(random, dtype, Data::kReal), compute);
  if (random.chance(50)) x = b.op(NPU_OP_MUL, x, b.load(c.input(random, dtype, Data::kReal), compute));
  const Id sum = b.fold(NPU_FOLD_SUM, x);
  b.segment(NPU_SEGMENT_ROW);
  b.store(c.output(random, random.chance(50) ? dtype : compute, false, c.command.rank - c.command.inner_rank), sum);
  c.set(b);
  c.tolerance = Tolerance::sum(inner_points(c), compute);
  return c;
}

Case random_arg(Random& random) {
  const std::vector<int64_t> size = random_sizes(random, 1, 4);
  Case c(NPU_REDUCE, size, 1);
  const int dtype = random.pick(all_dtypes()), compute = npu::compute_dtype(dtype);
  const int kept = c.command.rank - 1;
  Builder b("arg");
  const Id x = b.load(c.input(random, dtype, random.chance(50) ? Data::kSmall : Data::kSpecial), compute);
  const Id best =
      b.fold(random.chance(50) ? NPU_FOLD_ARGMAX : NPU_FOLD_ARGMIN, x, b.index(static_cast<uint32_t>(kept)));
  b.segment(NPU_SEGMENT_ROW);
  b.store(c.output(random, compute, false, kept), b.get(best, 0, compute));
  b.store(c.output(random, NPU_I64, false, kept), b.get(best, 1, NPU_I64));
  c.set(b);
  return c;
}

Case random_welford(Random& random) {
  const std::vector<int64_t> size = random_sizes(random, 1, 3);
  Case c(NPU_REDUCE, size, 1);
  const int kept = c.command.rank - 1;
  Builder b("welford");
  const Id w = b.fold(NPU_FOLD_WELFORD, b.load(c.input(random, NPU_F32, Data::kReal), NPU_F32));
  b.segment(NPU_SEGMENT_ROW);
  for (uint32_t k = 0; k < 3; k++) b.store(c.output(random, NPU_F32, false, kept), b.get(w, k, NPU_F32));
  c.set(b);
  const auto n = static_cast<double>(std::max<int64_t>(inner_points(c), 1));
  c.tolerance = Tolerance::near(n * 0x1p-22, n * 0x1p-22);  // values are of the size of 1
  return c;
}

// A tuple of three folded by a combine segment, associative as all are: sum, maximum and count of the whole numbers
// seen.
Case custom_fold(Random& random) {
  const std::vector<int64_t> size = random_sizes(random, 1, 3);
  Case c(NPU_REDUCE, size, 1);
  const int kept = c.command.rank - 1;
  Builder b("custom", NPU_SEGMENT_COMBINE);
  b.yield(0, b.op(NPU_OP_ADD, b.arg(0, NPU_F32), b.arg(3, NPU_F32)));
  b.yield(1, b.op(NPU_OP_MAX, b.arg(1, NPU_F32), b.arg(4, NPU_F32)));
  b.yield(2, b.op(NPU_OP_ADD, b.arg(2, NPU_I64), b.arg(5, NPU_I64)));
  b.segment(NPU_SEGMENT_EACH);
  const Id x = b.load(c.input(random, NPU_F32, Data::kSmall), NPU_F32);
  const Id t = b.fold(NPU_FOLD_CUSTOM, x, b.op(NPU_OP_NEG, x), b.constant(NPU_I64, 1));
  b.segment(NPU_SEGMENT_ROW);
  b.store(c.output(random, NPU_F32, false, kept), b.get(t, 0, NPU_F32));
  b.store(c.output(random, NPU_F32, false, kept), b.get(t, 1, NPU_F32));
  b.store(c.output(random, NPU_I64, false, kept), b.get(t, 2, NPU_I64));
  c.set(b);
  return c;
}

// Three segments: the largest, the sum of exponentials, the quotient.
Case softmax(Random& random) {
  Case c(NPU_REDUCE, random_sizes(random, 1, 3), 1);
  const uint32_t out = c.output(random, NPU_F32),
                 in = c.input(random, random.chance(50) ? NPU_F32 : NPU_BF16, Data::kReal);
  Builder b("softmax");
  const Id largest = b.fold(NPU_FOLD_MAX, b.load(in, NPU_F32));
  b.segment(NPU_SEGMENT_EACH);
  const Id sum = b.fold(NPU_FOLD_SUM, b.op(NPU_OP_EXP, b.op(NPU_OP_SUB, b.load(in, NPU_F32), largest)));
  b.segment(NPU_SEGMENT_EACH);
  const Id e = b.op(NPU_OP_EXP, b.op(NPU_OP_SUB, b.load(in, NPU_F32), largest));
  b.store(out, b.op(NPU_OP_DIV, e, sum));
  c.set(b);
  c.tolerance = Tolerance::near(1e-5);
  return c;
}

Case random_scan(Random& random) {
  Case c(NPU_SCAN, random_sizes(random, 1, 4), 1);
  const int dtype = random.pick(all_dtypes()), compute = npu::compute_dtype(dtype);
  const int64_t n = c.command.size[c.command.rank - 1];
  const bool real = is_real(compute) && random.chance(40);
  const uint32_t out = c.output(random, is_real(compute) ? int{NPU_F64} : dtype);
  const uint32_t in = c.input(random, dtype, real ? Data::kReal : Data::kSmall);
  Builder b("scan");
  const Id x = b.load(in, compute);
  int kind = real ? int{NPU_FOLD_SUM} : fold_kind(random, compute);
  if (is_real(compute) && kind == NPU_FOLD_PROD) kind = NPU_FOLD_MAX;
  const bool arg = !real && random.chance(25);
  const Id run = arg ? b.scan(random.chance(50) ? NPU_FOLD_ARGMAX : NPU_FOLD_ARGMIN, x,
                              b.index(static_cast<uint32_t>(c.command.rank - 1)))
                     : b.scan(kind, x);
  b.segment(NPU_SEGMENT_EACH);
  b.store(out, run);
  if (arg) b.store(c.output(random, NPU_I64), b.get(run, 1, NPU_I64));
  c.set(b);
  if (real) c.tolerance = Tolerance::sum(n, compute);
  return c;
}

Case custom_scan(Random& random) {
  Case c(NPU_SCAN, random_sizes(random, 1, 3), 1);
  Builder b("affine", NPU_SEGMENT_COMBINE);  // x -> a x + b, composed; modulo 2^64
  const Id a1 = b.arg(0, NPU_I64), b1 = b.arg(1, NPU_I64), a2 = b.arg(2, NPU_I64), b2 = b.arg(3, NPU_I64);
  b.yield(0, b.op(NPU_OP_MUL, a1, a2));
  b.yield(1, b.op(NPU_OP_FMA, b1, a2, b2));
  b.segment(NPU_SEGMENT_EACH);
  const Id run = b.scan(NPU_FOLD_CUSTOM, b.load(c.input(random, NPU_I64, Data::kSpecial), NPU_I64),
                        b.load(c.input(random, NPU_I32, Data::kSmall), NPU_I64));
  b.segment(NPU_SEGMENT_EACH);
  b.store(c.output(random, NPU_I64), b.get(run, 0, NPU_I64));
  b.store(c.output(random, NPU_I64), b.get(run, 1, NPU_I64));
  c.set(b);
  return c;
}

Case random_sort(Random& random) {
  Case c(NPU_SORT, random_sizes(random, 1, 3), 1);
  const int64_t n = c.command.size[c.command.rank - 1];
  const int dtype = random.pick(all_dtypes());
  static const std::vector<int> whole = {NPU_I64, NPU_I32, NPU_U8, NPU_I16};
  c.command.u.sort.count = random.chance(70) ? n : random.between(0, n);
  c.command.u.sort.descending = random.chance(50);
  c.command.u.sort.stable = 1;
  std::vector<int64_t> result(c.command.size, c.command.size + c.command.rank);
  result.back() = c.command.u.sort.count;
  c.input(random, dtype, random.chance(50) ? Data::kSmall : Data::kSpecial);
  const int payload = random.pick(whole);
  if (random.chance(60))
    c.immediate(random, NPU_I64, Data::kZero);
  else
    c.input(random, payload, Data::kSpecial);
  c.output(random, dtype, false, -1, result);
  c.output(random, random.chance(70) ? int{NPU_I64} : payload, false, -1, result);
  return c;
}

// Any order of equals is right: the keys agree, and the payload says where each came from.
Case unstable_sort(Random& random) {
  Case c(NPU_SORT, {random.between(1, 8), random.between(1, 700)}, 1);
  const int64_t rows = c.command.size[0], n = c.command.size[1];
  static const std::vector<int> keys = {NPU_F32, NPU_BF16, NPU_I64, NPU_U8, NPU_BOOL};
  const int64_t count = random.chance(60) ? n : random.between(1, n);
  c.command.u.sort.count = count;
  c.command.u.sort.descending = random.chance(50);
  c.input(random, random.pick(keys), Data::kSmall, true);
  c.immediate(random, NPU_I64, Data::kZero);
  c.output(random, c.operands[0].dtype, true, -1, {rows, count});
  c.output(random, NPU_I64, true, -1, {rows, count});
  c.checked_buffer = c.buffer_of(3);
  const Case shape = c;
  c.check = [rows, n, count, shape](const std::vector<Buffer>& before, const Buffer& want, const Buffer& got) {
    for (int64_t row = 0; row < rows; row++) {
      std::set<int64_t> seen;
      for (int64_t i = 0; i < count; i++) {
        const auto at = static_cast<int64_t>(take(got, row * count + i));
        expect(at >= 0 && at < n && seen.insert(at).second, "row ", row, ": payload ", i, " is ", at,
               ", out of range or there twice\n", shape.describe());
        const auto should = static_cast<int64_t>(take(want, row * count + i));
        expect(take(before[0], row * n + at) == take(before[0], row * n + should), "row ", row, ": payload ", i, " is ",
               at, ", whose key is not the one sorted there\n", shape.describe());
      }
    }
  };
  return c;
}

}  // namespace

RANDOM_TEST("REDUCE: random folds over random dimensions, masks and phases", random_reduce);
RANDOM_TEST("REDUCE: rows in short pieces", folds_of_pieces);
RANDOM_TEST("REDUCE: several tensors in one segment", folds_of_tensors);
RANDOM_TEST("REDUCE: sums of real numbers", real_sum);
RANDOM_TEST("REDUCE: argmax and argmin with ties and NaN", random_arg);
RANDOM_TEST("REDUCE: Welford", random_welford);
RANDOM_TEST("REDUCE: a custom fold of three members", custom_fold);
RANDOM_TEST("REDUCE: softmax in three segments", softmax);
RANDOM_TEST("SCAN: random scans", random_scan);
RANDOM_TEST("SCAN: a custom scan of two members", custom_scan);
RANDOM_TEST("SORT: stable, with NaN and duplicates, any payload", random_sort);
RANDOM_TEST("SORT: unstable, equals in any order", unstable_sort);
