// The bodies behind product/kernels/kernels.h, included once per instruction set with KERNEL_ISA (a namespace) and
// KERNEL_BYTES (of a vector) set.
#include "drivers/cmodel/product/kernels/kernels.h"
#include "drivers/cmodel/product/kernels/tuning.h"
#include "drivers/cmodel/product/kernels/vector.h"

namespace cmodel::product::KERNEL_ISA {
namespace {

// -- conversions of 16-bit floats --

inline float float_of(uint32_t bits) {
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}
inline uint32_t bits_of(float f) {
  uint32_t bits;
  __builtin_memcpy(&bits, &f, 4);
  return bits;
}

struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};
// Small integers beside floats, and beside integers.
struct I8 {
  int8_t value;
};
struct I8Exact {
  int8_t value;
};

inline float widen(float x) {
  return x;
}
inline double widen(double x) {
  return x;
}
inline float widen(BF16 x) {
  return float_of(uint32_t(x.bits) << 16);
}
inline float widen(F16 x) {
  const uint32_t sign = uint32_t(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
  if (rest >= 0x7c00) return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13 | (rest > 0x7c00 ? 0x400000 : 0));
  if (rest >= 0x400) return float_of(sign | ((rest << 13) + (112u << 23)));
  return float_of(sign | bits_of(float(rest) * 0x1p-24f));
}

inline float widen(I8 x) {
  return x.value;
}
inline uint32_t widen(I8Exact x) {
  return uint32_t(int32_t(x.value));
}

inline uint16_t to_f16(float f) {  // to nearest even; a NaN becomes the quiet NaN
  const uint32_t bits = bits_of(f), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7e00;
  if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);
  if (magnitude < 0x38800000) {  // subnormal: adding 0.5 lines the bits up and rounds them
    return uint16_t(sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3f000000));
  }
  return uint16_t(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

template <class M>
struct Widened {
  using type = float;
};
template <>
struct Widened<double> {
  using type = double;
};

inline Vector<float> load_wide(const float* p) {
  return load(p);
}
inline Vector<double> load_wide(const double* p) {
  return load(p);
}
inline Vector<float> load_wide(const BF16* p) {
  typedef uint16_t Half __attribute__((vector_size(KERNEL_BYTES / 2)));
  Half raw;
  __builtin_memcpy(&raw, p, sizeof raw);
  return (Vector<float>)(__builtin_convertvector(raw, Vector<uint32_t>) << 16);
}
inline Vector<float> load_wide(const F16* p) {
#if defined(__AVX512F__)
  return (Vector<float>)_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256((const __m256i*)p));
#elif defined(__F16C__)
  return (Vector<float>)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
#else
  Vector<float> v;
  for (int i = 0; i < VectorOf<float>::lanes; ++i) v[i] = widen(p[i]);
  return v;
#endif
}

inline Vector<int32_t> load_wide_bytes(const void* p) {
#if defined(__AVX512F__)
  return (Vector<int32_t>)_mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128((const __m128i*)p));
#elif defined(__AVX2__)
  return (Vector<int32_t>)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p));
#else
  Vector<int32_t> v;
  for (int i = 0; i < VectorOf<int32_t>::lanes; ++i) v[i] = static_cast<const int8_t*>(p)[i];
  return v;
#endif
}
inline Vector<float> load_wide(const I8* p) {
  return __builtin_convertvector(load_wide_bytes(p), Vector<float>);
}
inline Vector<uint32_t> load_wide(const I8Exact* p) {
  return (Vector<uint32_t>)load_wide_bytes(p);
}

