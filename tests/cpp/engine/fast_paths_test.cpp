// The engine's shortcuts, each at the sizes where it begins and ends: rows of one instruction, folds that read memory
// themselves, two instructions in one kernel, exp and erf, and how accurate sums are.
#include "tests/cpp/engine/engine_case.h"

namespace {

using namespace engine_test;

// Values with many bits, of both signs, by a small generator.
std::vector<float> noise(int64_t n, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& x : values) x = normal(random);
  return values;
}

int noise_block(Case& k, int64_t n, int dtype, uint32_t seed) {
  const std::vector<float> values = noise(n, seed);
  const int block = k.block(n, dtype);
  for (int64_t i = 0; i < n; ++i) {
    npu::Value value{};
    value.f64 = static_cast<double>(values[static_cast<size_t>(i)]) * (dtype >= NPU_F16 ? 1 : 100);
    npu::store_value(k.memory.back().data() + i * npu::dtype_size(dtype), dtype, value, NPU_F64);
  }
  return block;
}

std::string compute_name(int dtype) {
  return npu::dtype_name(npu::compute_dtype(static_cast<uint8_t>(dtype)));
}

}  // namespace

TEST(one_instruction_over_rows) {
  for (int dtype : {NPU_F32, NPU_BF16, NPU_F16, NPU_I32, NPU_F64, NPU_U8})
    for (int64_t n : {31, 32, 33, 100, 1025}) {
      const std::string t = compute_name(dtype);
      const std::string text = "program p(x, y, out)\neach:\n  %x = load x : " + t + "\n  %y = load y : " + t +
                               "\n  %r = sub %x, %y\n  store out, %r\n";
      const int64_t r = 7, planes = 3;
      struct {
        const char* name;
        std::vector<int64_t> x, y, out;
      } layouts[] = {
          {"row", {r * n, n, 1}, {0, 0, 1}, {r * n, n, 1}},
          {"column", {r * n, n, 1}, {r, 1, 0}, {r * n, n, 1}},
          {"first", {0, 0, 1}, {r * n, n, 1}, {r * n, n, 1}},
          {"slices", {r * (n + 5), n + 5, 1}, {0, n, 1}, {r * (n + 3), n + 3, 1}},
          {"outer product", {r, 1, 0}, {0, 0, 1}, {r * n, n, 1}},
      };
      for (auto& layout : layouts) {
        Case k(NPU_MAP, {planes, r, n});
        const int64_t room = planes * r * (n + 5);
        const int x = noise_block(k, room, dtype, 1), y = noise_block(k, room, dtype, 2), out = k.block(room, dtype);
        k.add(x, dtype, layout.x);
        k.add(y, dtype, layout.y);
        k.add(out, dtype, layout.out);
        expect(k.with(text.c_str()), std::string(layout.name) + " " + npu::dtype_name(dtype) + " " + std::to_string(n));
      }
    }
}

TEST(folds_that_read_memory) {
  for (const char* kind : {"sum", "max", "min", "prod", "welford"})
    for (int dtype : {NPU_F32, NPU_F64, NPU_I32, NPU_BF16})
      for (int64_t m : {1, 7, 8, 63, 64, 65, 500, 1000, 4097, 10000})
        for (int64_t rows : {1, 3, 40})
          for (bool columns : {false, true}) {
            if (dtype == NPU_I32 && std::string(kind) == "welford") continue;
            const std::string t = compute_name(dtype);
            const std::string text = "program p(x, out)\neach:\n  %x = load x : " + t + "\n  %f = fold " + kind +
                                     " %x\nrow:\n  %r = get %f, 0 : " + t + "\n  store out, %r\n";
            Case k(NPU_REDUCE, {rows, m}, 1);
            const int x = noise_block(k, rows * m, dtype, 3), out = k.block(rows, dtype);
            k.add(x, dtype, columns ? std::vector<int64_t>{1, rows} : std::vector<int64_t>{m, 1});
            k.add(out, dtype, {1, 0});
            const bool order = dtype != NPU_I32 && kind[1] != 'a' && kind[1] != 'i';
            expect(k.with(text.c_str()),
                   std::string(kind) + " " + npu::dtype_name(dtype) + " " + std::to_string(rows) + " x " +
                       std::to_string(m) + (columns ? " columns" : " rows"),
                   order ? Tolerance{dtype == NPU_BF16 ? 1e-2 : 1e-5, kind[0] == 's'   ? 100.0
                                                                      : kind[0] == 'w' ? 1.0
                                                                                       : 1e-30}
                         : Tolerance{});
          }
}

TEST(sums_over_a_middle_dimension) {
  for (int64_t cols : {15, 16, 40, 200})
    for (int64_t m : {3, 8, 100, 700}) {
      const int64_t planes = 5;
      Case k(NPU_REDUCE, {planes, cols, m}, 1);
      const int x = noise_block(k, planes * m * cols, NPU_F32, 4), out = k.block(planes * cols, NPU_F32);
      k.add(x, NPU_F32, {m * cols, 1, cols});
      k.add(out, NPU_F32, {cols, 1, 0});
      k.with(
          "program p(x, out)\neach:\n  %x = load x : f32\n  %f = fold sum %x\nrow:\n  %r = get %f, 0 : f32\n"
          "  store out, %r\n");
      expect(k, std::to_string(m) + " x " + std::to_string(cols), {1e-6, 100});
    }
}

