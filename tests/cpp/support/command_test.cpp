// MAP, SCATTER, SORT and COPY on small data, against values by hand.
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

}  // namespace

TEST(copy_fills_transposes_broadcasts_and_flips) {
  Command fill(NPU_COPY, {2, 3});
  fill.in(Floats(6), {3, 1});
  fill.immediate<int32_t>(-7);
  LIST(fill.result<float>(0), Floats(6, -7));
  Command transpose(NPU_COPY, {3, 2});
  transpose.in(Longs(6), {2, 1});
  transpose.in(std::vector<int32_t>{1, 2, 3, 4, 5, 6}, {1, 3});
  LIST(transpose.result<int64_t>(0), Longs{1, 4, 2, 5, 3, 6});
  Command flip(NPU_COPY, {2, 3});
  flip.in(Floats(6), {3, 1});
  flip.in(Floats{1, 2, 3}, {0, -1}).addr += 8;
  LIST(flip.result<float>(0), Floats{3, 2, 1, 3, 2, 1});
  Command scalar(NPU_COPY, {});
  scalar.in(Floats{0}, {});
  scalar.in(std::vector<double>{2.5}, {});
  LIST(scalar.result<float>(0), Floats{2.5});
}

TEST(an_empty_index_space_touches_nothing) {
  for (int kind : {NPU_COPY, NPU_MAP, NPU_SORT}) {
    Command command(kind, {0, 3}, kind == NPU_SORT ? 1 : 0);
    for (int i = 0; i < 4; ++i) command.at(8, NPU_I64, {1, 1});
    if (kind == NPU_MAP) command.with("program t(x, o)\neach:\n%x = load x : i64\nstore o, %x\n");
    EQUAL(command.run(), NPU_OK);
  }
}

TEST(map_broadcasts_and_converts_storage_types) {
  Command command(NPU_MAP, {2, 3});
  command.with(harness::isa_program("add")).f(0.5);
  command.in(Floats{1, 2, 3}, {0, 1});
  command.in(std::vector<int16_t>{10, 20}, {1, 0});
  command.in(std::vector<double>(6), {3, 1});
  LIST(command.result<double>(2), {6, 7, 8, 11, 12, 13});
}

TEST(map_reads_immediates_indices_and_sizes) {
  Command command(NPU_MAP, {2, 3});
  command.with(
      "program t(x, out)\neach:\n%x = load x : i64\n%i = index 0\n%j = index 1\n%n = size 1\n"
      "%a = fma %i, %n, %j\n%b = mul %a, %x\nstore out, %b\n");
  command.immediate<uint8_t>(200);
  command.in(Longs(6), {3, 1});
  LIST(command.result<int64_t>(1), Longs{0, 200, 400, 600, 800, 1000});
}

TEST(a_masked_access_touches_no_address) {
  Command command(NPU_MAP, {7});
  command.with(harness::isa_program("pad")).i(2).i(5);
  command.in(Floats{1, 2, 3}, {1}).addr -= 2 * sizeof(float);
  command.in(Floats(7, -1), {1});
  LIST(command.result<float>(1), Floats{0, 0, 1, 2, 3, 0, 0});
  Command off(NPU_SCATTER, {2});
  off.with(
      "program t(x, o)\neach:\n%f = const false : bool\n%big = const 1000000 : i64\n%five = const 5 : i64\n"
      "%c = check_index %big, %five, check, mask %f\n%v = load_at x, %big, mask %f : i64\n"
      "store_at o, %v, %big, add, mask %f\nstore o, %c\n");
  off.in(Longs{1}, {0}).limit = 1;
  off.in(Longs{0, 0}, {1}).limit = 2;
  LIST(off.result<int64_t>(1), Longs{1000000, 1000000});
}

TEST(an_access_outside_live_memory_is_refused) {
  Command command(NPU_MAP, {4});
  command.with(harness::isa_program("add")).f(1);
  command.in(Floats{1, 2, 3}, {1});
  command.in(Floats(4), {1});
  command.in(Floats(4), {1});
  EQUAL(command.run(), NPU_ERROR_ADDRESS);
  CONTAINS(command.error, "expected live memory at address 0x10000c (load of 4 bytes, operand 0), got none");
  Command copy(NPU_COPY, {2});
  copy.in(Floats{1}, {1});
  copy.immediate<float>(1);
  EQUAL(copy.run(), NPU_ERROR_ADDRESS);
  CONTAINS(copy.error, "store of 4 bytes, operand 0");
}

TEST(missing_parameters_and_broken_programs_are_refused) {
  Command command(NPU_MAP, {1});
  command.with(harness::isa_program("add"));
  for (int i = 0; i < 3; ++i) command.in(Floats{1}, {1});
  EQUAL(command.run(), NPU_ERROR_INVALID);
  CONTAINS(command.error, "expected 1 parameters, got 0");
  command.f(1);
  EQUAL(command.run(), NPU_OK);
  command.program.instrs[4].a = 400;
  EQUAL(command.run(), NPU_ERROR_INVALID);
  CONTAINS(command.error, "expected the id of an earlier instruction");
}

TEST(embedding_wraps_and_checks_indices) {
  auto lookup = [](Longs indices) {
    Command command(NPU_MAP, {static_cast<int64_t>(indices.size()), 2});
    command.with(harness::isa_program("embedding")).i(5).i(2);
    command.in(Floats{0, 1, 10, 11, 20, 21, 30, 31, 40, 41}, {0, 1}).limit = 10;
    command.in(indices, {1, 0});
    command.in(Floats(indices.size() * 2), {2, 1});
    return command;
  };
  LIST(lookup({3, -1, 0}).result<float>(2), Floats{30, 31, 40, 41, 0, 1});
  Command high = lookup({1, 7});
  EQUAL(high.run(), NPU_ERROR_INDEX);
  EQUAL(high.error, "index 7 is out of bounds for dimension with size 5");
  Command low = lookup({-6});
  EQUAL(low.run(), NPU_ERROR_INDEX);
  EQUAL(low.error, "index -6 is out of bounds for dimension with size 5");
}

