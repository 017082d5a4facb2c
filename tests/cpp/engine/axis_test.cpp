// Values that vary along one direction of a tile only: index arithmetic, broadcast operands, masks, and the addresses
// and norms that are made of them.
#include "tests/cpp/engine/engine_case.h"

namespace {

using namespace engine_test;

std::vector<float> whole_numbers(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& x : values) x = static_cast<float>(static_cast<int>(random() % 201) - 100);
  return values;
}

// %a, %b: coordinates moved by (2, 3) and kept inside 0 .. rows - 1, 0 .. columns - 1; %at: where that lies.
std::string clamped(int64_t rows, int64_t columns) {
  const auto number = [](int64_t n) { return std::to_string(n); };
  return "  %i = index 1\n  %j = index 2\n  %two = const 2 : i64\n  %three = const 3 : i64\n  %zero = const 0 : i64\n"
         "  %h = const " +
         number(rows - 1) + " : i64\n  %w = const " + number(columns - 1) + " : i64\n  %step = const " +
         number(columns) +
         " : i64\n  %i1 = sub %i, %two\n  %j1 = sub %j, %three\n  %i2 = max %i1, %zero\n  %j2 = max %j1, %zero\n"
         "  %a = min %i2, %h\n  %b = min %j2, %w\n  %row = mul %a, %step\n  %at = add %row, %b\n"
         "  %ri = eq %a, %i1\n  %rj = eq %b, %j1\n  %inside = and %ri, %rj\n";
}

struct Shape {
  int64_t planes, rows, columns;
};
const Shape kShapes[] = {{2, 1, 7}, {3, 4, 2}, {2, 3, 12}, {2, 30, 40}, {1, 5, 700}, {2, 100, 9}, {1, 3, 3000}};

}  // namespace

// Small planes share tiles, whichever of the three directions an operand leaves out or walks backwards.
TEST(operands_of_small_planes) {
  struct Sizes {
    int64_t planes, rows, columns;
  };
  for (const Sizes& s : {Sizes{1, 16, 16}, Sizes{70, 16, 16}, Sizes{9, 3, 5}, Sizes{300, 2, 2}, Sizes{5, 20, 25},
                         Sizes{40, 31, 33}, Sizes{3, 1, 40}})
    for (int kind = 0; kind < 12; ++kind)
      for (const int dtype : {NPU_F32, NPU_BF16, NPU_F64}) {
        const int64_t plane = s.rows * s.columns, n = s.planes * plane;
        Case k(NPU_MAP, {s.planes, s.rows, s.columns});
        k.add(k.block(n, NPU_F32), NPU_F32,
              kind == 11 ? std::vector<int64_t>{1, s.planes, s.planes * s.rows}
                         : std::vector<int64_t>{plane, s.columns, 1});
        const auto numbers = [&] {
          std::vector<unsigned char> bytes;
          for (const float x : whole_numbers(n, 7)) {
            uint64_t bits = 0;
            const double wide = static_cast<double>(x);
            std::memcpy(&bits, dtype == NPU_F64 ? static_cast<const void*>(&wide) : &x, dtype == NPU_F64 ? 8 : 4);
            if (dtype == NPU_BF16) bits >>= 16;
            for (int b = 0; b < npu::dtype_size(dtype); ++b)
              bytes.push_back(static_cast<unsigned char>(bits >> (8 * b)));
          }
          return k.block(bytes);
        };
        const std::vector<int64_t> strides[] = {
            {0, s.columns, 1},  {0, 1, 0},      {s.rows, 1, 0}, {s.columns, 0, 1},      {0, 0, 1},          {1, 0, 0},
            {plane, 1, s.rows}, {0, 1, s.rows}, {0, 2, 0},      {plane, s.columns, -1}, {s.columns, 0, -1}, {0, 1, 0}};
        const int64_t first = kind == 8 && 2 * s.rows > n ? -1 : kind == 9 || kind == 10 ? s.columns - 1 : 0;
        if (first < 0) continue;
        k.add(numbers(), dtype, strides[kind], first);
        k.add(k.block(whole_numbers(n, 8)), NPU_F32, {plane, s.columns, 1});
        for (const char* text : {"program p(out, x, y)\neach:\n  %x = load x : f32\n  %y = load y : f32\n  %m = mul "
                                 "%x, %y\n  store out, %m\n",
                                 "program p(out, x, y)\neach:\n  %x = load x : f32\n  %y = load y : f32\n  %m = fma "
                                 "%x, %y, %y\n  %a = max %m, "
                                 "%x\n  %b = sub %a, %y\n  store out, %b\n",
                                 "program p(out, x, y)\neach:\n  %x = load x : f32\n  %y = load x : f32\n  %m = mul "
                                 "%x, %y\n  store out, %m\n",
                                 "program p(out, x, y)\neach:\n  %x = load x : i64\n  %y = load y : i64\n  %m = max "
                                 "%x, %y\n  store out, %m\n"}) {
          k.with(text);
          expect(k, std::to_string(s.planes) + " x " + std::to_string(s.rows) + " x " + std::to_string(s.columns) +
                        ", kind " + std::to_string(kind));
        }
      }
}

