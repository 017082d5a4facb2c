// REDUCE, SCAN, SORT and SCATTER at the places where kernels change over: lengths of tiles and one beside them along
// rows and along columns, every type, signs that an accumulator from zero would hide, a NaN at every end.
#include <algorithm>
#include <cmath>

#include "tools/driver_test/command/case.h"
#include "tools/driver_test/command/programs.h"

using namespace driver_test;

namespace {

bool is_real(int compute) {
  return compute == NPU_F32 || compute == NPU_F64;
}

void run(const Context& context, Rig& rig, Case c) {
  c.sharpen(context);
  c.run(rig);
}

Buffer& buffer_of(Case& c, uint32_t operand) {
  return c.buffers[static_cast<size_t>(c.buffer_of(operand))];
}

// All below 0, or all above.
void make_signed(Case& c, uint32_t operand, double sign) {
  Buffer& buffer = buffer_of(c, operand);
  for (int64_t i = 0; i < buffer.elements; i++) put(buffer, i, sign * (1 + std::abs(take(buffer, i))));
}

// out[row] = fold of row `n` long; `across`: neighbours in memory belong to different rows.
Case fold(Random& random, int kind, int dtype, int64_t n, bool across) {
  const int compute = npu::compute_dtype(dtype);
  const int64_t rows = 5;
  Case c(NPU_REDUCE, {rows, n}, 1);
  Builder b("fold");
  const bool order = kind == NPU_FOLD_MAX || kind == NPU_FOLD_MIN;
  const std::vector<int64_t> strides = across ? std::vector<int64_t>{1, rows} : std::vector<int64_t>{n, 1};
  c.at_strides(random, dtype, Data::kSmall, {rows, n}, strides);
  if (order && (is_real(compute) || dtype == NPU_I8 || dtype == NPU_I16 || dtype == NPU_I32 || dtype == NPU_I64))
    make_signed(c, 0, kind == NPU_FOLD_MAX ? -1 : 1);
  if (kind == NPU_FOLD_PROD)
    for (int64_t i = 0; i < c.buffers[0].elements; i++) put(c.buffers[0], i, random.chance(85) ? 1 : 2);
  const Id folded = b.fold(kind, b.load(0, compute));
  b.segment(NPU_SEGMENT_ROW);
  b.store(c.output(random, compute, true, 1), folded);
  c.set(b);
  return c;
}

std::vector<int> kinds_of(int dtype) {
  const int compute = npu::compute_dtype(dtype);
  std::vector<int> kinds = {NPU_FOLD_MAX, NPU_FOLD_MIN};
  if (compute != NPU_BOOL) kinds.insert(kinds.end(), {NPU_FOLD_SUM, NPU_FOLD_PROD});
  if (!is_real(compute)) kinds.insert(kinds.end(), {NPU_FOLD_AND, NPU_FOLD_OR, NPU_FOLD_XOR});
  return kinds;
}

// A NaN at `place` of each row, and largest and smallest elsewhere.
Case with_nan(Random& random, int kind, int64_t n, int64_t place) {
  Case c(NPU_REDUCE, {3, n}, 1);
  Builder b("nan");
  c.at_strides(random, NPU_F32, Data::kReal, {3, n}, {n, 1});
  for (int64_t row = 0; row < 3; row++) put(c.buffers[0], c.offset_of(0) + row * n + place, NAN);
  const Id x = b.load(0, NPU_F32);
  const bool arg = kind == NPU_FOLD_ARGMAX || kind == NPU_FOLD_ARGMIN;
  const Id folded = arg ? b.fold(kind, x, b.index(1)) : b.fold(kind, x);
  b.segment(NPU_SEGMENT_ROW);
  if (arg)
    b.store(c.output(random, NPU_I64, true, 1), b.get(folded, 1, NPU_I64));
  else
    b.store(c.output(random, NPU_F32, true, 1), folded);
  c.set(b);
  return c;
}

}  // namespace

TEST("REDUCE: lengths of tiles and one beside them, along rows and along columns") {
  Rig rig(context);
  static const std::vector<int> kinds = {NPU_FOLD_SUM, NPU_FOLD_MAX, NPU_FOLD_MIN, NPU_FOLD_PROD};
  const auto lengths = static_cast<int64_t>(tile_sizes().size());
  cases(context, context.chosen(lengths * 8), [&](Random& random, int64_t number) {
    const int kind = kinds[static_cast<size_t>(number / lengths % 4)];
    run(context, rig,
        fold(random, kind, NPU_F32, tile_sizes()[static_cast<size_t>(number % lengths)], number >= lengths * 4));
  });
}

TEST("REDUCE: every kind of fold of every type") {
  Rig rig(context);
  std::vector<std::pair<int, int>> all;
  for (const int dtype : all_dtypes())
    for (const int kind : kinds_of(dtype)) all.push_back({kind, dtype});
  cases(context, context.chosen(static_cast<int64_t>(all.size()) * 2), [&](Random& random, int64_t number) {
    const auto [kind, dtype] = all[static_cast<size_t>(number / 2)];
    run(context, rig, fold(random, kind, dtype, 37, number % 2));
  });
}

