#include "drivers/cmodel/matmul_packed.h"

#include <cstdlib>
#include <cstring>

#include "support/program.h"

namespace cmodel::blas {

const Micro& micro_f32() {
#if defined(__x86_64__)
  static const Micro& micro =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("avx512dq")
          ? avx512::micro_f32
      : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")
          ? avx2::micro_f32
          : base::micro_f32;
  return micro;
#else
  return base::micro_f32;
#endif
}

const Micro* micro_bf16() {
#if defined(__x86_64__)
  static const Micro* micro =
      &micro_f32() == &avx512::micro_f32 && __builtin_cpu_supports("avx512bf16") ? &avx512bf16::micro_bf16 : nullptr;
  return micro;
#else
  return nullptr;
#endif
}

const Micro& micro_for(int a_dtype, int b_dtype) {
  return a_dtype == NPU_BF16 && b_dtype == NPU_BF16 && micro_bf16() ? *micro_bf16() : micro_f32();
}

namespace {

// One strip, `pitch` words from one word of k to the next.
void pack_strip(const Micro& micro, const Matrix& m, int64_t line, int64_t lines, int64_t k0, int64_t k, int64_t pitch,
                uint32_t* to) {
  const int64_t size = npu::dtype_size(m.dtype);
  const char* from = m.data + (line * m.row + k0 * m.col) * size;
  if (m.dtype == (micro.depth == 2 ? NPU_BF16 : NPU_F32)) {
    if (m.col == 1) return micro.deep(from, m.row, lines, k, pitch, to);
    if (m.row == 1) return micro.wide(from, m.col, lines, k, pitch, to);
  }
  // Another type or stride: through a dense copy, in pieces that stay in the first-level cache.
  constexpr int64_t kPiece = 64;
  constexpr int64_t kLines = 32;
  uint32_t copy[kPiece * kLines];
  const bool along = std::abs(m.col) <= std::abs(m.row);
  for (int64_t p = 0; p < k; p += kPiece) {
    const int64_t n = std::min(kPiece, k - p);
    const char* piece = from + p * m.col * size;
    if (micro.depth == 2) {
      auto* half = reinterpret_cast<uint16_t*>(copy);
      const auto* source = reinterpret_cast<const uint16_t*>(piece);
      for (int64_t i = 0; i < lines; ++i) {
        for (int64_t q = 0; q < n; ++q) half[i * kPiece + q] = source[i * m.row + q * m.col];
      }
    } else if (along) {
      for (int64_t i = 0; i < lines; ++i) {
        load_line<float>(m.dtype, piece + i * m.row * size, m.col, n, reinterpret_cast<float*>(copy) + i * kPiece);
      }
    } else {
      for (int64_t q = 0; q < n; ++q) {
        load_line<float>(m.dtype, piece + q * m.col * size, m.row, lines, reinterpret_cast<float*>(copy) + q * kLines);
      }
    }
    uint32_t* out = to + p / micro.depth * pitch;
    if (micro.depth == 2 || along) {
      micro.deep(copy, kPiece, lines, n, pitch, out);
    } else {
      micro.wide(copy, kLines, lines, n, pitch, out);
    }
  }
}

}  // namespace

void pack_rows(const Micro& micro, const Matrix& matrix, int64_t line, int64_t lines, int64_t k0, int64_t k,
               int64_t strip, uint32_t* to) {
  const int64_t words = micro.words(k);
  for (int64_t i = 0; i < lines; i += strip) {
    const int64_t n = std::min(strip, lines - i);
    pack_strip(micro, matrix, line + i, n, k0, k, n, to + i * words);
  }
}

void pack_cols(const Micro& micro, const Matrix& matrix, int64_t line, int64_t lines, int64_t k0, int64_t k,
               uint32_t* to) {
  const int64_t words = micro.words(k);
  for (int64_t i = 0; i < lines; i += micro.cols) {
    const int64_t n = std::min<int64_t>(micro.cols, lines - i);
    pack_strip(micro, matrix, line + i, n, k0, k, padded_cols(micro, n), to + i * words);
  }
}

void multiply(const Micro& micro, const uint32_t* a, int64_t strip, const uint32_t* b, int64_t m, int64_t n, int64_t k,
              float* c, int64_t ldc, bool accumulate) {
  const int64_t words = micro.words(k);
  for (int64_t j = 0; j < n; j += micro.cols) {
    for (int64_t i = 0; i < m; i += strip) {
      micro.tile(words, a + i * words, b + j * words, c + i * ldc + j, ldc, std::min(strip, m - i),
                 std::min<int64_t>(micro.cols, n - j), accumulate);
    }
  }
}

}  // namespace cmodel::blas
