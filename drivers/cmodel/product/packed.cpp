#include "drivers/cmodel/product/packed.h"

#include <cstdlib>
#include <cstring>

#include "drivers/cmodel/simd/isa_level.h"
#include "support/program/program.h"

namespace cmodel::product {

const Micro& micro_f32() {
#if defined(__x86_64__)
  static const Micro& micro = isa_level() == IsaLevel::kAvx512 ? avx512::micro_f32
                              : isa_level() == IsaLevel::kAvx2 ? avx2::micro_f32
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

const Micro* micro_i16() {
#if defined(__x86_64__)
  static const Micro* micro =
      &micro_f32() == &avx512::micro_f32 && __builtin_cpu_supports("avx512vnni") ? &avx512vnni::micro_i16 : nullptr;
  return micro;
#else
  return nullptr;
#endif
}

const Micro* micro_i8() {
#if defined(__x86_64__)
  static const Micro* micro = micro_i16() ? &avx512vnni_bytes::micro_i8 : nullptr;
  return micro;
#else
  return nullptr;
#endif
}

const Micro* integer_micro_for(int a_dtype, int b_dtype) {
  if (a_dtype == NPU_I8 && b_dtype == NPU_I8) return micro_i8();
  const auto fits = [](int dtype) {
    return dtype == NPU_BOOL || dtype == NPU_U8 || dtype == NPU_I8 || dtype == NPU_I16;
  };
  return fits(a_dtype) && fits(b_dtype) ? micro_i16() : nullptr;
}

const Micro& micro_for(int a_dtype, int b_dtype) {
  return a_dtype == NPU_BF16 && b_dtype == NPU_BF16 && micro_bf16() ? *micro_bf16() : micro_f32();
}

// A byte has no more digits than a bf16, so beside one it may become one.
const Micro& product_micro_for(int a_dtype, int b_dtype) {
  const bool mixed = (a_dtype == NPU_BF16 && b_dtype == NPU_I8) || (a_dtype == NPU_I8 && b_dtype == NPU_BF16);
  return mixed && micro_bf16() ? *micro_bf16() : micro_for(a_dtype, b_dtype);
}

bool holds_words_of(const Micro& micro, int dtype) {
  return micro.depth == 4 ? dtype == NPU_I8 : micro.depth == 2 ? npu::dtype_size(dtype) == 2 : dtype == NPU_F32;
}

namespace {

// One strip, `pitch` words from one word of k to the next.
void pack_strip(const Micro& micro, const Matrix& m, int64_t line, int64_t lines, int64_t k0, int64_t k, int64_t pitch,
                uint32_t* to) {
  const int64_t size = npu::dtype_size(m.dtype);
  const char* from = m.data + (line * m.row + k0 * m.col) * size;
  if (holds_words_of(micro, m.dtype)) {  // the elements of the words, as they are
    if (m.col == 1) return micro.deep(from, m.row, lines, k, pitch, to);
    if (m.row == 1) return micro.wide(from, m.col, lines, k, pitch, to);
  }
  // Another type or stride: through a dense copy, in pieces that stay in the first-level cache.
  constexpr int64_t kPiece = 64;
  constexpr int64_t kLines = 32;
  uint32_t copy[kPiece * kLines];
  const int element = micro.depth == 4         ? NPU_I8
                      : &micro == micro_bf16() ? NPU_BF16
                      : micro.depth == 2       ? NPU_I16
                                               : NPU_F32;
  const bool along = std::abs(m.col) <= std::abs(m.row) || m.row == 0;
  for (int64_t p = 0; p < k; p += kPiece) {
    const int64_t n = std::min(kPiece, k - p);
    const char* piece = from + p * m.col * size;
    for (int64_t i = 0; i < (along ? lines : n); ++i) {
      const char* line = piece + i * (along ? m.row : m.col) * size;
      load_as(element, m.dtype, line, along ? m.col : m.row, along ? n : lines,
              reinterpret_cast<char*>(copy) + i * (along ? kPiece : kLines) * npu::dtype_size(element));
    }
    uint32_t* out = to + p / micro.depth * pitch;
    if (along) {
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
              void* c, int64_t ldc, bool accumulate) {
  const int64_t words = micro.words(k);
  for (int64_t j = 0; j < n; j += micro.cols) {
    for (int64_t i = 0; i < m; i += strip) {
      micro.tile(words, a + i * words, b + j * words, static_cast<float*>(c) + i * ldc + j, ldc, std::min(strip, m - i),
                 std::min<int64_t>(micro.cols, n - j), accumulate);
    }
  }
}

void packed_gemm(const Micro& micro, const Matrix& a, const Matrix& b, bool accumulate, float* c, int64_t ldc) {
  const Depth depth(micro, a.cols);
  const int64_t strip = even_rows(micro, a.rows), words = std::min(kBlockWords, micro.words(a.cols));
  Scratch a_space(sizeof(uint32_t) * a.rows * words), b_space(sizeof(uint32_t) * padded_cols(micro, b.rows) * words);
  for (int64_t i = 0; i < depth.count(); ++i) {
    pack_rows(micro, a, 0, a.rows, i * depth.block, depth.size(i), strip, a_space.as<uint32_t>());
    pack_cols(micro, b, 0, b.rows, i * depth.block, depth.size(i), b_space.as<uint32_t>());
    multiply(micro, a_space.as<uint32_t>(), strip, b_space.as<uint32_t>(), a.rows, b.rows, depth.size(i), c, ldc,
             accumulate || i > 0);
  }
}

}  // namespace cmodel::product
