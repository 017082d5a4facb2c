// Results that are so large that they bypass the caches, in pieces, while the next piece is computed.
#include "tests/cpp/engine/engine_case.h"

namespace {

using namespace engine_test;

std::vector<float> whole_numbers(int64_t n) {
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i * 7919 % 201) - 100);
  return values;
}

}  // namespace

TEST(large_results_of_a_map) {
  // A tile of one long row; several rows with a value per row and one per column; rows that are no whole cache lines.
  // Large blocks of malloc begin 16 bytes behind a cache line: some results do too, some begin with one.
  for (int64_t columns : {3000, 300, 77, 304, 4096})
    for (int dtype : {NPU_F32, NPU_BF16, NPU_F16}) {
      const int64_t rows = (dtype == NPU_F32 ? 2'700'000 : 5'400'000) / columns;
      const int64_t first = columns % 16 != 0 ? 0 : dtype == NPU_F32 ? 12 : 24;
      Case k(NPU_MAP, {rows, columns});
      k.add(k.block(whole_numbers(rows * columns)), NPU_F32, {columns, 1});
      k.add(k.block(whole_numbers(rows)), NPU_F32, {1, 0});
      k.add(k.block(whole_numbers(columns)), NPU_F32, {0, 1});
      k.add(k.block(rows * columns + first, dtype), dtype, {columns, 1}, first);
      k.with(
          "program p(x, row, column, out)\neach:\n  %x = load x : f32\n  %r = load row : f32\n"
          "  %c = load column : f32\n  %a = abs %x\n  %m = max %a, %r\n  %s = add %m, %c\n  store out, %s\n");
      expect(k, std::to_string(columns) + " columns");
    }
}

TEST(large_results_row_by_row) {
  // One instruction with an operand that is the same for all rows or along each, and a norm with numbers of its row.
  const char* programs[] = {
      "program p(x, y, out)\neach:\n  %x = load x : f32\n  %y = load y : f32\n  %m = max %x, %y\n  store out, %m\n",
      "program p(x, y, out)\neach:\n  %x = load x : f32\n  %y = load y : f32\n  %a = abs %y\n  %d = sub %x, %y\n"
      "  %n = mul %d, %a\n  %s = mul %n, %y\n  %r = add %s, %y\n  store out, %r\n"};
  for (int64_t columns : {3000, 304})
    for (const bool along : {false, true})
      for (const char* program : programs) {
        const int64_t rows = 2'700'000 / columns, first = columns % 16 == 0 ? 12 : 0;
        Case k(NPU_MAP, {rows, columns});
        k.add(k.block(whole_numbers(rows * columns)), NPU_F32, {columns, 1});
        k.add(k.block(whole_numbers(along ? rows : columns)), NPU_F32,
              along ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{0, 1});
        k.add(k.block(rows * columns + first, NPU_F32), NPU_F32, {columns, 1}, first);
        k.with(program);
        expect(k, std::to_string(columns) + " columns");
      }
}

TEST(large_results_of_a_reduction) {
  // The last segment is a norm, which is one kernel; what a later segment reads again is not streamed.
  for (bool again : {false, true}) {
    const int64_t rows = 1100, columns = 2500;
    Case k(NPU_REDUCE, {rows, columns}, 1);
    k.add(k.block(whole_numbers(rows * columns)), NPU_F32, {columns, 1});
    k.add(k.block(whole_numbers(columns)), NPU_F32, {0, 1});
    k.add(k.block(rows * columns, NPU_F32), NPU_F32, {columns, 1});
    k.with((std::string("program p(x, weight, out)\neach:\n  %x = load x : f32\n  %f = fold max %x\neach:\n") +
            "  %y = load x : f32\n  %d = sub %y, %f\n  %n = mul %d, %f\n  %w = load weight : f32\n"
            "  %s = mul %n, %w\n  %r = add %s, %w\n  store out, %r\n" +
            (again ? "  %g = fold min %r\neach:\n  %z = load out : f32\n  %t = sub %z, %g\n  store out, %t\n" : ""))
               .c_str());
    expect(k, again ? "read again" : "written once");
  }
}

TEST(values_that_a_result_holds_between_segments) {
  // As softmax does: rows that fit a buffer and longer ones, several in one tile, in place, with gaps between the rows.
  for (int64_t columns : {40, 1500, 4096, 5000})
    for (const bool in_place : {false, true}) {
      const int64_t rows = 60, step = columns + (in_place ? 0 : 8);
      Case k(NPU_REDUCE, {rows, columns}, 1);
      const int x = k.block(whole_numbers(rows * columns));
      k.add(x, NPU_F32, {columns, 1});
      k.add(in_place ? x : k.block(rows * step, NPU_F32), NPU_F32, {step, 1});
      k.with(
          "program p(x, out)\neach:\n  %x = load x : f32\n  %max = fold max %x\neach:\n  %y = load x : f32\n"
          "  %d = sub %y, %max\n  %a = abs %d\n  store out, %a\n  %sum = fold sum %a\neach:\n  %o = load out : f32\n"
          "  %r = sub %o, %sum\n  store out, %r\n");
      expect(k, std::to_string(columns) + (in_place ? " columns in place" : " columns"));
    }
}