TEST("REDUCE: a NaN at the first, the last and other places wins") {
  Rig rig(context);
  static const std::vector<int> kinds = {NPU_FOLD_MAX, NPU_FOLD_MIN, NPU_FOLD_ARGMAX, NPU_FOLD_ARGMIN};
  static const std::vector<int64_t> lengths = {1, 2, 15, 16, 17, 33, 64, 65};
  cases(context, context.chosen(4 * 8 * 3), [&](Random& random, int64_t number) {
    const int64_t n = lengths[static_cast<size_t>(number / 3 % 8)];
    const int64_t places[3] = {0, n - 1, n / 2};
    run(context, rig, with_nan(random, kinds[static_cast<size_t>(number / 24)], n, places[number % 3]));
  });
}

TEST("REDUCE: rows without an element yield the identity of every fold") {
  Rig rig(context);
  std::vector<std::pair<int, int>> all;
  for (const int dtype : all_dtypes())
    for (const int kind : kinds_of(dtype)) all.push_back({kind, dtype});
  for (const int dtype : {NPU_F32, NPU_I32, NPU_U64, NPU_BOOL})
    for (const int kind : {NPU_FOLD_ARGMAX, NPU_FOLD_ARGMIN}) all.push_back({kind, dtype});
  cases(context, context.chosen(static_cast<int64_t>(all.size()) * 2), [&](Random& random, int64_t number) {
    const auto [kind, dtype] = all[static_cast<size_t>(number / 2)];
    const int compute = npu::compute_dtype(dtype);
    const bool masked = number % 2;  // no element because none is there, or because all are masked off
    Case c(NPU_REDUCE, {4, masked ? 20 : 0}, 1);
    Builder b("empty");
    const Id x = b.load(c.input(random, dtype, Data::kSmall, true), compute);
    const Id off = masked ? b.constant(NPU_BOOL, 0) : none;
    const bool arg = kind == NPU_FOLD_ARGMAX || kind == NPU_FOLD_ARGMIN;
    const Id folded = b.fold(kind, x, arg ? b.index(1) : none, none, off);
    b.segment(NPU_SEGMENT_ROW);
    b.store(c.output(random, compute, true, 1), folded);
    if (arg) b.store(c.output(random, NPU_I64, true, 1), b.get(folded, 1, NPU_I64));
    c.set(b);
    run(context, rig, std::move(c));
  });
}

TEST("REDUCE: argmax and argmin of elements that are the identity give the first one's index") {
  Rig rig(context);
  struct Least {
    int kind, dtype;
    double value;
  };
  const std::vector<Least> all = {{NPU_FOLD_ARGMAX, NPU_F32, -INFINITY},
                                  {NPU_FOLD_ARGMIN, NPU_F32, INFINITY},
                                  {NPU_FOLD_ARGMAX, NPU_I32, -2147483648.0},
                                  {NPU_FOLD_ARGMIN, NPU_I32, 2147483647},
                                  {NPU_FOLD_ARGMAX, NPU_BOOL, 0},
                                  {NPU_FOLD_ARGMIN, NPU_BOOL, 1}};
  cases(context, context.chosen(static_cast<int64_t>(all.size()) * 2), [&](Random& random, int64_t number) {
    const Least& least = all[static_cast<size_t>(number / 2)];
    const int64_t n = number % 2 ? 37 : 1;
    Case c(NPU_REDUCE, {3, n}, 1);
    Builder b("identity");
    const uint32_t in = c.at_strides(random, least.dtype, Data::kZero, {3, n}, {n, 1});
    for (int64_t i = 0; i < buffer_of(c, in).elements; i++) put(buffer_of(c, in), i, least.value);
    const Id best = b.fold(least.kind, b.load(in, npu::compute_dtype(least.dtype)), b.index(1));
    b.segment(NPU_SEGMENT_ROW);
    b.store(c.output(random, NPU_I64, true, 1), b.get(best, 1, NPU_I64));
    c.set(b);
    run(context, rig, std::move(c));
  });
}

TEST("SCAN: lengths of tiles and one beside them") {
  Rig rig(context);
  static const std::vector<int> kinds = {NPU_FOLD_SUM, NPU_FOLD_MAX, NPU_FOLD_MIN, NPU_FOLD_XOR};
  const auto lengths = static_cast<int64_t>(tile_sizes().size());
  cases(context, context.chosen(lengths * 8), [&](Random& random, int64_t number) {
    const int kind = kinds[static_cast<size_t>(number / lengths % 4)];
    const int dtype = kind == NPU_FOLD_XOR ? NPU_I32 : number >= lengths * 4 ? NPU_I64 : NPU_F32;
    const int compute = npu::compute_dtype(dtype);
    const int64_t n = tile_sizes()[static_cast<size_t>(number % lengths)];
    Case c(NPU_SCAN, {3, n}, 1);
    Builder b("scan");
    c.at_strides(random, dtype, Data::kSmall, {3, n}, {n, 1});
    if (kind == NPU_FOLD_MAX || kind == NPU_FOLD_MIN) make_signed(c, 0, kind == NPU_FOLD_MAX ? -1 : 1);
    const Id running = b.scan(kind, b.load(0, compute));
    b.segment(NPU_SEGMENT_EACH);
    b.store(c.output(random, compute, true), running);
    c.set(b);
    run(context, rig, std::move(c));
  });
}

