// Operands packed for register tiles (product/kernels/micro.h). A packed matrix consists of blocks of k, and each of
// those of strips of lines: rows of A, columns of B.
#pragma once
#include <algorithm>
#include <cstdint>

#include "drivers/cmodel/product/kernels/micro.h"
#include "drivers/cmodel/product/pack.h"
#include "drivers/cmodel/product/tuning.h"

namespace cmodel::product {

// How the k of a product is cut into blocks.
struct Depth {
  int64_t k, block;  // elements; a block holds kBlockWords words
  Depth(const Micro& micro, int64_t k) : k(k), block(kBlockWords * micro.depth) {}
  int64_t count() const { return (k + block - 1) / block; }
  int64_t size(int64_t i) const { return std::min(block, k - i * block); }
};

// Rows of A in strips of equal height, so that the last one is not nearly empty.
inline int64_t even_rows(const Micro& micro, int64_t rows) {
  const int64_t strips = std::max<int64_t>(1, (rows + micro.rows - 1) / micro.rows);
  return std::max<int64_t>(1, (rows + strips - 1) / strips);
}
// Columns of B in strips of `points` and `lines`: whole vectors, as many in one as in the other. 0: there are no such.
inline int64_t even_span(const Micro& micro, int64_t cols) {
  const int64_t vector = micro.cols / 2;
  if (!micro.points || cols % vector != 0) return 0;
  const int64_t strips = std::max<int64_t>(1, (cols + micro.span - 1) / micro.span);
  return (cols / vector + strips - 1) / strips * vector;
}
// Lines of B as they are stored: the last strip is half as wide if that is enough.
inline int64_t padded_cols(const Micro& micro, int64_t cols) {
  const int64_t half = micro.cols / 2;
  return (cols + half - 1) / half * half;
}

// The words for a product that accumulates in F32.
const Micro& micro_for(int a_dtype, int b_dtype);
// The words for a product of small integers that accumulates in I32; nullptr: there is no better way than
// product/gemm.h.
const Micro* integer_micro_for(int a_dtype, int b_dtype);
const Micro& product_micro_for(int a_dtype, int b_dtype);  // MATMUL into F32
// Whether memory of this type is the elements of this one's words.
bool holds_words_of(const Micro& micro, int dtype);

// Elements [k0, k0 + k) of `lines` lines from `line` on, of a matrix with lines as rows, into strips. Rows of A: strips
// of `strip`, the last one as narrow as it is. Columns of B: strips of micro.cols, the last one padded.
void pack_rows(const Micro& micro, const Matrix& matrix, int64_t line, int64_t lines, int64_t k0, int64_t k,
               int64_t strip, uint32_t* to);
void pack_cols(const Micro& micro, const Matrix& matrix, int64_t line, int64_t lines, int64_t k0, int64_t k,
               uint32_t* to);

// c[m, n] (+)= the product of one block of k, from strips of `strip` rows of A and strips of B.
void multiply(const Micro& micro, const uint32_t* a, int64_t strip, const uint32_t* b, int64_t m, int64_t n, int64_t k,
              void* c, int64_t ldc, bool accumulate);

// c[m, n] (+)= a[m, k] * b[n, k] with both packed on the way, on the calling thread.
void packed_gemm(const Micro& micro, const Matrix& a, const Matrix& b, bool accumulate, float* c, int64_t ldc);

}  // namespace cmodel::product