TEST(copies_that_turn_dimensions_round) {
  for (const int64_t rows : {1, 7, 300})
    for (const int64_t columns : {1, 2, 16, 50, 3000})
      for (int flips = 0; flips < 16; ++flips)  // of each side, rows and columns
        for (const int dtype : {NPU_F32, NPU_F64}) {
          if (rows * columns > 200000) continue;
          Case k(NPU_COPY, {rows, columns});
          const auto side = [&](int block, int type, bool turn_rows, bool turn_columns) {
            k.add(block, type, {turn_rows ? -columns : columns, turn_columns ? -1 : 1},
                  (turn_rows ? (rows - 1) * columns : 0) + (turn_columns ? columns - 1 : 0));
          };
          side(k.block(rows * columns, dtype), dtype, flips & 1, flips & 2);
          side(k.block(whole_numbers(rows * columns, 4)), NPU_F32, flips & 4, flips & 8);
          expect(k, std::to_string(rows) + " x " + std::to_string(columns) + ", " + std::to_string(flips));
        }
  Case fill(NPU_COPY, {6, 5});
  fill.add(fill.block(30, NPU_F32), NPU_F32, {-5, -1}, 29);
  fill.immediate(NPU_F32, 0x40400000);
  expect(fill, "a fill");
}

TEST(addresses_of_a_row_and_a_column_part) {
  for (const Shape& s : kShapes)
    for (const char* mask : {"", ", mask %inside", ", mask %ri", ", mask %rj"}) {
      const int64_t h = s.rows + 4, w = s.columns + 6;
      Case k(NPU_MAP, {s.planes, h, w});
      k.add(k.block(whole_numbers(s.planes * s.rows * s.columns, 3)), NPU_F32, {s.rows * s.columns, 0, 0});
      k.add(k.block(s.planes * h * w, NPU_F32), NPU_F32, {h * w, w, 1});
      k.with(("program p(x, out)\neach:\n" + clamped(s.rows, s.columns) + "  %x = load_at x, %at" + mask +
              " : f32\n  store out, %x\n")
                 .c_str());
      expect(k, "load " + std::to_string(s.rows) + " x " + std::to_string(s.columns) + mask);
    }
}

TEST(scatters_to_a_row_and_a_column_part) {
  for (const Shape& s : kShapes)
    for (const char* mode : {"", ", add", ", max"})
      for (const char* mask : {"", ", mask %inside", ", mask %ri"})
        for (int dtype : {NPU_F32, NPU_BF16}) {
          const int64_t h = s.rows + 4, w = s.columns + 6;
          Case k(NPU_SCATTER, {s.planes, h, w});
          k.add(k.block(whole_numbers(s.planes * h * w, 3)), NPU_F32, {h * w, w, 1});
          k.add(k.block(s.planes * s.rows * s.columns, dtype), dtype, {s.rows * s.columns, 0, 0});
          k.with(("program p(x, out)\neach:\n" + clamped(s.rows, s.columns) + "  %x = load x : f32\n  store_at out, " +
                  "%x, %at" + mode + mask + "\n")
                     .c_str());
          expect(k,
                 "store" + std::string(mode) + mask + " " + std::to_string(s.rows) + " x " + std::to_string(s.columns));
        }
}

