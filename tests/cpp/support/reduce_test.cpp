// REDUCE and SCAN on small data, against independent loops and values by hand.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/cpp/support/command.h"

namespace {

using harness::Command;
using Floats = std::vector<float>;
using Longs = std::vector<int64_t>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Floats random_floats(size_t n, uint64_t seed = 7) {
  Floats out(n);
  for (float& x : out) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    x = static_cast<float>(static_cast<int64_t>(seed >> 33)) * 0x1p-30f - 1.0f;
  }
  return out;
}

// 16 lanes, then a tree: written apart from the reference, on whole arrays.
template <typename T, typename Op>
T lanes(const std::vector<T>& row, T start, Op op) {
  std::vector<T> lane(16, start);
  for (size_t i = 0; i < row.size(); ++i) lane[i % 16] = op(lane[i % 16], row[i]);
  while (lane.size() > 1) {
    std::vector<T> half(lane.begin(), lane.begin() + static_cast<int64_t>(lane.size() / 2));
    for (size_t j = 0; j < half.size(); ++j) half[j] = op(half[j], lane[half.size() + j]);
    lane = half;
  }
  return lane[0];
}

const char* kSum = "program sum(x, out)\neach:\n%x = load x : f32\n%s = fold sum %x\nrow:\nstore out, %s\n";

}  // namespace

TEST(sums_use_sixteen_lanes_and_a_tree) {
  for (int64_t n : {1, 5, 16, 17, 33, 1000}) {
    const Floats x = random_floats(static_cast<size_t>(3 * n));
    Command command(NPU_REDUCE, {3, n}, 1);
    command.with(kSum).in(x, {n, 1});
    command.in(Floats(3), {1, 0});
    const Floats got = command.result<float>(1);
    for (int64_t r = 0; r < 3; ++r) {
      const Floats row(x.begin() + r * n, x.begin() + (r + 1) * n);
      EQUAL(got[static_cast<size_t>(r)], lanes(row, 0.0f, [](float a, float b) { return a + b; }));
    }
  }
  // A case where the order shows: lane 0 has 2^24 and 1 (the 1 is lost), lane 1 has 1.
  Floats x(17);
  x[0] = 16777216;
  x[16] = 1;
  x[1] = 3;
  Command command(NPU_REDUCE, {17}, 1);
  command.with(kSum).in(x, {1});
  command.in(Floats(1), {0});
  LIST(command.result<float>(1), Floats{16777220});
}

TEST(reduce_over_two_inner_dimensions_with_any_strides) {
  // x[2][3][4], kept: the middle dimension.
  Floats x(24);
  for (size_t i = 0; i < 24; ++i) x[i] = static_cast<float>(i);
  Command command(NPU_REDUCE, {3, 2, 4}, 2);
  command.with(kSum).in(x, {4, 12, 1});
  command.in(Floats(3), {1, 0, 0});
  LIST(command.result<float>(1), Floats{60, 92, 124});
}

TEST(every_simple_fold_of_every_type) {
  auto fold = [](const std::string& kind, const std::string& type, auto values) {
    using T = typename decltype(values)::value_type;
    Command command(NPU_REDUCE, {static_cast<int64_t>(values.size())}, 1);
    command.with("program t(x, o)\neach:\n%x = load x : " + type + "\n%f = fold " + kind + " %x\nrow:\nstore o, %f\n");
    command.in(values, {1});
    command.in(std::vector<T>(1), {0});
    const T out = command.result<T>(1)[0];  // a copy, because of vector<bool>
    return out;
  };
  EQUAL(fold("prod", "i32", std::vector<int32_t>{3, -4, 5}), -60);
  EQUAL(fold("max", "i64", Longs{-3, -9}), -3);
  EQUAL(fold("min", "i64", Longs{-3, -9}), -9);
  EQUAL(fold("max", "u64", std::vector<uint64_t>{UINT64_MAX, 3}), UINT64_MAX);
  EQUAL(fold("min", "u64", std::vector<uint64_t>{UINT64_MAX, 3}), 3u);
  EQUAL(fold("and", "i32", std::vector<int32_t>{14, 7}), 6);
  EQUAL(fold("or", "i32", std::vector<int32_t>{8, 1}), 9);
  EQUAL(fold("xor", "i64", Longs{7, 2, 1}), 4);
  EQUAL(fold("and", "bool", std::vector<bool>{true, false}), false);
  EQUAL(fold("or", "bool", std::vector<bool>{false, true}), true);
  EQUAL(fold("max", "bool", std::vector<bool>{false, false}), false);
  EQUAL(fold("sum", "i32", std::vector<int32_t>{INT32_MAX, 1}), INT32_MIN);
  EQUAL(fold("max", "f32", Floats{-3, -kInf}), -3.0f);
  EQUAL(fold("min", "f64", std::vector<double>{5, 3}), 3.0);
  CHECK(std::isnan(fold("max", "f32", Floats{1, kNan, 3})));
  CHECK(std::isnan(fold("min", "f32", Floats{1, kNan, 3})));
  EQUAL(fold("prod", "f64", std::vector<double>{0.5, 3}), 1.5);
}

