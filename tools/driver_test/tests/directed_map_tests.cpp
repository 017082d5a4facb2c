// MAP and COPY at the places where kernels change over: every type at the lengths of vectors and tiles, every layout of
// either side, every pair of types, and every instruction on the values at the edges of its type.
#include <algorithm>
#include <cmath>
#include <limits>

#include "support/program/op_info.h"
#include "tools/driver_test/command/case.h"
#include "tools/driver_test/command/programs.h"

using namespace driver_test;

namespace {

// How a matrix of 19 rows and 33 columns may lie; what is only read may also broadcast.
std::vector<std::vector<int64_t>> layouts(bool written) {
  std::vector<std::vector<int64_t>> all = {{33, 1},  {1, 19},  {35, 1},   {66, 2},
                                           {-33, 1}, {33, -1}, {-33, -1}, {-1, -19}};
  if (!written) all.insert(all.end(), {{0, 1}, {1, 0}, {0, 0}, {0, -1}});
  return all;
}

// Numbers at the edges of a compute type, as what a buffer of its storage type may hold.
std::vector<double> edges(int compute) {
  if (compute == NPU_BOOL) return {0, 1};
  if (compute == NPU_U64) return {0, 1, 2, 3, 7, 63, 64, 1e9, 9223372036854775808.0, 18446744073709549568.0};
  if (compute == NPU_I32) return {0, 1, -1, 2, -2, 3, -3, 7, -7, 31, 32, 33, -31, 65536, 2147483647.0, -2147483648.0};
  if (compute == NPU_I64)
    return {0, 1, -1, 2, -2, 3, -3, 7, -7, 63, 64, 65, 4294967296.0, -4294967297.0, 9223372036854774784.0, -0x1p63};
  constexpr double infinite = std::numeric_limits<double>::infinity();
  return {0.0,           -0.0, 1,          -1,  0.5,      -0.5,      1.5,   -1.5,   2.5,  -2.5,  3.7,
          -3.7,          7,    -7,         NAN, infinite, -infinite, 1e-40, -3e-39, 3e38, -3e38, 2147483648.0,
          -2147483649.0, 1e19, 16777217.0, 0.1, 1.1};
}

// Every pair of values.
Case on_edges(Random& random, int compute, int args) {
  const std::vector<double> values = edges(compute);
  const auto n = static_cast<int64_t>(values.size());
  Case c(NPU_MAP, {args > 1 ? n * n : n});
  for (int k = 0; k < args; k++) {
    const uint32_t in = c.at_strides(random, compute, Data::kZero, {c.command.size[0]}, {1}, 0);
    Buffer& buffer = c.buffers[static_cast<size_t>(c.buffer_of(in))];
    for (int64_t i = 0; i < c.command.size[0]; i++)
      put(buffer, i, values[static_cast<size_t>(k == 0 ? i % n : k == 1 ? i / n : (i * 7 + i / n) % n)]);
  }
  return c;
}

// Those with one right answer on every value; what shows the sign of a NaN is tested by hand.
std::vector<int> exact_instructions() {
  std::vector<int> all;
  for (int op = 0; op < NPU_OP_COUNT; op++)
    if (is_exact(op)) all.push_back(op);
  return all;
}

Case one_instruction(Random& random, int op, int compute) {
  const npu::OpInfo& info = npu::op_info(op);
  const int result = info.result == npu::Result::kBool  ? int{NPU_BOOL}
                     : info.result == npu::Result::kI32 ? int{NPU_I32}
                     : info.result == npu::Result::kI64 ? int{NPU_I64}
                                                        : compute;
  Case c = on_edges(random, compute, std::max<int>(info.args, 1));
  Builder b(npu::op_name(op));
  Id args[3] = {none, none, none};
  for (int k = 0; k < info.args; k++) args[k] = b.load(static_cast<uint32_t>(k), compute);
  if (op == NPU_OP_LDEXP) args[1] = b.cast(args[1], NPU_I32);
  b.store(c.output(random, result, true), b.emit(op, result, args[0], args[1], args[2]));
  c.set(b);
  return c;
}

// Floats compare by value: of both zeros `min` and `max` say which one it is.
void run(const Context& context, Rig& rig, Case c) {
  c.sharpen(context);
  c.run(rig);
}

}  // namespace

TEST("MAP: every type at lengths of tiles and one beside them") {
  Rig rig(context);
  const auto lengths = static_cast<int64_t>(tile_sizes().size());
  cases(context, context.chosen(static_cast<int64_t>(all_dtypes().size()) * lengths),
        [&](Random& random, int64_t number) {
          const int dtype = all_dtypes()[static_cast<size_t>(number / lengths)], compute = npu::compute_dtype(dtype);
          const int64_t n = tile_sizes()[static_cast<size_t>(number % lengths)];
          Case c(NPU_MAP, {n});
          Builder b("pair");
          c.at_strides(random, dtype, Data::kReal, {n}, {1});
          c.at_strides(random, dtype, Data::kSpecial, {n}, {1});
          c.at_strides(random, dtype, Data::kReal, {n}, {1});
          const Id x = b.load(1, compute), y = b.load(2, compute);
          b.store(0, b.op(compute == NPU_BOOL ? int{NPU_OP_XOR} : int{NPU_OP_ADD}, x, y));
          c.set(b);
          run(context, rig, std::move(c));
        });
}