TEST(one_index_for_a_row) {
  for (int64_t columns : {1, 3, 17, 128, 5000})
    for (bool scatter : {false, true})
      for (const char* mode : {"", ", add"}) {
        const int64_t rows = 20, table = 9;
        Case k(scatter ? NPU_SCATTER : NPU_MAP, {rows, columns});
        std::vector<int64_t> index;
        for (int64_t r = 0; r < rows; ++r) index.push_back(r * 5 % table);
        k.add(k.block(index), NPU_I64, {1, 0});
        k.add(k.block(whole_numbers(rows * columns, 5)), NPU_F32, {columns, 1});
        k.add(k.block(whole_numbers(table * columns, 6)), NPU_F32, {0, 1}).limit = table * columns;
        const std::string size = std::to_string(columns);
        k.with(("program p(index, x, table)\neach:\n  %i = load index : i64\n  %s = const " + size +
                " : i64\n  %at = mul %i, %s\n" +
                (scatter ? "  %x = load x : f32\n  store_at table, %x, %at" + std::string(mode) + "\n"
                         : "  %x = load_at table, %at : f32\n  store x, %x\n"))
                   .c_str());
        expect(k, (scatter ? "scatter " : "gather ") + size + mode);
      }
}

// Programs that hold many values have small tiles, and rows that are longer are cut.
TEST(many_values_at_computed_addresses_of_long_rows) {
  for (const int64_t columns : {500, 512, 600, 1320, 2040, 2048, 3000}) {
    const int64_t rows = 3, n = rows * columns;
    std::string text =
        "program p(at, x, out)\neach:\n  %at = load at : i64\n  %one = const 1 : i64\n  %p0 = add %at, %one\n";
    const auto number = [](int k) { return std::to_string(k); };
    for (int k = 1; k < 14; ++k) text += "  %p" + number(k) + " = xor %p" + number(k - 1) + ", %one\n";
    for (int k = 0; k < 14; ++k) text += "  %x" + number(k) + " = load_at x, %p" + number(k) + " : f64\n";
    text += "  %s13 = add %x13, %x0\n";
    for (int k = 12; k >= 0; --k) text += "  %s" + number(k) + " = sub %s" + number(k + 1) + ", %x" + number(k) + "\n";
    text += "  store out, %s0\n";
    std::vector<unsigned char> places;
    std::mt19937 random(5);
    for (int64_t k = 0; k < n; ++k) {
      const int64_t at = static_cast<int64_t>(random() % static_cast<uint32_t>(n - 2));
      for (int b = 0; b < 8; ++b) places.push_back(static_cast<unsigned char>(at >> (8 * b)));
    }
    Case k(NPU_MAP, {rows, columns});
    k.add(k.block(places), NPU_I64, {columns, 1});
    k.add(k.block(whole_numbers(n, 3)), NPU_F32, {0, 0});
    k.add(k.block(n + rows, NPU_F32), NPU_F32, {columns + 1, 1});
    k.with(text.c_str());
    expect(k, std::to_string(columns) + " columns");
  }
}

TEST(scatters_by_several_threads_keep_the_last_store) {
  // Large enough that every thread walks all points; few targets, so that most are stored to many times.
  for (const char* mode : {"", ", add", ", min"}) {
    const int64_t n = 200000, targets = 37;
    Case k(NPU_SCATTER, {n});
    std::mt19937 random(9);
    std::vector<int64_t> index(static_cast<size_t>(n));
    for (int64_t& i : index) i = static_cast<int64_t>(random() % targets);
    k.add(k.block(index), NPU_I64, {1});
    k.add(k.block(whole_numbers(n, 5)), NPU_F32, {1});
    k.add(k.block(whole_numbers(targets, 6)), NPU_F32, {0}).limit = targets;
    k.with(("program p(index, x, out)\neach:\n  %i = load index : i64\n  %x = load x : f32\n  store_at out, %x, %i" +
            std::string(mode) + "\n")
               .c_str());
    expect(k, "scatter" + std::string(mode));
  }
}