void f16_line(const float* from, uint16_t* to, int64_t n) {
  int64_t i = 0;
#if defined(__F16C__)
  const __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
  for (; i + 8 <= n; i += 8) {
    __m256 v = _mm256_loadu_ps(from + i);
    v = _mm256_blendv_ps(v, nan, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    _mm_storeu_si128((__m128i*)(to + i), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < n; ++i) to[i] = to_f16(from[i]);
}

bool has_nan(const float* line, int64_t n) {
  constexpr int L = VectorOf<float>::lanes;
  Vector<int32_t> any = {};
  int64_t i = 0;
  for (; i + L <= n; i += L) {
    const Vector<float> v = load(line + i);
    any |= v != v;
  }
  bool found = false;
  for (int j = 0; j < L; ++j) found |= any[j] != 0;
  for (; i < n; ++i) found |= line[i] != line[i];
  return found;
}

// -- products --

template <class T>
void micro(int64_t k, const T* a, const T* b, T* c, int64_t ldc, int64_t rows, int64_t cols, bool accumulate) {
  constexpr int L = VectorOf<T>::lanes;
  Vector<T> acc[kMicroRows][2] = {};
  for (int64_t p = 0; p < k; ++p, a += kMicroRows, b += 2 * L) {
    const Vector<T> b0 = load(b), b1 = load(b + L);
#pragma GCC unroll 6
    for (int i = 0; i < kMicroRows; ++i) {
      const Vector<T> x = splat(a[i]);
      acc[i][0] = fma<T>(x, b0, acc[i][0]);
      acc[i][1] = fma<T>(x, b1, acc[i][1]);
    }
  }
  if (cols == 2 * L) {
    for (int i = 0; i < rows; ++i, c += ldc) {
      store(c, accumulate ? load(c) + acc[i][0] : acc[i][0]);
      store(c + L, accumulate ? load(c + L) + acc[i][1] : acc[i][1]);
    }
    return;
  }
  for (int i = 0; i < rows; ++i, c += ldc) {
    T line[2 * L];
    store(line, acc[i][0]);
    store(line + L, acc[i][1]);
    for (int j = 0; j < cols; ++j) c[j] = accumulate ? c[j] + line[j] : line[j];
  }
}

template <class T>
void small(int64_t m, int64_t n, int64_t k, const T* a, int64_t a_row, int64_t a_col, const T* b, int64_t ldb, T* c,
           int64_t ldc, bool accumulate) {
  constexpr int L = VectorOf<T>::lanes;
  for (int64_t i = 0; i < m; ++i, a += a_row, c += ldc) {
    int64_t j = 0;
    for (; j + L <= n; j += L) {
      Vector<T> acc = accumulate ? load(c + j) : Vector<T>{};
      for (int64_t p = 0; p < k; ++p) acc = fma<T>(splat(a[p * a_col]), load(b + p * ldb + j), acc);
      store(c + j, acc);
    }
    constexpr int H = KERNEL_BYTES > 16 ? 16 / sizeof(T) : 1;  // a quarter of a vector, for products of 4 or 8
    typedef T Short __attribute__((vector_size(H * sizeof(T))));
    for (; j + H <= n; j += H) {
      Short acc = {}, line;
      if (accumulate) __builtin_memcpy(&acc, c + j, sizeof acc);
      for (int64_t p = 0; p < k; ++p) {
        __builtin_memcpy(&line, b + p * ldb + j, sizeof line);
        acc += a[p * a_col] * line;
      }
      __builtin_memcpy(c + j, &acc, sizeof acc);
    }
    for (; j < n; ++j) {
      T acc = accumulate ? c[j] : T(0);
      for (int64_t p = 0; p < k; ++p) acc += a[p * a_col] * b[p * ldb + j];
      c[j] = acc;
    }
  }
}

// R results of V vectors live in registers while the taps go by.
template <class T, int R, int V>
inline void correlate_tile(T* out, int64_t ld, const T* in, const int64_t* offset, const T* w, int64_t taps) {
  constexpr int L = VectorOf<T>::lanes;
  Vector<T> acc[R][V] = {};
  for (int64_t t = 0; t < taps; ++t, w += R) {
    const T* p = in + offset[t];
    Vector<T> line[V];
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) line[v] = load(p + v * L);
#pragma GCC unroll 6
    for (int r = 0; r < R; ++r) {
      const Vector<T> x = splat(w[r]);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[r][v] = fma<T>(x, line[v], acc[r][v]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < V; ++v) store(out + r * ld + v * L, acc[r][v]);
  }
}

template <class T, int R, int V>
inline void correlate_lines(T* out, int64_t ld, int64_t n, const T* in, const int64_t* offset, const T* weight,
                            int64_t taps) {
  constexpr int L = VectorOf<T>::lanes;
  int64_t i = 0;
  for (; i + (V - 1) * L < n; i += V * L) correlate_tile<T, R, V>(out + i, ld, in + i, offset, weight, taps);
  for (; i < n; i += L) correlate_tile<T, R, 1>(out + i, ld, in + i, offset, weight, taps);
}

template <class T>
void correlate(T* out, int64_t ld, int64_t n, const T* in, const int64_t* offset, const T* weight, int64_t taps,
               int64_t rows) {
  switch (rows) {
    case 1:
      return correlate_lines<T, 1, 4>(out, ld, n, in, offset, weight, taps);
    case 2:
      return correlate_lines<T, 2, 4>(out, ld, n, in, offset, weight, taps);
    case 3:
      return correlate_lines<T, 3, 2>(out, ld, n, in, offset, weight, taps);
    case 4:
      return correlate_lines<T, 4, 2>(out, ld, n, in, offset, weight, taps);
    case 5:
      return correlate_lines<T, 5, 2>(out, ld, n, in, offset, weight, taps);
    default:
      return correlate_lines<T, 6, 2>(out, ld, n, in, offset, weight, taps);
  }
}

template <class T>
void copy_rows(T* out, const T* in, int64_t ld, int64_t rows, int64_t cols) {
  constexpr int L = VectorOf<T>::lanes;
  for (int64_t r = 0; r < rows; ++r, in += ld, out += cols) {
    for (int64_t i = 0; i < cols; i += L) store(out + i, load(in + i));
  }
}

template <class M, class T>
T dot_row(int64_t k, const M* a, const T* x) {
  constexpr int L = VectorOf<T>::lanes;
  Vector<T> acc[8] = {};
  int64_t p = 0;
  for (; p + 8 * L <= k; p += 8 * L) {
#pragma GCC unroll 8
    for (int r = 0; r < 8; ++r) acc[r] = fma<T>(load_wide(a + p + r * L), load(x + p + r * L), acc[r]);
  }
  for (; p + L <= k; p += L) acc[0] = fma<T>(load_wide(a + p), load(x + p), acc[0]);
  T total = sum<T>(((acc[0] + acc[1]) + (acc[2] + acc[3])) + ((acc[4] + acc[5]) + (acc[6] + acc[7])));
  for (; p < k; ++p) total += widen(a[p]) * x[p];
  return total;
}

// R rows side by side, U vectors of each at a time.
template <int R, int U, class M, class T>
void dot_rows(int64_t k, const M* a, int64_t ld, const T* x, T* y) {
  constexpr int L = VectorOf<T>::lanes;
  Vector<T> acc[R][U] = {};
  int64_t p = 0;
  for (; p + U * L <= k; p += U * L) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int u = 0; u < U; ++u) acc[r][u] = fma<T>(load_wide(a + r * ld + p + u * L), load(x + p + u * L), acc[r][u]);
    }
  }
  for (int r = 0; r < R; ++r) {
    T total = sum<T>(U == 2 ? acc[r][0] + acc[r][U - 1] : acc[r][0]);
    for (int64_t q = p; q < k; ++q) total += widen(a[r * ld + q]) * x[q];
    y[r] = total;
  }
}

