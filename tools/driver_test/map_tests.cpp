// COPY, MAP and SCATTER against the reference.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/program/op_info.h"
#include "tools/driver_test/case.h"
#include "tools/driver_test/programs.h"

using namespace driver_test;

namespace {

bool is_real(int dtype) {
  return dtype >= NPU_F16 && dtype <= NPU_F64;
}

npu_scalar scalar(Random& random, int compute) {
  npu_scalar s{};
  if (compute == NPU_F32 || compute == NPU_F64)
    s.f = random.unit() * 8 - 4;
  else
    s.i = compute == NPU_BOOL ? random.below(2) : compute == NPU_U64 ? random.below(9) : random.between(-9, 9);
  return s;
}

// Loads, parameters, indices and constants: what a random program starts from.
void sources(Random& random, Case& c, Grower& grower, Data data) {
  Builder& b = grower.b;
  const auto inputs = random.between(1, 3);
  for (int i = 0; i < inputs; i++) {
    const int dtype = random.pick(all_dtypes());
    const uint32_t operand = random.chance(15) ? c.immediate(random, dtype, data) : c.input(random, dtype, data);
    const int compute = random.chance(80) ? npu::compute_dtype(dtype) : random.pick(compute_dtypes());
    const Id mask = i > 0 && random.chance(25) ? grower.pick(NPU_BOOL) : none;
    grower.give(b.load(operand, compute, mask));
  }
  if (random.chance(30)) {
    const int compute = random.pick(compute_dtypes());
    c.params.push_back(scalar(random, compute));
    grower.give(b.param(compute, static_cast<uint32_t>(c.params.size() - 1)));
  }
  if (random.chance(30)) grower.give(b.constant(random.pick(compute_dtypes()), random.chance(50) ? 1 : 0));
  if (c.command.rank && random.chance(40)) {
    const auto d = static_cast<uint32_t>(random.below(c.command.rank));
    grower.give(random.chance(50) ? b.index(d, random.chance(50) ? NPU_I64 : NPU_I32) : b.size(d));
  }
}

Case random_map(Random& random) {
  Case c(NPU_MAP, random_sizes(random, 0, 8, random.chance(10) ? 30000 : 3000));
  Builder b("random");
  Grower grower(b, random);
  const auto outputs = random.between(1, 2);
  for (int i = 0; i < outputs; i++) c.output(random, random.pick(all_dtypes()));
  if (random.chance(20))  // in place
    grower.give(b.load(0, npu::compute_dtype(c.operands[0].dtype)));
  sources(random, c, grower, random.chance(50) ? Data::kSpecial : Data::kReal);
  grower.grow(static_cast<int>(random.between(1, 14)));
  for (uint32_t i = 0; i < outputs; i++) {
    const Id mask = grower.mask();
    b.store(i, random.chance(70) ? static_cast<Id>(grower.pick_any()) : grower.pick(random.pick(compute_dtypes())),
            mask);
  }
  c.set(b);
  return c;
}

// One instruction on contiguous data of one type: the first thing a driver makes fast.
Case one_op(Random& random) {
  static const std::vector<int> ops = {NPU_OP_ADD, NPU_OP_SUB, NPU_OP_MUL,  NPU_OP_DIV, NPU_OP_MIN, NPU_OP_MAX,
                                       NPU_OP_NEG, NPU_OP_ABS, NPU_OP_SQRT, NPU_OP_FMA, NPU_OP_EQ,  NPU_OP_LT};
  const int op = random.pick(ops);
  const npu::OpInfo& info = npu::op_info(op);
  std::vector<int> fit;
  for (int dtype : all_dtypes())
    if (npu::dtype_class(npu::compute_dtype(dtype)) & info.types) fit.push_back(dtype);
  const int dtype = random.pick(fit), compute = npu::compute_dtype(dtype);
  const bool plain = random.chance(60);
  Case c(NPU_MAP, random_sizes(random, 1, 3, random.chance(20) ? 100000 : 5000));
  Builder b("one_op");
  c.output(random, info.result == npu::Result::kBool ? int{NPU_BOOL} : dtype, plain);
  Id args[3] = {none, none, none};
  for (int i = 0; i < info.args; i++)
    args[i] =
        b.load(random.chance(10) ? c.immediate(random, dtype, Data::kReal)
                                 : c.input(random, dtype, random.chance(50) ? Data::kReal : Data::kSpecial, plain),
               compute);
  b.store(0, b.emit(op, info.result == npu::Result::kBool ? int{NPU_BOOL} : compute, args[0], args[1], args[2]));
  c.set(b);
  return c;
}

// The first command of most drivers: docs/driver-guide.md.
Case plain_add(Random& random) {
  Case c(NPU_MAP, {random.chance(50) ? random.between(0, 70) : random.between(1, 20000)});
  Builder b("add");
  const Id x = b.load(1, NPU_F32), y = b.load(2, NPU_F32);
  b.store(0, b.op(NPU_OP_ADD, x, y));
  c.set(b);
  c.output(random, NPU_F32, true);
  c.input(random, NPU_F32, Data::kReal, true);
  c.input(random, NPU_F32, Data::kSpecial, true);
  return c;
}

Case random_function(Random& random) {
  const Inexact& f = random.pick(inexact_ops());
  static const std::vector<int> reals = {NPU_F32, NPU_F32, NPU_F16, NPU_BF16, NPU_F64};
  const int dtype = random.pick(reals), compute = npu::compute_dtype(dtype);
  Case c(NPU_MAP, random_sizes(random, 1, 2, 2000));
  Builder b("function");
  c.output(random, dtype);
  Id args[2] = {none, none};
  for (int i = 0; i < npu::op_info(f.op).args; i++)
    args[i] = b.load(c.input(random, dtype, random.chance(70) ? Data::kReal : Data::kSpecial), compute);
  b.store(0, b.emit(f.op, compute, args[0], args[1]));
  c.set(b);
  c.tolerance = Tolerance::ulp(f.ulp, f.absolute);
  return c;
}

Case random_copy(Random& random) {
  Case c(NPU_COPY, random_sizes(random, 0, 8, random.chance(20) ? 30000 : 3000));
  const int to = random.pick(all_dtypes()), from = random.chance(40) ? to : random.pick(all_dtypes());
  c.output(random, to, random.chance(30));
  if (random.chance(20))
    c.immediate(random, from, Data::kSpecial);
  else
    c.input(random, from, random.chance(50) ? Data::kSpecial : Data::kReal, random.chance(30));
  return c;
}

// A program that only moves: what COPY does.
Case random_moves(Random& random) {
  Case c(NPU_MAP, random_sizes(random, 0, 4));
  Builder b("moves");
  const auto outputs = static_cast<uint32_t>(random.between(1, 3));
  for (uint32_t i = 0; i < outputs; i++) c.output(random, random.pick(all_dtypes()));
  std::vector<Id> loaded;
  for (uint32_t i = 0; i < outputs; i++) {
    const int dtype = random.pick(all_dtypes());
    const uint32_t from = random.chance(15)   ? i
                          : random.chance(20) ? c.immediate(random, dtype, Data::kSpecial)
                                              : c.input(random, dtype, Data::kSpecial);
    loaded.push_back(b.load(from, npu::compute_dtype(c.operands[from].dtype)));
  }
  for (uint32_t i = 0; i < outputs; i++) b.store(i, loaded[i]);
  c.set(b);
  return c;
}

// out[table index from memory] : load_at with wrap and a check that holds.
Case random_gather(Random& random) {
  Case c(NPU_MAP, random_sizes(random, 1, 4));
  const int dtype = random.pick(all_dtypes()), compute = npu::compute_dtype(dtype);
  const int64_t n = random.between(1, 500);
  Builder b("gather");
  c.output(random, dtype);
  const int index_dtype = random.chance(50) ? NPU_I64 : NPU_I32;
  c.input(random, index_dtype, Data::kZero);
  const bool breaks = random.chance(10);
  Buffer& indices = c.buffers[1];
  for (int64_t i = 0; i < indices.elements; i++)
    put(indices, i, static_cast<double>(random.between(breaks && random.chance(2) ? -2 * n - 5 : -n, n - 1)));
  c.table(random, dtype, n, Data::kSpecial);
  const Id index = b.load(1, NPU_I64);
  const Id checked =
      b.check_index(index, b.constant(NPU_I64, static_cast<double>(n)), NPU_INDEX_WRAP | NPU_INDEX_CHECK);
  b.store(0, b.load_at(2, compute, checked));
  c.set(b);
  return c;
}

// A masked load_at may have an offset that points nowhere.
Case masked_gather(Random& random) {
  Case c(NPU_MAP, {random.between(1, 300)});
  const int64_t n = random.between(1, 200);
  Builder b("masked_gather");
  c.output(random, NPU_F32);
  c.table(random, NPU_F32, n, Data::kReal);
  const Id index = b.index(0);
  const Id shifted = b.op(NPU_OP_SUB, index, b.constant(NPU_I64, 50));
  const Id inside = b.emit(NPU_OP_AND, NPU_BOOL, b.compare(NPU_OP_GE, shifted, b.constant(NPU_I64, 0)),
                           b.compare(NPU_OP_LT, shifted, b.constant(NPU_I64, static_cast<double>(n))));
  b.store(0, b.load_at(1, NPU_F32, shifted, inside));
  c.set(b);
  return c;
}

Case random_scatter(Random& random) {
  Case c(NPU_SCATTER, random_sizes(random, 1, 3, 2000));
  const std::vector<int>& dtypes = all_dtypes();
  const auto mode = static_cast<int>(random.below(5));
  int dtype = random.pick(dtypes);
  if (dtype == NPU_BOOL && (mode == NPU_STORE_ADD || mode == NPU_STORE_MUL)) dtype = NPU_F32;
  const int compute = npu::compute_dtype(dtype);
  int64_t points = 1;
  for (int d = 0; d < c.command.rank; d++) points *= c.command.size[d];
  const bool apart = random.chance(30);  // every place at most once
  const int64_t n = std::max<int64_t>(apart ? points : random.between(1, 300), 1);
  Builder b("scatter");
  // Whole numbers, so that the order of additions does not show; products of 1 and -1.
  c.table(random, dtype, n, mode == NPU_STORE_MUL && is_real(dtype) ? Data::kReal : Data::kSmall);
  c.input(random, NPU_I64, Data::kZero, true);
  Buffer& indices = c.buffers[1];
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; i--)
    std::swap(order[i - 1], order[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  for (int64_t i = 0; i < indices.elements; i++)
    put(indices, i, static_cast<double>(apart ? order[static_cast<size_t>(i % n)] : random.below(n)));
  c.input(random, dtype, Data::kSmall);
  if (mode == NPU_STORE_MUL && is_real(dtype))
    for (int64_t i = 0; i < c.buffers[2].elements; i++) put(c.buffers[2], i, random.chance(50) ? 1 : -1);
  const Id value = b.load(2, compute), index = b.load(1, NPU_I64);
  const Id mask = random.chance(30) ? b.compare(NPU_OP_GE, b.load(2, NPU_F32), b.constant(NPU_F32, 0)) : none;
  Id offset = index;
  if (random.chance(50)) offset = b.check_index(index, b.constant(NPU_I64, static_cast<double>(n)), NPU_INDEX_CHECK);
  b.store_at(0, value, offset, mode, mask);
  c.set(b);
  return c;
}

// Where a scatter's rows and columns lie in memory that is a dense array, with one dimension that is looked up:
// planes, index, columns. The index may differ from plane to plane or not; the table may have a limit or not.
struct Lookup {
  int64_t planes, rows, columns, points;
  bool own_index;  // a plane has its own
};

// A table's elements are [planes][rows][columns]; the space is planes x points x columns.
uint32_t add_table(Random& random, Case& c, int dtype, const Lookup& at) {
  const uint32_t table = c.table(random, dtype, at.planes * at.rows * at.columns, Data::kSmall);
  c.operands[table].stride[0] = at.rows * at.columns;
  c.operands[table].stride[2] = 1;
  if (random.chance(60)) c.operands[table].limit = 0;
  return table;
}

// Like index_add of the middle dimension: offsets are index * columns, where sizes come as parameters. Some indices are
// out of range, some points are masked off, and there may be a second target, or a second store to the first one.
Case scatter_of_rows(Random& random) {
  const Lookup at{random.between(1, 4), random.between(1, 40), random.between(1, 6), random.between(1, 60),
                  random.chance(50)};
  Case c(NPU_SCATTER, {at.planes, at.points, at.columns});
  static const std::vector<int> types = {NPU_F32, NPU_I64, NPU_BF16, NPU_U8, NPU_F64, NPU_I32};
  const int dtype = random.pick(types), compute = npu::compute_dtype(dtype);
  const auto mode = static_cast<int>(random.chance(40) ? NPU_STORE_ADD : random.pick(std::vector<int>{0, 3, 4}));
  const uint32_t table = add_table(random, c, dtype, at);
  const uint32_t index = c.input(random, NPU_I64, Data::kZero, true);
  if (!at.own_index) c.operands[index].stride[0] = 0;
  c.operands[index].stride[1] = 1;
  c.operands[index].stride[2] = 0;
  const bool breaks = random.chance(8);
  Buffer& indices = c.buffers[static_cast<size_t>(c.buffer_of(index))];
  for (int64_t i = 0; i < indices.elements; i++)
    put(indices, i,
        static_cast<double>(random.between(breaks && random.chance(3) ? -2 * at.rows : -at.rows, at.rows - 1)));
  const uint32_t source = c.input(random, dtype, Data::kSmall);
  Builder b("rows");
  const auto number = [&](int64_t value) {
    c.params.push_back({.i = value});
    return b.param(NPU_I64, static_cast<uint32_t>(c.params.size() - 1));
  };
  const Id raw = b.load(index, NPU_I64), value = b.load(source, compute);
  const Id mask = random.chance(30) ? b.compare(NPU_OP_NE, raw, b.constant(NPU_I64, 0)) : none;
  const Id row = b.check_index(raw, number(at.rows), NPU_INDEX_WRAP | NPU_INDEX_CHECK, mask);
  const Id offset = b.op(NPU_OP_MUL, row, number(at.columns));
  b.store_at(table, value, offset, mode, mask);
  if (random.chance(30)) b.store_at(table, b.op(NPU_OP_MAX, value, b.constant(compute, 1)), offset, mode, mask);
  if (random.chance(30)) {
    const uint32_t other = add_table(random, c, dtype, at);
    b.store_at(other, value, offset, NPU_STORE_ADD, mask);
  }
  if (random.chance(30)) b.store(c.output(random, dtype), value);
  c.set(b);
  return c;
}

// A plane's own windows lie on top of each other: strides alone say where points meet, as in the gradient of unfold.
Case scatter_of_windows(Random& random) {
  const int64_t windows = random.between(1, 30), width = random.between(1, 9), step = random.between(1, 5);
  Case c(NPU_SCATTER, {random.between(1, 3), windows, width});
  const int64_t plane = (windows - 1) * step + width;
  const uint32_t table = c.table(random, NPU_F32, c.command.size[0] * plane, Data::kSmall);
  const int64_t strides[3] = {plane, step, 1};
  std::copy_n(strides, 3, c.operands[table].stride);
  if (random.chance(50)) c.operands[table].limit = 0;
  Builder b("windows");
  const Id value = b.load(c.input(random, NPU_F32, Data::kSmall), NPU_F32);
  b.store_at(table, value, b.constant(NPU_I64, 0), random.chance(70) ? NPU_STORE_ADD : NPU_STORE_SET);
  c.set(b);
  return c;
}

}  // namespace

RANDOM_TEST("COPY: random types, strides, fills", random_copy);
RANDOM_TEST("MAP: add of contiguous F32", plain_add);
RANDOM_TEST("MAP: one instruction on every type", one_op);
RANDOM_TEST("MAP: every function within its budget", random_function);
RANDOM_TEST("MAP: random programs with masks, casts, indices, immediates, in place", random_map);
RANDOM_TEST("MAP: programs that only move", random_moves);
RANDOM_TEST("MAP: load_at with wrapped and checked indices, some of them bad", random_gather);
RANDOM_TEST("MAP: a masked load touches nothing", masked_gather);
RANDOM_TEST("SCATTER: set, add, mul, max and min", random_scatter);
RANDOM_TEST("SCATTER: rows of a table, some of them bad, several stores", scatter_of_rows);
RANDOM_TEST("SCATTER: windows that overlap", scatter_of_windows);

TEST("MAP: signs, bit patterns and shifts by hand") {
  Rig rig(context);
  Random random(context.seed);
  Case c(NPU_MAP, {9});
  Builder b("bits");
  c.output(random, NPU_BOOL, true);
  c.output(random, NPU_F32, true);
  c.output(random, NPU_I32, true);
  c.output(random, NPU_F64, true);
  c.input(random, NPU_F32, Data::kZero, true);
  c.input(random, NPU_I32, Data::kZero, true);
  const double x[9] = {0.0, -0.0, 1.5, -1.5, INFINITY, -INFINITY, 1e-40, -3e38, 2.5};
  const double k[9] = {0, 1, 31, 32, 33, -1, -2147483648.0, 2147483647, 5};
  for (int i = 0; i < 9; i++) {
    put(c.buffers[4], i, x[i]);
    put(c.buffers[5], i, k[i]);
  }
  const Id f = b.load(4, NPU_F32), n = b.load(5, NPU_I32);
  b.store(0, b.compare(NPU_OP_SIGNBIT, f));
  b.store(1, b.op(NPU_OP_COPYSIGN, b.constant(NPU_F32, 3), f));
  const Id pattern = b.emit(NPU_OP_BITCAST, NPU_I32, f, none, none, NPU_F32 | NPU_I32 << 8);
  b.store(2, b.op(NPU_OP_XOR, b.op(NPU_OP_SHR, pattern, n), b.op(NPU_OP_SHL, pattern, n)));
  b.store(3, b.op(NPU_OP_DIV, b.cast(b.op(NPU_OP_ROUND, f), NPU_F64), b.constant(NPU_F64, 3)));
  c.set(b);
  c.run(rig);
  conclude(context);
}

TEST("MAP: an index space of no points does nothing, one of rank 0 has one point") {
  Rig rig(context);
  Random random(context.seed);
  for (const std::vector<int64_t>& size : {std::vector<int64_t>{}, {0}, {3, 0}, {0, 5}, {1, 1, 1, 1, 1, 1, 1, 1}}) {
    Case c(NPU_MAP, size);
    Builder b("points");
    b.store(0, b.op(NPU_OP_NEG, b.load(1, NPU_F32)));
    c.set(b);
    c.output(random, NPU_F32);
    c.input(random, NPU_F32, Data::kReal);
    c.run(rig);
  }
  conclude(context);
}