TEST("MAP: every layout of what is read and of what is written") {
  Rig rig(context);
  const auto reads = layouts(false), writes = layouts(true);
  const auto each = static_cast<int64_t>(reads.size() + writes.size());
  static const std::vector<int> dtypes = {NPU_F32, NPU_BF16, NPU_F16, NPU_F64, NPU_I8, NPU_I32, NPU_I64, NPU_BOOL};
  cases(context, context.chosen(each * static_cast<int64_t>(dtypes.size())), [&](Random& random, int64_t number) {
    const int dtype = dtypes[static_cast<size_t>(number / each)], compute = npu::compute_dtype(dtype);
    const auto layout = static_cast<size_t>(number % each);
    const bool read = layout < reads.size();
    Case c(NPU_MAP, {19, 33});
    Builder b("pair");
    c.at_strides(random, dtype, Data::kReal, {19, 33}, read ? writes[0] : writes[layout - reads.size()]);
    c.at_strides(random, dtype, Data::kReal, {19, 33}, read ? reads[layout] : reads[0], 64);
    c.at_strides(random, dtype, Data::kReal, {19, 33}, reads[0]);
    const Id x = b.load(1, compute), y = b.load(2, compute);
    b.store(0, b.op(compute == NPU_BOOL ? int{NPU_OP_XOR} : int{NPU_OP_SUB}, x, y));
    c.set(b);
    run(context, rig, std::move(c));
  });
}

TEST("MAP: every exact instruction on every pair of values at the edges of its type") {
  Rig rig(context);
  const std::vector<int> all = exact_instructions();
  cases(context, context.chosen(static_cast<int64_t>(all.size())), [&](Random& random, int64_t number) {
    const int op = all[static_cast<size_t>(number)];
    for (const int compute : compute_dtypes()) {
      const bool real = compute == NPU_F32 || compute == NPU_F64;
      if (!(npu::dtype_class(compute) & npu::op_info(op).types) || (op == NPU_OP_POW && real)) continue;
      run(context, rig, one_instruction(random, op, compute));
    }
  });
}

TEST("MAP: every cast, also through a storage type, of the values at the edges") {
  Rig rig(context);
  struct Cast {
    int from, to, via;
  };
  std::vector<Cast> all;
  for (const int from : compute_dtypes()) {
    for (const int to : compute_dtypes()) all.push_back({from, to, NPU_DTYPE_NONE});
    for (const int via : all_dtypes()) all.push_back({from, npu::compute_dtype(via), via});
  }
  cases(context, context.chosen(static_cast<int64_t>(all.size())), [&](Random& random, int64_t number) {
    const Cast& cast = all[static_cast<size_t>(number)];
    Case c = on_edges(random, cast.from, 1);
    Builder b("cast");
    b.store(c.output(random, cast.to, true), b.cast(b.load(0, cast.from), cast.to, cast.via));
    c.set(b);
    run(context, rig, std::move(c));
  });
}

TEST("COPY: every pair of types, with the values at their edges") {
  Rig rig(context);
  const auto types = static_cast<int64_t>(all_dtypes().size());
  cases(context, context.chosen(types * types), [&](Random& random, int64_t number) {
    const int to = all_dtypes()[static_cast<size_t>(number / types)],
              from = all_dtypes()[static_cast<size_t>(number % types)];
    const std::vector<double> values = edges(npu::compute_dtype(from));
    const auto n = static_cast<int64_t>(values.size());
    Case c(NPU_COPY, {n + 65});
    c.at_strides(random, to, Data::kReal, {n + 65}, {1});
    c.at_strides(random, from, Data::kSpecial, {n + 65}, {1});
    for (int64_t i = 0; i < n; i++) put(c.buffers[1], c.offset_of(1) + i, values[static_cast<size_t>(i)]);
    run(context, rig, std::move(c));
  });
}

TEST("COPY: every layout of both sides, and every type at lengths of tiles") {
  Rig rig(context);
  const auto reads = layouts(false), writes = layouts(true);
  static const std::vector<int> dtypes = {NPU_F32, NPU_BF16, NPU_U8, NPU_I64};
  const auto pairs = static_cast<int64_t>(reads.size() * writes.size());
  const auto lengths = static_cast<int64_t>(tile_sizes().size() * dtypes.size());
  cases(context, context.chosen(pairs + lengths), [&](Random& random, int64_t number) {
    const bool is_pair = number < pairs;
    const auto k = static_cast<size_t>(is_pair ? number : number - pairs);
    const int dtype = dtypes[k % dtypes.size()];
    const int64_t n = is_pair ? 33 : tile_sizes()[k / dtypes.size()];
    Case c(NPU_COPY, {19, n});
    const std::vector<int64_t> straight = {n, 1};
    c.at_strides(random, dtype, Data::kReal, {19, n}, is_pair ? writes[k / reads.size()] : straight);
    c.at_strides(random, dtype, Data::kReal, {19, n}, is_pair ? reads[k % reads.size()] : straight, 64);
    run(context, rig, std::move(c));
  });
}