TEST(sums_are_as_accurate_as_float32_allows) {
  // Terms of both signs that nearly cancel: only the rounding of partial sums shows.
  for (int64_t m : {100, 5000, 200000})
    for (int64_t rows : {1, 20})
      for (bool columns : {false, true}) {
        std::vector<float> values = noise(rows * m, 5);
        Case k(NPU_REDUCE, {rows, m}, 1);
        const int x = k.block(values), out = k.block(rows, NPU_F32);
        k.add(x, NPU_F32, columns ? std::vector<int64_t>{1, rows} : std::vector<int64_t>{m, 1});
        k.add(out, NPU_F32, {1, 0});
        k.with(
            "program p(x, out)\neach:\n  %x = load x : f32\n  %f = fold sum %x\nrow:\n  %r = get %f, 0 : f32\n"
            "  store out, %r\n");
        std::vector<Bytes> got;
        std::string error;
        if (k.engine(got, error) != NPU_OK) fail(error);
        for (int64_t r = 0; r < rows; ++r) {
          double truth = 0, squares = 0;
          for (int64_t i = 0; i < m; ++i) {
            const double v = values[static_cast<size_t>(columns ? i * rows + r : r * m + i)];
            truth += v;
            squares += v * v;
          }
          float sum;
          std::memcpy(&sum, got[static_cast<size_t>(out)].data() + r * 4, sizeof sum);
          const double room = std::ldexp(std::fabs(truth) + 8 * std::sqrt(squares), -24);
          if (!(std::fabs(sum - truth) <= room))
            fail(std::to_string(rows) + " x " + std::to_string(m) + (columns ? " columns" : " rows") + ": expected " +
                 std::to_string(truth) + ", got " + std::to_string(sum));
        }
      }
}

TEST(two_instructions_in_one_kernel) {
  const char* ops[] = {"add", "sub", "mul", "max"};
  for (int first = 0; first < 3; ++first)
    for (const char* second : ops)
      for (bool swapped : {false, true})
        for (int uniform = 0; uniform < 8; ++uniform) {
          const int64_t n = 133, rows = 3;
          Case k(NPU_MAP, {rows, n});
          for (int i = 0; i < 3; ++i) {
            const int block = k.block(noise(rows * n, static_cast<uint32_t>(i + 7)));
            k.add(block, NPU_F32, uniform >> i & 1 ? std::vector<int64_t>{n, 0} : std::vector<int64_t>{n, 1});
          }
          k.add(k.block(rows * n, NPU_F32), NPU_F32, {n, 1});
          const std::string text =
              std::string("program p(x, y, z, out)\neach:\n  %x = load x : f32\n  %y = load y : ") +
              "f32\n  %z = load z : f32\n  %a = " + ops[first] + " %x, %y\n  %r = " + second +
              (swapped ? " %z, %a" : " %a, %z") + "\n  store out, %r\n";
          expect(k.with(text.c_str()), text);
        }
  // In place: the value between the two is never in memory, and what it is made of must outlive it.
  Case k(NPU_MAP, {500});
  const int x = k.block(noise(500, 11));
  k.add(x, NPU_F32, {1});
  k.with(
      "program p(x)\neach:\n  %x = load x : f32\n  %c = const 3 : f32\n  %a = mul %x, %c\n  %b = add %x, %c\n"
      "  store x, %b\n  %r = sub %a, %b\n  store x, %r\n");
  expect(k, "in place");
}

TEST(exp_and_erf_to_the_last_place) {
  std::vector<float> values = {0.0f,     -0.0f,    INFINITY, -INFINITY, NAN,      1e-40f, -1e-40f, 1e-20f, 3.4e38f,
                               -3.4e38f, 88.7228f, 88.7229f, -87.4f,    -103.97f, -104.f, 4.0f,    -4.0f,  3.9999998f};
  for (float x = -12; x < 12; x += 0.00137f) values.push_back(x);
  for (float x = -104; x < 89; x += 0.0171f) values.push_back(x);
  const int64_t n = static_cast<int64_t>(values.size());
  for (bool exponential : {true, false})
    for (bool fused : {false, true}) {
      Case k(NPU_MAP, {n});
      const int x = k.block(values), out = k.block(n, NPU_F32);
      k.add(x, NPU_F32, {1});
      k.add(out, NPU_F32, {1});
      const std::string name = exponential ? "exp" : "erf";
      const std::string before = !fused        ? "  %a = max %x, %x\n"
                                 : exponential ? "  %c = const 0 : f32\n  %a = sub %x, %c\n"
                                               : "  %c = const 1 : f32\n  %a = mul %x, %c\n";
      k.with(("program p(x, out)\neach:\n  %x = load x : f32\n" + before + "  %r = " + name + " %a\n  store out, %r\n")
                 .c_str());
      std::vector<Bytes> got;
      std::string error;
      if (k.engine(got, error) != NPU_OK) fail(error);
      for (int64_t i = 0; i < n; ++i) {
        const float v = values[static_cast<size_t>(i)];
        float y;
        std::memcpy(&y, got[static_cast<size_t>(out)].data() + i * 4, sizeof y);
        const double truth = exponential ? std::exp(static_cast<double>(v)) : std::erf(static_cast<double>(v));
        const float near = static_cast<float>(truth);
        if (std::isnan(truth) ? std::isnan(y) : (y == near && std::signbit(y) == std::signbit(near))) continue;
        const double unit = std::nextafter(std::fabs(near), INFINITY) - static_cast<double>(std::fabs(near));
        if (!(std::fabs(y - truth) <= 1.5 * unit))
          fail(name + (fused ? " fused" : "") + " of " + std::to_string(v) + ": expected " + std::to_string(truth) +
               ", got " + std::to_string(y));
      }
    }
}