TEST("SORT: lengths of tiles and one beside them, both directions, all and some") {
  Rig rig(context);
  static const std::vector<int> dtypes = {NPU_F32, NPU_I32, NPU_BF16, NPU_I64, NPU_U8};
  const auto lengths = static_cast<int64_t>(tile_sizes().size());
  cases(context, context.chosen(lengths * 4), [&](Random& random, int64_t number) {
    const int64_t n = tile_sizes()[static_cast<size_t>(number % lengths)];
    const int64_t count = number / lengths % 2 ? n / 2 : n;
    const int dtype = dtypes[static_cast<size_t>(number) % dtypes.size()];
    Case c(NPU_SORT, {3, n}, 1);
    c.command.u.sort = {count, static_cast<uint8_t>(number / lengths / 2), 1, {}};
    c.at_strides(random, dtype, number % 3 ? Data::kSpecial : Data::kSmall, {3, n}, {n, 1});
    c.immediate(random, NPU_I64, Data::kZero);
    c.output(random, dtype, true, -1, {3, count});
    c.output(random, NPU_I64, true, -1, {3, count});
    run(context, rig, std::move(c));
  });
}

TEST("SCATTER: every mode of every type, many stores to few places") {
  Rig rig(context);
  const auto types = static_cast<int64_t>(all_dtypes().size());
  cases(context, context.chosen(types * 5), [&](Random& random, int64_t number) {
    const int dtype = all_dtypes()[static_cast<size_t>(number / 5)], compute = npu::compute_dtype(dtype);
    int mode = static_cast<int>(number % 5);
    if (dtype == NPU_BOOL && (mode == NPU_STORE_ADD || mode == NPU_STORE_MUL)) mode = NPU_STORE_SET;
    Case c(NPU_SCATTER, {130});
    Builder b("scatter");
    c.table(random, dtype, 7, Data::kSmall);
    c.at_strides(random, NPU_I64, Data::kZero, {130}, {1});
    for (int64_t i = 0; i < c.buffers[1].elements; i++) put(c.buffers[1], i, static_cast<double>(random.below(7)));
    c.at_strides(random, dtype, Data::kSmall, {130}, {1});
    if (mode == NPU_STORE_MUL)  // products of ones and a few twos are exact
      for (int64_t i = 0; i < c.buffers[2].elements; i++) put(c.buffers[2], i, random.chance(96) ? 1 : 2);
    b.store_at(0, b.load(2, compute), b.load(1, NPU_I64), mode);
    c.set(b);
    run(context, rig, std::move(c));
  });
}

TEST("MAP: indices at both ends, wrapped and not, and one beyond that 32 bits would take for good") {
  Rig rig(context);
  struct Index {
    double value;
    int dtype, flags;
  };
  constexpr int both = NPU_INDEX_WRAP | NPU_INDEX_CHECK;
  const std::vector<Index> all = {{0, NPU_I64, both},
                                  {-1, NPU_I64, both},
                                  {-20, NPU_I64, both},
                                  {19, NPU_I64, both},
                                  {-1, NPU_I32, both},
                                  {-20, NPU_I32, both},
                                  {20, NPU_I64, both},
                                  {-21, NPU_I64, both},
                                  {20, NPU_I32, both},
                                  {-1, NPU_I64, NPU_INDEX_CHECK},
                                  {4294967299.0, NPU_I64, both},
                                  {-4294967295.0, NPU_I64, both},
                                  {5, NPU_I64, NPU_INDEX_CHECK},
                                  {-3, NPU_I64, NPU_INDEX_WRAP}};
  cases(context, context.chosen(static_cast<int64_t>(all.size())), [&](Random& random, int64_t number) {
    const Index& index = all[static_cast<size_t>(number)];
    Case c(NPU_MAP, {65});
    Builder b("index");
    c.output(random, NPU_F32, true);
    c.at_strides(random, index.dtype, Data::kZero, {65}, {1});
    put(c.buffers[1], c.offset_of(1) + 37, index.value);
    c.table(random, NPU_F32, 20, Data::kReal);
    const Id given = b.load(1, index.dtype);
    const Id checked = b.check_index(given, b.constant(index.dtype, 20), index.flags);
    b.store(0, b.load_at(2, NPU_F32, index.dtype == NPU_I32 ? b.cast(checked, NPU_I64) : checked));
    c.set(b);
    run(context, rig, std::move(c));
  });
}
