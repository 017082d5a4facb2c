// Programs over rows that lie dense in memory (drivers/cmodel/interpreter/row_loops.h), at the sizes where that way
// begins and ends.
#include <random>

#include "tests/cpp/engine/engine_case.h"

namespace {

using namespace engine_test;

// Small integers: their sums are exact, in whatever order.
std::vector<float> small(int64_t n, int seed) {
  std::vector<float> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(static_cast<int>((i + 3) * 7 * seed % 11) - 5);
  return out;
}

// Operands by rows and columns: dense, with gaps between rows, one value for a row or for a column, or for all; flags.
struct Mixed {
  Case k;
  std::mt19937 random;
  int64_t rows, cols;
  std::string names, body;
  int count = 0;

  Mixed(int kind, int64_t rows, int64_t cols, unsigned seed)
      : k(kind, {rows, cols}, kind == NPU_REDUCE), random(seed), rows(rows), cols(cols) {}

  void operand(const std::string& name, int block, int dtype, std::vector<int64_t> stride) {
    k.add(block, dtype, stride);
    names += (names.empty() ? "" : ", ") + name;
  }
  void result(const std::string& name) {
    const int64_t row = cols + static_cast<int64_t>(random() % 3);
    const int dtype = random() % 3 == 0 ? NPU_BF16 : NPU_F32;
    operand(name, k.block(rows * row, dtype), dtype, {row, 1});
  }
  // %t0, %t1, ...: each of the one before it and one more operand.
  void add_up(int operands, const std::string& first) {
    body += "  %t0 = " + first + "\n";
    for (int i = 0; i < operands; ++i, ++count) {
      const std::string n = std::to_string(count), x = "x" + n, before = "%t" + n, t = "%t" + std::to_string(count + 1);
      if (random() % 8 == 0) {
        std::vector<uint8_t> flags(static_cast<size_t>(rows * cols));
        for (uint8_t& flag : flags) flag = random() % 2;
        operand(x, k.block(flags), NPU_BOOL, {cols, 1});
        body += "  %" + x + " = load " + x + " : bool\n  %n" + n + " = neg " + before + "\n";
        body += "  " + t + " = where %" + x + ", " + before + ", %n" + n + "\n";
        continue;
      }
      const int64_t gap = cols + static_cast<int64_t>(random() % 4);
      const std::vector<int64_t> ways[] = {{cols, 1}, {gap, 1}, {1, 0}, {0, 1}, {0, 0}, {2, 0}};
      operand(x, k.block(small(2 * rows + rows * gap, 1 + count)), NPU_F32, ways[random() % 6]);
      body += "  %" + x + " = load " + x + " : f32\n  " + t + " = add " + before + ", %" + x + "\n";
    }
  }
  std::string last() const { return "%t" + std::to_string(count); }
  void expect_same(const std::string& what) {
    k.with(("program p(" + names + ")\neach:\n" + body).c_str());
    expect(k, what + ": " + std::to_string(rows) + " x " + std::to_string(cols) + "\n" + body);
  }
};

}  // namespace

TEST(rows_that_one_loop_walks) {
  const int64_t all_rows[] = {1, 2, 15, 16, 17, 33, 70}, all_cols[] = {16, 32, 33, 47, 64, 100, 256, 303, 2048, 2100};
  unsigned seed = 0;
  for (const int64_t rows : all_rows)
    for (const int64_t cols : all_cols)
      for (const int operands : {1, 3, 6, 14}) {
        Mixed map(NPU_MAP, rows, cols, ++seed);
        map.operand("first", map.k.block(small(rows * cols, 3)), NPU_F32, {cols, 1});
        map.add_up(operands, "load first : f32");
        map.result("out");
        map.body += "  store out, " + map.last() + "\n";
        map.expect_same("map");

        Mixed product(NPU_MATMUL, rows, cols, ++seed);
        constexpr int64_t kDepth = 5;
        product.k.c.u.matmul.k = kDepth;
        product.k.c.u.matmul.acc_dtype = NPU_F32;
        product.operand("a", product.k.block(small(rows * kDepth, 1)), NPU_F32, {kDepth, 1});
        product.operand("b", product.k.block(small(cols * kDepth, 2)), NPU_F32, {cols, 1});
        product.add_up(operands, "acc : f32");
        product.result("out");
        product.body += "  store out, " + product.last() + "\n";
        product.expect_same("product");

        Mixed fold(NPU_REDUCE, rows, cols, ++seed);
        fold.operand("first", fold.k.block(small(rows * cols, 5)), NPU_F32, {cols, 1});
        fold.add_up(operands, "load first : f32");
        fold.result("out");
        fold.result("other");
        fold.body += "  store out, " + fold.last() + "\n  %a = fold sum " + fold.last() + "\n  %b = fold sum %t0\n";
        fold.body += "each:\n  %y = load first : f32\n  %c = sub %y, %a\n  %d = add %c, %b\n  store other, %d\n";
        fold.expect_same("reduction");
      }
}

