// Register tiles, packing and depthwise loops of every instruction set that this machine has, against plain loops. The
// other tests see only the best of them. Values are small integers, so results are exact.
#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "drivers/cmodel/conv/kernels/kernels.h"
#include "drivers/cmodel/product/kernels/micro.h"
#include "tests/cpp/harness/harness.h"

namespace {

using cmodel::product::Micro;
namespace product = cmodel::product;
namespace conv = cmodel::conv;

std::mt19937 bits(7);

int uniform(int low, int high) {
  return low + int(bits() % unsigned(high - low + 1));
}
void check(bool ok, const char* what) {
  if (!ok) harness::fail(std::string("differs: ") + what);
}

enum class Words { kF32, kBf16, kI16, kI8 };

// One word of random elements, and the product of two words.
uint32_t random_word(Words kind) {
  const auto bf16 = [] {
    const float f = float(uniform(-3, 3));
    uint32_t u;
    std::memcpy(&u, &f, 4);
    return u;
  };
  if (kind == Words::kF32) return bf16();
  if (kind == Words::kBf16) return bf16() >> 16 | bf16();
  if (kind == Words::kI8) return uint32_t(bits());
  return uint16_t(uniform(-300, 300)) | uint32_t(uint16_t(uniform(-300, 300))) << 16;
}
double as_float(uint32_t u) {
  float f;
  std::memcpy(&f, &u, 4);
  return f;
}
double dot(Words kind, uint32_t x, uint32_t y) {
  if (kind == Words::kF32) return as_float(x) * as_float(y);
  if (kind == Words::kBf16) {
    return as_float(x << 16) * as_float(y << 16) + as_float(x & 0xffff0000) * as_float(y & 0xffff0000);
  }
  if (kind == Words::kI8) {
    double sum = 0;
    for (int i = 0; i < 32; i += 8) sum += double(int8_t(x >> i)) * int8_t(y >> i);
    return sum;
  }
  return double(int16_t(x)) * int16_t(y) + double(int16_t(x >> 16)) * int16_t(y >> 16);
}

void check_tile(const Micro& m, Words kind) {
  const int rows = uniform(1, m.rows), cols = uniform(1, m.cols), words = uniform(0, 20), ldc = cols + uniform(0, 5);
  const int width = cols <= m.cols / 2 ? m.cols / 2 : m.cols, step = words + 3;
  const bool accumulate = uniform(0, 1), integers = kind == Words::kI16 || kind == Words::kI8;
  std::vector<uint32_t> packed(words * rows + 1), loose(rows * step), b(words * width + 1);
  for (uint32_t& x : b) x = random_word(kind);
  for (int w = 0; w < words; ++w) {
    for (int r = 0; r < rows; ++r) loose[r * step + w] = packed[w * rows + r] = random_word(kind);
  }
  const auto store = [&](double x) {
    if (integers) return uint32_t(int32_t(x));
    const float f = float(x);
    uint32_t u;
    std::memcpy(&u, &f, 4);
    return u;
  };
  std::vector<uint32_t> c(ldc * rows);
  for (uint32_t& x : c) x = store(uniform(-9, 9));
  std::vector<uint32_t> from_packed = c, from_loose = c, expected = c;
  for (int r = 0; r < rows; ++r) {
    for (int j = 0; j < cols; ++j) {
      const uint32_t before = c[r * ldc + j];
      double sum = !accumulate ? 0 : integers ? int32_t(before) : as_float(before);
      for (int w = 0; w < words; ++w) sum += dot(kind, packed[w * rows + r], b[w * width + j]);
      expected[r * ldc + j] = store(sum + 0.0);
    }
  }
  m.tile(words, packed.data(), b.data(), from_packed.data(), ldc, rows, cols, accumulate);
  m.loose(words, loose.data(), step * 4, b.data(), from_loose.data(), ldc, rows, cols, accumulate);
  const auto same = [&](uint32_t x, uint32_t y) { return integers ? x == y : as_float(x) == as_float(y); };
  check(std::equal(expected.begin(), expected.end(), from_packed.begin(), same), "tile");
  check(std::equal(expected.begin(), expected.end(), from_loose.begin(), same), "tile of loose rows");
}

// Rows of A at offsets: `points` by word, `lines` by row, with the words in lines.
void check_span(const Micro& m, Words kind) {
  const int rows = uniform(1, m.span_rows), vector = m.cols / 2, cols = vector * uniform(1, m.span / vector);
  const int count = uniform(1, 4), length = uniform(1, 9), words = count * length, ldc = cols + uniform(0, 5);
  const bool accumulate = uniform(0, 1);
  std::vector<uint32_t> a(600), b(words * cols);
  for (uint32_t& x : a) x = random_word(kind);
  for (uint32_t& x : b) x = random_word(kind);
  const auto places = [](int n) {
    std::vector<int64_t> at(n);
    for (int64_t& x : at) x = uniform(0, 250);
    return at;
  };
  const std::vector<int64_t> by_word = places(words), by_row = places(rows), start = places(count);
  std::vector<float> c(ldc * rows);
  for (float& x : c) x = float(uniform(-9, 9));
  const auto expect = [&](auto element) {
    std::vector<float> out = c;
    for (int r = 0; r < rows; ++r) {
      for (int j = 0; j < cols; ++j) {
        double sum = accumulate ? c[r * ldc + j] : 0;
        for (int w = 0; w < words; ++w) sum += dot(kind, element(r, w), b[w * cols + j]);
        out[r * ldc + j] = float(sum);
      }
    }
    return out;
  };
  if (m.points) {
    std::vector<float> out = c;
    m.points(words, a.data(), by_word.data(), b.data(), out.data(), ldc, rows, cols, accumulate);
    check(out == expect([&](int r, int w) { return a[by_word[w] + r]; }), "points");
  }
  if (m.lines) {
    std::vector<float> out = c;
    m.lines(count, length, a.data(), start.data(), by_row.data(), b.data(), out.data(), ldc, rows, cols, accumulate);
    check(out == expect([&](int r, int w) { return a[start[w / length] + by_row[r] + w % length]; }), "lines");
  }
}

// Buffers are exactly as large as they must be, and a guard behind the result sees one word too many.
void check_packing(const Micro& m) {
  const int lines = uniform(1, m.cols), k = uniform(1, 70), words = (k + m.depth - 1) / m.depth, size = 4 / m.depth;
  const int strip = uniform(0, 1) ? lines : uniform(lines, m.cols + 8);
  for (const int how : {0, 1, 2}) {  // deep, wide, every second
    const int apart = how == 2 ? 2 : 1, step = how == 0 ? uniform(k, k + 9) : uniform(lines * apart, lines * apart + 9);
    const int elements = how == 0 ? (lines - 1) * step + k : (k - 1) * step + (lines - 1) * apart + 1;
    std::vector<char> source(elements * size);
    for (char& c : source) c = char(bits());
    const auto element = [&](int line, int p) -> uint32_t {
      if (p >= k) return 0;
      uint32_t x = 0;
      std::memcpy(&x, source.data() + (how == 0 ? line * step + p : p * step + line * apart) * size, size);
      return x;
    };
    std::vector<uint32_t> to((words - 1) * strip + lines + 16, 0x77777777), expected = to;
    for (int line = 0; line < lines; ++line) {
      for (int w = 0; w < words; ++w) {
        uint32_t& word = expected[w * strip + line];
        word = 0;
        for (int i = 0; i < m.depth; ++i) word |= element(line, m.depth * w + i) << (32 / m.depth * i) % 32;
      }
    }
    (how == 0 ? m.deep : how == 1 ? m.wide : m.every_second)(source.data(), step, lines, k, strip, to.data());
    check(to == expected, how == 0 ? "packing along memory" : how == 1 ? "packing across" : "packing every second");
  }
}

void check_depthwise(const conv::Kernels& kernels) {
  const int rows = uniform(1, 9), cols = uniform(1, 70), height = uniform(1, 7), width = uniform(1, 5);
  const int pitch = cols + width - 1, taps = height * width;
  const auto numbers = [](size_t n) {
    std::vector<float> v(n);
    for (float& x : v) x = float(uniform(-3, 3));
    return v;
  };
  const std::vector<float> in = numbers((rows + height) * pitch + 256), weight = numbers(taps);
  std::vector<conv::Column> columns;
  std::vector<float> by_column(taps);
  std::vector<int64_t> offsets;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      by_column[x * height + y] = weight[y * width + x];
      offsets.push_back(y * pitch + x);
    }
  }
  for (int x = 0; x < width; ++x) columns.push_back({x, height, by_column.data() + x * height});
  const int ld = cols + conv::kColumnStep;
  std::vector<float> out(rows * ld + 64);
  kernels.columns(out.data(), ld, rows, cols, in.data(), pitch, columns.data(), width);
  bool ok = true;
  for (int y = 0; y < rows; ++y) {
    for (int x = 0; x < cols; ++x) {
      float sum = 0;
      for (int t = 0; t < taps; ++t) sum += weight[t] * in[offsets[t] + y * pitch + x];
      ok = ok && sum == out[y * ld + x];
    }
  }
  check(ok, "columns of taps");

  const std::vector<float> gradient = numbers(rows * cols);
  std::vector<double> sums(taps, 1.0);
  kernels.tap_sums(sums.data(), gradient.data(), cols, rows, cols, in.data(), pitch, offsets.data(), taps);
  ok = true;
  for (int t = 0; t < taps; ++t) {
    double sum = 1;
    for (int i = 0; i < rows * cols; ++i) sum += gradient[i] * in[offsets[t] + i / cols * pitch + i % cols];
    ok = ok && sum == sums[t];
  }
  check(ok, "sums of taps");

  const int channels = kernels.lanes * uniform(1, 4), step = uniform(1, 2);
  const std::vector<float> image = numbers(((cols - 1) * step + width) * channels), w = numbers(width * channels);
  std::vector<float> line(cols * channels);
  std::vector<int64_t> shifts;
  for (int t = 0; t < width; ++t) shifts.push_back(t * channels);
  kernels.channels_last(line.data(), cols, channels, image.data(), step * channels, shifts.data(), w.data(), width);
  ok = true;
  for (int i = 0; i < cols * channels; ++i) {
    const int x = i / channels, c = i % channels;
    float sum = 0;
    for (int t = 0; t < width; ++t) sum += w[t * channels + c] * image[(x * step + t) * channels + c];
    ok = ok && sum == line[i];
  }
  check(ok, "channels last");
}

}  // namespace

