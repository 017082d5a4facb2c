// Folds in compiled loops: of rows, of columns, of everything, beside what the same loop stores.
#include "tests/cpp/engine/loop_case.h"

using namespace engine_test;

TEST(sums_in_loops) {
  // Two sums that share a value, one of them also of something that a later segment computes again and stores; rows in
  // tiles of their own and several in one, every number small enough that any order of addition is exact.
  for (int64_t columns : {3, 15, 16, 33, 500, 1024, 2500, 5000})
    for (int64_t rows : {1, 4, 70})
      for (int dtype : {NPU_F32, NPU_BF16}) {
        const std::vector<float> numbers = small(rows * columns);
        Case k(NPU_REDUCE, {rows, columns}, 1);
        k.add(k.block(numbers), NPU_F32, {columns, 1});
        k.add(k.block(std::vector<float>(numbers.begin(), numbers.begin() + columns)), NPU_F32, {0, 1});
        k.add(k.block(std::vector<float>(numbers.begin(), numbers.begin() + rows)), NPU_F32, {1, 0});
        k.add(k.block(rows * columns, dtype), dtype, {columns, 1});
        k.add(k.block(rows, NPU_F32), NPU_F32, {1, 0});
        k.with(
            "program p(x, w, m, out, sum)\nrow:\n  %m = load m : f32\neach:\n  %x = load x : f32\n  %w = load w : f32\n"
            "  %xw = mul %x, %w\n  %a = fold sum %xw\n  %d = sub %x, %m\n  %p = mul %d, %xw\n  %b = fold sum %p\n"
            "  %neg = neg %p\n  %most = fold max %neg\nrow:\n  %s = add %a, %b\n  %t = add %s, %most\n  store sum, %t\n"
            "each:\n  %y = load x : f32\n  %v = load w : f32\n  %e = sub %y, %m\n  %f = mul %e, %v\n"
            "  %g = fma %f, %y, %m\n  %h = max %g, %a\n  store out, %h\n");
        expect(k, std::to_string(rows) + " x " + std::to_string(columns));
      }
}

TEST(sums_in_loops_of_columns_and_of_everything) {
  // The same program folded along rows, where sums are held per column, and over one long row in pieces.
  for (int64_t columns : {1, 40, 3000})
    for (int64_t rows : {1, 9, 400}) {
      const bool all = rows == 1;
      const int64_t n = rows * columns * (all ? 50 : 1);
      const std::vector<float> numbers = small(n);
      Case k(NPU_REDUCE, all ? std::vector<int64_t>{n} : std::vector<int64_t>{columns, rows}, 1);
      const std::vector<int64_t> strides = all ? std::vector<int64_t>{1} : std::vector<int64_t>{1, columns};
      k.add(k.block(numbers), NPU_F32, strides);
      k.add(k.block(numbers), NPU_F32, strides);
      k.add(k.block(all ? 1 : columns, NPU_F32), NPU_F32, all ? std::vector<int64_t>{0} : std::vector<int64_t>{1, 0});
      k.with(
          "program p(x, y, out)\neach:\n  %x = load x : f32\n  %y = load y : f32\n  %two = const 2 : f32\n"
          "  %d = sub %x, %two\n  %q = mul %d, %y\n  %s = fold sum %q\nrow:\n  store out, %s\n");
      expect(k, std::to_string(rows) + " x " + std::to_string(columns));
    }
}

TEST(sums_in_loops_that_read_folds) {
  // `get` stands where it is read, in the segment of the loop.
  for (const bool across : {false, true}) {
    const int64_t rows = 40, columns = 70;
    const std::vector<float> numbers = small(rows * columns);
    Case k(NPU_REDUCE, across ? std::vector{columns, rows} : std::vector{rows, columns}, 1);
    k.add(k.block(numbers), NPU_F32, across ? std::vector{int64_t{1}, columns} : std::vector{columns, int64_t{1}});
    k.add(k.block(across ? columns : rows, NPU_F32), NPU_F32, {1, 0});
    k.with(
        "program p(x, out)\neach:\n  %x = load x : f32\n  %m = fold max %x\neach:\n  %y = load x : f32\n"
        "  %n = get %m, 0 : f32\n  %d = sub %y, %n\n  %e = mul %d, %y\n  %s = fold sum %e\nrow:\n  store out, %s\n");
    expect(k, across ? "columns" : "rows");
  }
}