// Memory delivers one stream twice as fast as several that end after some cache lines, so rows go one by one; except
// where they are so short that adding up the lanes counts, and where x would come from beyond the first-level cache
// once per row.
template <class M, class T>
void gemv_dot(int64_t rows, int64_t k, const void* matrix, int64_t ld, const T* x, T* y) {
  const M* a = static_cast<const M*>(matrix);
  int64_t i = 0;
  if (k < 8 * VectorOf<T>::lanes) {
    for (; i + 4 <= rows; i += 4) dot_rows<4, 2>(k, a + i * ld, ld, x, y + i);
  } else if (k * int64_t(sizeof(T)) > kNearBytes) {
    for (; i + 8 <= rows; i += 8) dot_rows<8, 1>(k, a + i * ld, ld, x, y + i);
  }
  for (; i < rows; ++i) y[i] = dot_row(k, a + i * ld, x);
}

template <class M, class T>
void gemv_sweep(int64_t rows, int64_t k, const void* matrix, int64_t ld, const T* x, T* y) {
  constexpr int L = VectorOf<T>::lanes;
  for (int64_t start = 0; start < rows; start += kSweepRows) {
    const int64_t n = rows - start < kSweepRows ? rows - start : kSweepRows;
    const M* a = static_cast<const M*>(matrix) + start;
    T* out = y + start;
    for (int64_t i = 0; i < n; ++i) out[i] = 0;
    int64_t p = 0;
    for (; p + 8 <= k; p += 8, a += 8 * ld) {
      Vector<T> w[8];
      for (int r = 0; r < 8; ++r) w[r] = splat(x[p + r]);
      int64_t i = 0;
      for (; i + L <= n; i += L) {
        Vector<T> even = load(out + i), odd = {};
#pragma GCC unroll 4
        for (int r = 0; r < 8; r += 2) {
          even = fma<T>(w[r], load_wide(a + r * ld + i), even);
          odd = fma<T>(w[r + 1], load_wide(a + (r + 1) * ld + i), odd);
        }
        store(out + i, even + odd);
      }
      for (; i < n; ++i) {
        for (int r = 0; r < 8; ++r) out[i] += x[p + r] * widen(a[r * ld + i]);
      }
    }
    for (; p < k; ++p, a += ld) {
      const Vector<T> w = splat(x[p]);
      int64_t i = 0;
      for (; i + L <= n; i += L) store(out + i, fma<T>(w, load_wide(a + i), load(out + i)));
      for (; i < n; ++i) out[i] += x[p] * widen(a[i]);
    }
  }
}

template <class T>
constexpr Kernels<T> make_kernels() {
  return {2 * VectorOf<T>::lanes, micro<T>, small<T>, 4 * VectorOf<T>::lanes, correlate<T>, copy_rows<T>};
}

}  // namespace

extern const KernelSet kernel_set = {
    make_kernels<float>(),
    make_kernels<double>(),
    make_kernels<uint32_t>(),
    make_kernels<uint64_t>(),
    {gemv_dot<float, float>, gemv_sweep<float, float>},
    {gemv_dot<BF16, float>, gemv_sweep<BF16, float>},
    {gemv_dot<F16, float>, gemv_sweep<F16, float>},
    {gemv_dot<I8, float>, gemv_sweep<I8, float>},
    {gemv_dot<I8Exact, uint32_t>, gemv_sweep<I8Exact, uint32_t>},
    {gemv_dot<double, double>, gemv_sweep<double, double>},
    copy_rows<uint16_t>,
    has_nan,
    f16_line,
};

}  // namespace cmodel::product::KERNEL_ISA
