// Inner loops of matrix product and convolution, built once per instruction set and chosen at run time. Integers are
// unsigned here so that they wrap around without undefined behaviour.
#pragma once
#include <cstdint>

#include "drivers/cmodel/simd/isa_level.h"

namespace cmodel::product {

constexpr int kMicroRows = 6;  // rows of a register tile; its columns are two vectors, see Kernels::micro_cols

template <class T>
struct Kernels {
  int micro_cols;
  // c[rows, cols] (+)= sum over k of a[k][kMicroRows] * b[k][micro_cols], both packed and zero padded.
  void (*micro)(int64_t k, const T* a, const T* b, T* c, int64_t ldc, int64_t rows, int64_t cols, bool accumulate);
  // c[m, n] (+)= a[m, k] * b[k, n] without packing; columns of b and c are dense, `a` has any strides.
  void (*small)(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t ldb,
                T* c, int64_t ldc, bool accumulate);
  // out[r * ld + i] = sum over t of weight[t * rows + r] * in[offset[t] + i], for rows <= kMicroRows. Works in steps of
  // correlate_step points: `in` may be read and `out` written up to the next multiple of it.
  int correlate_step;
  void (*correlate)(T* out, int64_t ld, int64_t n, const T* in, const int64_t* offset, const T* weight, int64_t taps,
                    int64_t rows);
  // Rows of `cols` elements, `ld` apart, into one dense line. Reads and writes up to correlate_step elements too many.
  void (*copy_rows)(T* out, const T* in, int64_t ld, int64_t rows, int64_t cols);
};

// y[i] = sum over p of matrix[i, p] * x[p]. `dot`: rows of the matrix are dense and `ld` apart; `sweep`: columns are.
template <class T>
struct Gemv {
  void (*dot)(int64_t rows, int64_t k, const void* matrix, int64_t ld, const T* x, T* y);
  void (*sweep)(int64_t rows, int64_t k, const void* matrix, int64_t ld, const T* x, T* y);
};

struct KernelSet {
  Kernels<float> f32;
  Kernels<double> f64;
  Kernels<uint32_t> u32;
  Kernels<uint64_t> u64;
  Gemv<float> gemv_f32, gemv_bf16, gemv_f16, gemv_i8;
  Gemv<uint32_t> gemv_i8_exact;
  Gemv<double> gemv_f64;
  void (*copy_rows_16)(uint16_t* out, const uint16_t* in, int64_t ld, int64_t rows, int64_t cols);
  // Dense lines.
  bool (*has_nan)(const float* line, int64_t n);
  void (*f32_to_f16)(const float* from, uint16_t* to, int64_t n);  // knows one NaN, as isa.md does
};

namespace base {
extern const KernelSet kernel_set;
}
namespace avx2 {
extern const KernelSet kernel_set;
}
namespace avx512 {
extern const KernelSet kernel_set;
}

// The widest set that this processor has.
inline const KernelSet& kernel_set() {
#if defined(__x86_64__)
  static const KernelSet& set = isa_level() == IsaLevel::kAvx512 ? avx512::kernel_set
                                : isa_level() == IsaLevel::kAvx2 ? avx2::kernel_set
                                                                 : base::kernel_set;
  return set;
#else
  return base::kernel_set;
#endif
}

template <class T>
const Kernels<T>& kernels();
template <>
inline const Kernels<float>& kernels<float>() {
  return kernel_set().f32;
}
template <>
inline const Kernels<double>& kernels<double>() {
  return kernel_set().f64;
}
template <>
inline const Kernels<uint32_t>& kernels<uint32_t>() {
  return kernel_set().u32;
}
template <>
inline const Kernels<uint64_t>& kernels<uint64_t>() {
  return kernel_set().u64;
}

}  // namespace cmodel::product