TEST(sums_that_are_stored_too) {
  // A sum stands before the last instruction of its loop, and what it folds is stored as well, one value per column.
  for (int64_t columns : {20, 600})
    for (int64_t rows : {3, 50}) {
      const std::vector<float> numbers = small(rows * columns);
      Case k(NPU_REDUCE, {rows, columns}, 1);
      k.add(k.block(numbers), NPU_F32, {0, 1});
      k.add(k.block(numbers), NPU_F32, {columns, 1});
      k.add(k.block(rows * columns, NPU_F32), NPU_F32, {columns, 1});
      k.add(k.block(rows * columns, NPU_F32), NPU_F32, {columns, 1});
      k.add(k.block(rows, NPU_F32), NPU_F32, {1, 0});
      k.with(
          "program p(x, y, out, more, sum)\neach:\n  %x = load x : f32\n  %q = mul %x, %x\n  %s = fold sum %q\n"
          "  %y = load y : f32\n  %a = add %q, %y\n  %b = sub %a, %x\n  store out, %b\n  store more, %q\nrow:\n"
          "  store sum, %s\n");
      expect(k, std::to_string(rows) + " x " + std::to_string(columns));
    }
}

TEST(sums_of_columns_with_values_of_rows) {
  // The gradients of a norm's weight and bias: what is loaded is added up as well as what is computed from it, some
  // operands are one value per folded point, and a fold of the segment before gives one per column.
  for (int64_t columns : {16, 17, 50, 2600})
    for (int64_t rows : {1, 7, 9, 200}) {
      Case k(NPU_REDUCE, {columns, rows}, 1);
      k.add(k.block(small(rows * columns)), NPU_F32, {1, columns});
      k.add(k.block(small(rows * columns + 3)), NPU_F32, {1, columns}, 3);
      k.add(k.block(small(2 * rows)), NPU_F32, {0, 2});
      k.add(k.block(columns, NPU_F32), NPU_F32, {1, 0});
      k.add(k.block(columns, NPU_F32), NPU_F32, {1, 0});
      k.with(
          "program p(g, x, mean, weight, bias; k)\neach:\n  %y = load x : f32\n  %most = fold max %y\neach:\n"
          "  %g = load g : f32\n  %x = load x : f32\n  %mean = load mean : f32\n  %k = param k : f32\n"
          "  %d = sub %x, %mean\n  %e = mul %d, %k\n  %h = add %e, %most\n  %p = mul %g, %h\n  %a = fold sum %p\n"
          "  %b = fold sum %g\nrow:\n  store weight, %a\n  store bias, %b\n");
      k.params = {number(2)};
      expect(k, std::to_string(rows) + " x " + std::to_string(columns));
    }
}

TEST(narrow_types_with_sums) {
  // Rows that are folded one by one, several in a tile, and columns; numbers that any order adds exactly.
  for (const int dtype : {NPU_BF16, NPU_F16})
    for (const int64_t columns : {3, 16, 33, 700, 5000})
      for (const bool across : {false, true}) {
        const int64_t rows = 5;
        const std::vector<float> numbers = small(rows * columns);
        const std::vector<int64_t> size = across ? std::vector<int64_t>{columns, rows} : std::vector{rows, columns};
        const std::vector<int64_t> strides =
            across ? std::vector<int64_t>{1, columns} : std::vector{columns, int64_t{1}};
        Case k(NPU_REDUCE, size, 1);
        k.add(k.block(stored(numbers, dtype)), dtype, strides);
        k.add(k.block(stored(numbers, dtype)), dtype, strides);
        k.add(k.block(rows * columns, dtype), dtype, strides);
        k.add(k.block(size[0], NPU_F32), NPU_F32, {1, 0});
        k.with(
            "program p(x, y, out, sum)\neach:\n  %x = load x : f32\n  %y = load y : f32\n  %p = mul %x, %y\n"
            "  %q = sub %p, %y\n  %a = fold sum %q\n  %b = fold sum %x\nrow:\n  %s = add %a, %b\n  store sum, %s\n"
            "each:\n  %z = load x : f32\n  %v = load y : f32\n  %d = sub %z, %v\n  %e = max %d, %b\n  store out, %e\n");
        expect(k, std::to_string(columns));
      }
}