TEST(an_empty_row_yields_identities) {
  Command command(NPU_REDUCE, {2, 0}, 1);
  command.with(R"(program t(x, sum, max, arg, count)
each:
  %x = load x : f32
  %i = index 1
  %s = fold sum %x
  %m = fold min %x
  %a = fold argmax %x, %i
  %w = fold welford %x
row:
  %at = get %a, 1
  %n = get %w, 2
  store sum, %s
  store max, %m
  store arg, %at
  store count, %n
)");
  command.at(8, NPU_F32, {0, 0});
  command.in(Floats(2, 9), {1, 0});
  command.in(Floats(2, 9), {1, 0});
  command.in(Longs(2, 9), {1, 0});
  command.in(Floats(2, 9), {1, 0});
  LIST(command.result<float>(1), Floats{0, 0});
  LIST(command.arena.get<float>(command.operands[2].addr), Floats{kInf, kInf});
  LIST(command.arena.get<int64_t>(command.operands[3].addr), Longs{-1, -1});
  LIST(command.arena.get<float>(command.operands[4].addr), Floats{0, 0});
}

TEST(masked_elements_are_left_out_but_keep_their_place) {
  const Floats x = random_floats(100);
  Command command(NPU_REDUCE, {100}, 1);
  command.with(
      "program t(x, o)\neach:\n%x = load x : f32\n%z = const 0 : f32\n%m = gt %x, %z\n%s = fold sum %x, mask %m\n"
      "row:\nstore o, %s\n");
  command.in(x, {1});
  command.in(Floats(1), {0});
  Floats kept = x;
  for (float& v : kept) v = v > 0 ? v : 0;
  EQUAL(command.result<float>(1)[0], lanes(kept, 0.0f, [](float a, float b) { return a + b; }));
}

TEST(argmax_takes_nan_first_and_the_lowest_index) {
  auto argmax = [](const std::string& kind, const Floats& x) {
    Command command(NPU_REDUCE, {1, static_cast<int64_t>(x.size())}, 1);
    npu::Program program = harness::isa_program("argmax");
    if (kind == "argmin")
      for (npu_instr& in : program.instrs)
        if (in.op == NPU_OP_FOLD) in.imm = NPU_FOLD_ARGMIN;
    command.with(program).in(x, {0, 1});
    command.in(Longs(1), {0, 0});
    return command.result<int64_t>(1)[0];
  };
  EQUAL(argmax("argmax", {1, 5, 5, 2}), 1);
  EQUAL(argmax("argmin", {3, 1, 5, 1}), 1);
  EQUAL(argmax("argmax", {1, kNan, 9, kNan}), 1);
  EQUAL(argmax("argmin", {1, kNan, -9, kNan}), 1);
  EQUAL(argmax("argmax", {-kInf, -kInf}), 0);
}

TEST(softmax_in_three_segments) {
  const int64_t n = 37;
  const Floats x = random_floats(2 * n);
  Command command(NPU_REDUCE, {2, n}, 1);
  command.with(harness::isa_program("softmax")).in(x, {n, 1});
  command.in(Floats(2 * n), {n, 1});
  const Floats got = command.result<float>(1);
  for (int64_t r = 0; r < 2; ++r) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += std::exp(double{x[static_cast<size_t>(r * n + i)]});
    for (int64_t i = 0; i < n; ++i)
      NEAR(got[static_cast<size_t>(r * n + i)], std::exp(double{x[static_cast<size_t>(r * n + i)]}) / sum, 3e-7);
  }
}

TEST(softmax_works_in_place) {
  const Floats x{1, 2, 3};
  Command command(NPU_REDUCE, {3}, 1);
  command.with(harness::isa_program("softmax")).in(x, {1});
  command.operands.push_back(command.operands[0]);
  const Floats got = command.result<float>(0);
  NEAR(got[0], 0.09003057317038046, 1e-7);
  NEAR(got[2], 0.6652409557748219, 1e-7);
}

TEST(layer_norm_with_a_row_segment) {
  Command command(NPU_REDUCE, {2, 4}, 1);
  command.with(harness::isa_program("layer_norm")).f(0);
  command.in(Floats{1, 2, 3, 4, 10, 10, 20, 20}, {4, 1});
  command.in(Floats{1, 2, 1, 2}, {0, 1});
  command.in(Floats{0, 0, 1, 1}, {0, 1});
  command.in(Floats(8), {4, 1});
  command.in(Floats(2), {1, 0});
  command.in(Floats(2), {1, 0});
  const Floats got = command.result<float>(3);
  const double s = 1 / std::sqrt(1.25);
  const double want[] = {-1.5 * s, -s, 0.5 * s + 1, 3 * s + 1, -1, -2, 2, 3};
  for (size_t i = 0; i < 8; ++i) NEAR(got[i], want[i], 3e-7);
  LIST(command.arena.get<float>(command.operands[4].addr), Floats{2.5, 15});
  NEAR(command.arena.get<float>(command.operands[5].addr)[1], 0.2, 1e-7);
}