TEST(rows_of_a_map_whose_dimensions_stay_apart) {
  // Rotary embedding: halves of heads by values of the position, one of them the same for all rows.
  for (int64_t half : {16, 31, 32, 33, 127, 130, 2500})
    for (int dtype : {NPU_F32, NPU_BF16}) {
      const int64_t batches = 2, tokens = 5, heads = 3, head = 2 * half, token = heads * head;
      Case k(NPU_MAP, {batches, tokens, heads, half});
      const int x = k.block(small(batches * tokens * token, 1)), angle = k.block(small(tokens * half, 2));
      const int out = k.block(batches * tokens * token, dtype);
      k.add(x, NPU_F32, {tokens * token, token, head, 1});
      k.add(x, NPU_F32, {tokens * token, token, head, 1}, half);
      k.add(angle, NPU_F32, {0, half, 0, 1});
      k.add(k.block(small(heads, 3)), NPU_F32, {0, 0, 1, 0});
      k.add(k.block(small(1, 4)), NPU_F32, {0, 0, 0, 0});
      k.add(out, dtype, {tokens * token, token, head, 1});
      k.add(out, dtype, {tokens * token, token, head, 1}, half);
      k.with(
          "program p(a, b, angle, scale, one, low, high)\neach:\n  %a = load a : f32\n  %b = load b : f32\n"
          "  %t = load angle : f32\n  %s = load scale : f32\n  %o = load one : f32\n  %f = add %s, %o\n"
          "  %at = mul %a, %t\n  %bf = mul %b, %f\n  %l = sub %at, %bf\n  store low, %l\n  %bt = mul %b, %t\n"
          "  %h = fma %a, %f, %bt\n  store high, %h\n");
      expect(k, std::to_string(half) + " " + npu::dtype_name(dtype));
    }
}

TEST(rows_of_a_reduction_in_pieces) {
  // The gradient of a batch norm, in place: channels are kept, images and points folded.
  for (int64_t points : {15, 16, 17, 64, 300, 5000})
    for (int64_t channels : {1, 2, 70}) {
      const int64_t images = 3, image = channels * points;
      Case k(NPU_REDUCE, {channels, images, points}, 2);
      const int gradient = k.block(small(images * image, 1));
      k.add(gradient, NPU_F32, {points, image, 1});
      k.add(k.block(small(images * image, 2)), NPU_F32, {points, image, 1});
      k.add(k.block(small(channels, 3)), NPU_F32, {1, 0, 0});
      k.add(k.block(channels, NPU_F32), NPU_F32, {1, 0, 0});
      k.add(gradient, NPU_F32, {points, image, 1});
      k.with(
          "program p(g, x, mean, weight, out)\neach:\n  %g = load g : f32\n  %x = load x : f32\n  %m = load mean : "
          "f32\n"
          "  %d = sub %x, %m\n  %p = mul %g, %d\n  %a = fold sum %p\n  %b = fold sum %g\nrow:\n  %two = const 2 : f32\n"
          "  %w = mul %a, %two\n  store weight, %w\neach:\n  %h = load g : f32\n  %y = load x : f32\n"
          "  %n = load mean : f32\n  %e = sub %y, %n\n  %r = fma %e, %w, %h\n  %s = sub %r, %b\n  store out, %s\n");
      expect(k, std::to_string(channels) + " of " + std::to_string(points));
    }
}