TEST(an_offset_beyond_the_limit_is_refused) {
  Command command(NPU_MAP, {3});
  command.with("program t(x, o)\neach:\n%i = index 0\n%v = load_at x, %i : f32\nstore o, %v\n");
  command.in(Floats{1, 2, 3, 4}, {0}).limit = 2;
  command.in(Floats(3), {1});
  EQUAL(command.run(), NPU_ERROR_ADDRESS);
  CONTAINS(command.error, "expected an offset of 0 to 1 in operand 0, got 2");
  command.operands[0].limit = 0;
  LIST(command.result<float>(1), Floats{1, 2, 3});
}

TEST(scatter_combines_in_order) {
  auto scatter = [](const std::string& mode) {
    Command command(NPU_SCATTER, {4});
    command.with("program t(i, x, o)\neach:\n%i = load i : i64\n%x = load x : f32\nstore_at o, %x, %i, " + mode + "\n");
    command.in(Longs{1, 0, 1, 1}, {1});
    command.in(Floats{5, 7, -2, 3}, {1});
    command.in(Floats{1, 2, 4}, {0}).limit = 3;
    return command.result<float>(2);
  };
  LIST(scatter("set"), Floats{7, 3, 4});
  LIST(scatter("add"), Floats{8, 8, 4});
  LIST(scatter("mul"), Floats{7, -60, 4});
  LIST(scatter("max"), Floats{7, 5, 4});
  LIST(scatter("min"), Floats{1, -2, 4});
}

TEST(scatter_add_rounds_to_the_storage_type_at_every_step) {
  Command command(NPU_SCATTER, {3});
  command.with("program t(o)\neach:\n%i = const 0 : i64\n%x = const 1 : f32\nstore_at o, %x, %i, add\n");
  command.in(std::vector<uint16_t>{0x4380}, {0}, NPU_BF16);  // 256: adding 1 is lost every time
  LIST(command.result<uint16_t>(0), std::vector<uint16_t>{0x4380});
}

TEST(index_add_of_rows) {
  Command command(NPU_SCATTER, {3, 2});
  command.with(harness::isa_program("index_add")).i(2).i(2);
  command.in(Longs{1, -1, 0}, {1, 0});
  command.in(Floats{1, 2, 3, 4, 5, 6}, {2, 1});
  command.in(Floats{100, 200, 300, 400}, {0, 1}).limit = 4;
  LIST(command.result<float>(2), Floats{105, 206, 304, 406});
}

TEST(sort_orders_keys_with_their_payload) {
  auto sort = [](const Floats& x, bool descending, int64_t count) {
    const int64_t n = static_cast<int64_t>(x.size());
    Command command(NPU_SORT, {n}, 1);
    command.c.u.sort.count = count;
    command.c.u.sort.descending = descending;
    command.c.u.sort.stable = 1;
    command.in(x, {1});
    command.immediate<int64_t>(0);
    command.in(Floats(x.size(), 77), {1});
    command.in(Longs(x.size(), 77), {1});
    const Floats keys = command.result<float>(2);
    return std::pair(keys, command.arena.get<int64_t>(command.operands[3].addr));
  };
  auto [up, up_at] = sort({3, kNan, -kInf, 3, -0.0f, 0}, false, 6);
  LIST(up, Floats{-kInf, 0, 0, 3, 3, kNan});
  LIST(up_at, Longs{2, 4, 5, 0, 3, 1});
  auto [down, down_at] = sort({3, kNan, -kInf, 3, 1}, true, 3);
  LIST(down, Floats{kNan, 3, 3, 77, 77});
  LIST(down_at, Longs{1, 0, 3, 77, 77});
  Command rows(NPU_SORT, {2, 3}, 1);  // columns of a 3 x 2 matrix, payload given
  rows.c.u.sort.count = 3;
  rows.in(std::vector<uint64_t>{5, UINT64_MAX, 1, 2, 3, 0}, {1, 2});
  rows.in(std::vector<uint8_t>{10, 11, 12, 13, 14, 15}, {1, 2});
  rows.in(std::vector<uint64_t>(6), {3, 1});
  rows.in(std::vector<int32_t>(6), {3, 1});
  LIST(rows.result<uint64_t>(2), std::vector<uint64_t>{1, 3, 5, 0, 2, UINT64_MAX});
  LIST(rows.arena.get<int32_t>(rows.operands[3].addr), std::vector<int32_t>{12, 14, 10, 15, 13, 11});
}

TEST(dropout_keeps_what_philox_says) {
  Command command(NPU_MAP, {1, 4});
  command.with(harness::isa_program("dropout")).i(0).i(0).i(4).f(0.5);
  command.in(Floats{1, 2, 3, 4}, {4, 1});
  command.in(Floats(4), {4, 1});
  command.in(std::vector<bool>(4), {4, 1});
  const Floats got = command.result<float>(1);
  EQUAL(got[0], 0.0f);  // 0x6627e8d5 / 2^32 is 0.399
  const auto kept = command.arena.get<bool>(command.operands[2].addr);
  for (size_t i = 0; i < 4; ++i) EQUAL(got[i], kept[i] ? static_cast<float>(i + 1) : 0.0f);
}