// Points [planes, rows, columns] into tensors [planes, targets, columns] along the middle, or [planes, rows, targets]
// along the last: stores stay apart where the other coordinates differ, so threads share out one of those. With `step`
// below the size of a plane they do not.
TEST(scatters_whose_stores_stay_apart) {
  struct Kind {
    int64_t planes, rows, columns, targets;
    bool last;
    int64_t shrink;
  };
  const Kind kinds[] = {{40, 50, 60, 7, false, 0}, {1, 500, 300, 9, false, 0}, {1, 400, 500, 30, true, 0},
                        {30, 40, 100, 5, true, 0}, {40, 50, 60, 7, false, 30}, {200, 1, 700, 20, true, 3}};
  for (const Kind& c : kinds)
    for (const char* mode : {"", ", add"})
      for (const bool masked : {false, true}) {
        Case k(NPU_SCATTER, {c.planes, c.rows, c.columns});
        const int64_t n = c.planes * c.rows * c.columns, plane = c.last ? c.rows * c.targets : c.targets * c.columns;
        std::mt19937 random(11);
        std::vector<int64_t> index(static_cast<size_t>(n));
        for (int64_t& i : index) i = static_cast<int64_t>(random() % static_cast<uint64_t>(c.targets));
        k.add(k.block(index), NPU_I64, {c.rows * c.columns, c.columns, 1});
        k.add(k.block(whole_numbers(n, 5)), NPU_F32, {c.rows * c.columns, c.columns, 1});
        k.add(k.block(whole_numbers(c.planes * plane, 6)), NPU_F32,
              {plane - c.shrink, c.last ? c.targets : 0, c.last ? 0 : 1});
        k.with(("program p(index, x, out)\neach:\n  %i = load index : i64\n  %n = const " + std::to_string(c.targets) +
                " : i64\n  %two = const 2 : i64\n  %m = ne %i, %two\n  %c = check_index %i, %n, check" +
                (masked ? ", mask %m" : "") + "\n  %s = const " + std::to_string(c.last ? 1 : c.columns) +
                " : i64\n  %at = mul %c, %s\n  %x = load x : f32\n  store_at out, %x, %at" + mode +
                (masked ? ", mask %m" : "") + "\n")
                   .c_str());
        expect(k, std::to_string(c.planes) + " x " + std::to_string(c.rows) + " x " + std::to_string(c.columns) + mode);
      }
}

TEST(windows_with_a_border) {
  for (const Shape& s : kShapes)
    for (const char* fold : {"argmax", "argmin", "max", "sum"})
      for (const char* type : {"f32", "i32", "f64"}) {
        // 3 x 3 windows, one apart, with a border of one: positions outside are masked.
        const bool extreme = std::string(fold).starts_with("arg");
        Case k(NPU_REDUCE, {s.planes, s.rows, s.columns, 3, 3}, 2);
        const int64_t plane = s.rows * s.columns;
        std::vector<float> values = whole_numbers(s.planes * plane, 8);
        values[0] = NAN;
        values.back() = -INFINITY;
        k.add(k.block(values), NPU_F32, {plane, s.columns, 1, s.columns, 1}, -s.columns - 1);
        k.add(k.block(s.planes * plane, NPU_F32), NPU_F32, {plane, s.columns, 1, 0, 0});
        k.add(k.block(s.planes * plane, NPU_I64), NPU_I64, {plane, s.columns, 1, 0, 0});
        std::string text = "program p(x, out, at)\neach:\n";
        for (int d = 0; d < 2; ++d) {
          const std::string e = std::to_string(d);
          text += "  %o" + e + " = index " + std::to_string(1 + d) + "\n  %k" + e + " = index " +
                  std::to_string(3 + d) + "\n  %one" + e + " = const 1 : i64\n  %zero" + e + " = const 0 : i64\n  %n" +
                  e + " = size " + std::to_string(1 + d) + "\n  %p" + e + " = add %o" + e + ", %k" + e + "\n  %i" + e +
                  " = sub %p" + e + ", %one" + e + "\n  %l" + e + " = ge %i" + e + ", %zero" + e + "\n  %h" + e +
                  " = lt %i" + e + ", %n" + e + "\n  %v" + e + " = and %l" + e + ", %h" + e + "\n";
        }
        text += std::string("  %m = and %v0, %v1\n  %flat = fma %i0, %n1, %i1\n  %x = load x, mask %m : ") + type +
                "\n  %f = fold " + fold + " %x" + (extreme ? ", %flat" : "") +
                ", mask %m\nrow:\n  %r = get %f, 0 : " + type + "\n  store out, %r\n" +
                (extreme ? "  %w = get %f, 1\n  store at, %w\n" : "");
        expect(k.with(text.c_str()),
               std::string(fold) + " " + type + " " + std::to_string(s.rows) + " x " + std::to_string(s.columns));
      }
}