TEST(rows_of_a_norm_in_pieces) {
  // Mean and variance of what is loaded, then what is computed from them for each row, then a norm and one instruction.
  for (int64_t points : {16, 63, 64, 256, 2500})
    for (int64_t channels : {2, 70}) {
      const int64_t images = 3, image = channels * points;
      Case k(NPU_REDUCE, {channels, images, points}, 2);
      k.add(k.block(small(images * image, 1)), NPU_F32, {points, image, 1});
      k.add(k.block(small(channels, 2)), NPU_F32, {1, 0, 0});
      k.add(k.block(small(channels, 3)), NPU_F32, {1, 0, 0});
      k.add(k.block(images * image, NPU_F32), NPU_F32, {points, image, 1});
      k.with(
          "program p(x, weight, bias, out)\neach:\n  %x = load x : f32\n  %f = fold welford %x\n  %mean = get %f, 0 : "
          "f32\n"
          "  %m2 = get %f, 1 : f32\nrow:\n  %one = const 1 : f32\n  %v = add %m2, %one\n  %r = rsqrt %v\neach:\n"
          "  %y = load x : f32\n  %d = sub %y, %mean\n  %e = mul %d, %r\n  %w = load weight : f32\n  %g = mul %e, %w\n"
          "  %b = load bias : f32\n  %h = add %g, %b\n  %zero = const 0 : f32\n  %k = max %h, %zero\n  store out, "
          "%k\n");
      expect(k, std::to_string(channels) + " of " + std::to_string(points), {1e-5, 1.0});
    }
}

TEST(rows_of_a_reduction_with_many_instructions) {
  // Segments that each subtract from what they load what the one before them has added up.
  for (int length : {60, 100, 127, 128, 129, 200, 255, 256, 257, 400}) {
    const int64_t rows = 5, points = 300;
    Case k(NPU_REDUCE, {rows, points}, 1);
    k.add(k.block(small(rows * points, 1)), NPU_F32, {points, 1});
    k.add(k.block(rows * points, NPU_F32), NPU_F32, {points, 1});
    std::string text = "program p(x, out)\n", folded;
    int count = 0;
    const auto emit = [&](const std::string& op) {
      text += "  %v" + std::to_string(count) + " = " + op + "\n";
      return "%v" + std::to_string(count++);
    };
    while (count < length) {
      text += "each:\n";
      std::string value = emit("load x : f32");
      if (!folded.empty()) value = emit("sub " + value + ", " + folded);
      const std::string other = value;
      for (int i = 0; i < 12; ++i)
        value = emit((i % 3 == 0 ? "min " : i % 3 == 1 ? "neg " : "max ") + value + (i % 3 == 1 ? "" : ", " + other));
      const std::string small_enough = emit("const 0.00390625 : f32");
      value = emit("mul " + value + ", " + small_enough);
      folded = emit("fold sum " + value);
    }
    text += "each:\n  %last = load x : f32\n  %result = sub %last, " + folded + "\n  store out, %result\n";
    k.with(text.c_str());
    expect(k, std::to_string(length), {1e-5, 1e-5});
  }
}

TEST(a_value_of_a_row_is_read_by_two_segments) {
  // Of rows too short for loops of their own, the first segment spreads the value and must leave it to the second. The
  // gradient of a sine of a norm, with what the first stores loaded and overwritten by the second.
  for (int64_t points : {8, 16, 31, 32, 40, 47, 48, 64, 300})
    for (int64_t rows : {2, 3, 30}) {
      Case k(NPU_REDUCE, {rows, points}, 1);
      k.add(k.block(small(rows * points, 3)), NPU_F32, {points, 1});
      k.add(k.block(small(rows * points, 5)), NPU_F32, {points, 1});
      k.add(k.block(rows * points, NPU_F32), NPU_F32, {points, 1});
      k.with(
          "program p(x, g, out)\neach:\n  %x = load x : f32\n  %f = fold welford %x\n  %m = get %f, 0 : f32\n"
          "  %v = get %f, 1 : f32\nrow:\n  %one = const 1 : f32\n  %o = add %v, %one\n  %r = rsqrt %o\neach:\n"
          "  %g = load g : f32\n  %y = load x : f32\n  %c = sub %y, %m\n  %n = mul %c, %r\n  %s = sin %n\n"
          "  %p = mul %g, %s\n  store out, %p\n  %q = add %g, %p\n  %t = mul %q, %n\n  %a = fold sum %t\n"
          "  %b = fold sum %q\neach:\n  %h = load g : f32\n  %l = load out : f32\n  %i = add %h, %l\n"
          "  %j = sub %i, %b\n  %z = load x : f32\n  %d = sub %z, %m\n  %e = mul %d, %r\n  %k = mul %e, %a\n"
          "  %w = sub %j, %k\n  %u = mul %r, %w\n  store out, %u\n");
      expect(k, std::to_string(rows) + " rows of " + std::to_string(points), {1e-5, 100});
    }
}