TEST(welford_of_values_and_of_parts) {
  Command command(NPU_REDUCE, {2, 3}, 1);
  command.with(harness::isa_program("variance")).f(1);
  command.in(Floats{1, 2, 6, 1e6f, 1e6f + 1, 1e6f + 2}, {3, 1});
  command.in(Floats(2), {1, 0});
  LIST(command.result<float>(1), Floats{7, 1});
  // Parts (mean 1, m2 0, n 1), (mean 4, m2 8, n 2), (0, 0, 0) are the values 1, 2, 6.
  Command parts(NPU_REDUCE, {3}, 1);
  parts.with(
      "program t(m, s, n, om, os, on)\neach:\n%m = load m : f64\n%s = load s : f64\n%n = load n : f64\n"
      "%w = fold welford %m, %s, %n\nrow:\n%a = get %w, 0\n%b = get %w, 1\n%c = get %w, 2\n"
      "store om, %a\nstore os, %b\nstore on, %c\n");
  parts.in(std::vector<double>{1, 4, 0}, {1});
  parts.in(std::vector<double>{0, 8, 0}, {1});
  parts.in(std::vector<double>{1, 2, 0}, {1});
  for (int i = 0; i < 3; ++i) parts.in(std::vector<double>(1), {0});
  NEAR(parts.result<double>(3)[0], 3, 1e-15);
  NEAR(parts.arena.get<double>(parts.operands[4].addr)[0], 14, 1e-15);
  EQUAL(parts.arena.get<double>(parts.operands[5].addr)[0], 3.0);
}

TEST(a_custom_fold_runs_left_to_right) {
  // combine(a, b) = 10 a + b over pairs with a second member that counts.
  Command command(NPU_REDUCE, {2, 4}, 1);
  command.with(R"(program t(x, out, n)
each:
  %x = load x : i64
  %one = const 1 : i32
  %f = fold custom %x, %one
  %count = get %f, 1
row:
  store out, %f
  store n, %count
combine:
  %a = arg 0 : i64
  %b = arg 2 : i64
  %p = arg 1 : i32
  %q = arg 3 : i32
  %ten = const 10 : i64
  %r = fma %a, %ten, %b
  %s = add %p, %q
  yield 0, %r
  yield 1, %s
)");
  command.in(Longs{1, 2, 3, 4, 5, 6, 7, 8}, {4, 1});
  command.in(Longs(2), {1, 0});
  command.in(Longs(2), {1, 0});
  LIST(command.result<int64_t>(1), Longs{1234, 5678});
  LIST(command.arena.get<int64_t>(command.operands[2].addr), Longs{4, 4});
}

TEST(a_store_is_seen_by_later_segments) {
  Command command(NPU_REDUCE, {2, 3}, 1);
  command.with(
      "program t(x, y, out)\neach:\n%x = load x : f32\n%d = add %x, %x\nstore y, %d\neach:\n%y = load y : f32\n"
      "%s = fold sum %y\nrow:\nstore out, %s\n");
  command.in(Floats{1, 2, 3, 4, 5, 6}, {3, 1});
  command.in(Floats(6), {3, 1});
  command.in(Floats(2), {1, 0});
  LIST(command.result<float>(2), Floats{12, 30});
}

TEST(scans_run_along_the_last_dimension) {
  Command sum(NPU_SCAN, {2, 3}, 1);
  sum.with(harness::isa_program("cumsum")).in(Floats{1, 2, 3, 4, 5, 6}, {3, 1});
  sum.in(Floats(6), {3, 1});
  LIST(sum.result<float>(1), Floats{1, 3, 6, 4, 9, 15});
  Command lse(NPU_SCAN, {4}, 1);
  lse.with(harness::isa_program("logcumsumexp")).in(Floats{-kInf, -kInf, 1, 2}, {1});
  lse.in(Floats(4), {1});
  const Floats got = lse.result<float>(1);
  EQUAL(got[1], -kInf);
  EQUAL(got[2], 1.0f);
  NEAR(got[3], 2.3132616875182228, 1e-7);
  Command best(NPU_SCAN, {5}, 1);
  best.with(
      "program cummax(x, v, i)\neach:\n%x = load x : f32\n%i = index 0\n%s = scan argmax %x, %i\n%k = get %s, 1\n"
      "each:\nstore v, %s\nstore i, %k\n");
  best.in(Floats{3, 1, 4, 4, kNan}, {1});
  best.in(Floats(5), {1});
  best.in(Longs(5), {1});
  LIST(best.result<float>(1), Floats{3, 3, 4, 4, kNan});
  LIST(best.arena.get<int64_t>(best.operands[2].addr), Longs{0, 0, 2, 2, 4});
}