TEST(norms_in_one_kernel) {
  // x - mean, times rstd, times weight, plus bias: each of the four along rows, columns, both or nothing.
  const int64_t rows = 11;
  for (int64_t columns : {5, 40, 2500})
    for (int mean = 0; mean < 4; ++mean)
      for (int weight = 0; weight < 4; ++weight)
        for (int bias = 0; bias < 4; ++bias)
          for (bool in_place : {false, true}) {
            Case k(NPU_MAP, {rows, columns});
            const auto strides = [&](int kind) {
              return std::vector<int64_t>{kind & 1 ? columns : 0, kind & 2 ? 1 : 0};
            };
            const int x = k.block(whole_numbers(rows * columns, 1));
            k.add(x, NPU_F32, {columns, 1});
            k.add(k.block(whole_numbers(rows * columns, 2)), NPU_F32, strides(mean));
            k.add(k.block(whole_numbers(rows * columns, 3)), NPU_F32, strides(mean));
            k.add(k.block(whole_numbers(rows * columns, 4)), NPU_F32, strides(weight));
            k.add(k.block(whole_numbers(rows * columns, 5)), NPU_F32, strides(bias));
            k.add(in_place ? x : k.block(rows * columns, NPU_F32), NPU_F32, {columns, 1});
            k.with(
                "program p(x, mean, rstd, weight, bias, out)\neach:\n  %x = load x : f32\n  %m = load mean : f32\n"
                "  %s = load rstd : f32\n  %d = sub %x, %m\n  %n = mul %d, %s\n  %w = load weight : f32\n"
                "  %b = load bias : f32\n  %y = mul %n, %w\n  %r = add %y, %b\n  store out, %r\n");
            expect(k, std::to_string(columns) + " columns, kinds " + std::to_string(mean) + std::to_string(weight) +
                          std::to_string(bias));
          }
}

TEST(rows_of_a_reduction_in_one_tile) {
  // Values of rows stand beside the elements of many rows at once.
  for (int64_t columns : {3, 31, 32, 100, 1500})
    for (int64_t rows : {1, 5, 200}) {
      Case k(NPU_REDUCE, {rows, columns}, 1);
      k.add(k.block(whole_numbers(rows * columns, 1)), NPU_F32, {columns, 1});
      k.add(k.block(whole_numbers(columns, 2)), NPU_F32, {0, 1});
      k.add(k.block(rows * columns, NPU_F32), NPU_F32, {columns, 1});
      k.with(
          "program p(x, weight, out)\neach:\n  %x = load x : f32\n  %f = fold max %x\nrow:\n  %two = const 2 : f32\n"
          "  %t = mul %f, %two\neach:\n  %y = load x : f32\n  %w = load weight : f32\n  %d = sub %y, %f\n"
          "  %n = mul %d, %t\n  %g = lt %y, %t\n  %z = where %g, %n, %t\n  %s = mul %z, %w\n  %r = add %s, %f\n"
          "  store out, %r\n");
      expect(k, std::to_string(rows) + " x " + std::to_string(columns));
    }
}

TEST(gelu_in_one_kernel) {
  std::vector<float> values = {0.0f, -0.0f, INFINITY, NAN, 1e-30f, -1e-30f, 20.0f, -20.0f};
  for (float x = -6; x < 6; x += 0.00311f) values.push_back(x);
  const int64_t n = static_cast<int64_t>(values.size());
  for (int64_t step : {1, 2}) {
    Case k(NPU_MAP, {n / step});
    k.add(k.block(values), NPU_F32, {step});
    k.add(k.block(n, NPU_F32), NPU_F32, {1});
    k.with(
        "program p(x, out)\neach:\n  %x = load x : f32\n  %half = const 0.5 : f32\n  %h = mul %x, %half\n"
        "  %one = const 1 : f32\n  %s = const 0.7071067811865476 : f32\n  %m = mul %x, %s\n  %e = erf %m\n"
        "  %p = add %one, %e\n  %r = mul %h, %p\n  store out, %r\n");
    expect(k, "gelu", {3e-7, 2});  // near -6, 1 + erf is a unit in the last place of erf
  }
}