TEST(kernels_of_every_instruction_set) {
  struct Level {
    const Micro* micro;
    Words kind;
  };
  std::vector<Level> levels{{&product::base::micro_f32, Words::kF32}};
  std::vector<const conv::Kernels*> depthwise{&conv::base::kernels};
#if defined(__x86_64__)
  if (&product::micro_f32() != &product::base::micro_f32) {
    levels.push_back({&product::avx2::micro_f32, Words::kF32});
    depthwise.push_back(&conv::avx2::kernels);
  }
  if (&product::micro_f32() == &product::avx512::micro_f32) {
    levels.push_back({&product::avx512::micro_f32, Words::kF32});
    depthwise.push_back(&conv::avx512::kernels);
  }
#endif
  if (product::micro_bf16()) levels.push_back({product::micro_bf16(), Words::kBf16});
  if (product::micro_i16()) levels.push_back({product::micro_i16(), Words::kI16});
  if (product::micro_i8()) levels.push_back({product::micro_i8(), Words::kI8});
  for (int i = 0; i < harness::work(500); ++i) {
    for (const Level& level : levels) {
      check_tile(*level.micro, level.kind);
      check_span(*level.micro, level.kind);
      check_packing(*level.micro);
    }
    for (const conv::Kernels* kernels : depthwise) check_depthwise(*kernels);
  }
}
