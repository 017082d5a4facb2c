// The bodies behind product/kernels/micro.h, included once per instruction set with KERNEL_ISA, KERNEL_BYTES and
// MICRO_NAME set, and MICRO_BF16 or MICRO_I16 where words hold two elements of 16 bits, MICRO_I8 where they hold four
// bytes.
#include "drivers/cmodel/product/kernels/micro.h"
#include "drivers/cmodel/product/kernels/vector.h"

namespace cmodel::product::KERNEL_ISA {
namespace {

constexpr int L = VectorOf<float>::lanes;
// 28 of 32 registers hold results with AVX-512, 12 of 16 without.
#if MICRO_I8
constexpr int kRows = 12, kCols = 2 * L;  // two more registers hold sums of B
#else
constexpr int kRows = KERNEL_BYTES == 64 ? 14 : 6, kCols = 2 * L;
#endif

#if MICRO_BF16
using Sum = float;
constexpr int kDepth = 2;
inline Vector<float> step(uint32_t a, const uint32_t* b, Vector<float> c) {
  return (Vector<float>)_mm512_dpbf16_ps((__m512)c, (__m512bh)_mm512_set1_epi32(int(a)),
                                         (__m512bh)_mm512_loadu_si512(b));
}
#elif MICRO_I16
using Sum = uint32_t;  // wraps
constexpr int kDepth = 2;
inline Vector<uint32_t> step(uint32_t a, const uint32_t* b, Vector<uint32_t> c) {
  return (Vector<uint32_t>)_mm512_dpwssd_epi32((__m512i)c, _mm512_set1_epi32(int(a)), _mm512_loadu_si512(b));
}
#elif MICRO_I8
// The instruction multiplies unsigned by signed bytes: A is raised by 128, and 128 times the sum of B taken away again.
using Sum = uint32_t;  // wraps
constexpr int kDepth = 4;
inline Vector<uint32_t> step(uint32_t a, const uint32_t* b, Vector<uint32_t> c) {
  return (Vector<uint32_t>)_mm512_dpbusd_epi32((__m512i)c, _mm512_set1_epi32(int(a ^ 0x80808080)),
                                               _mm512_loadu_si512(b));
}
#else
using Sum = float;
constexpr int kDepth = 1;
inline Vector<float> step(uint32_t a, const uint32_t* b, Vector<float> c) {
  float x;
  __builtin_memcpy(&x, &a, 4);
  return fma<float>(splat(x), load(reinterpret_cast<const float*>(b)), c);
}
#endif

inline void store_part(Sum* c, Vector<Sum> v, int64_t n, bool accumulate) {
#if defined(__AVX512F__)
  const __mmask16 mask = __mmask16((1u << n) - 1);
  if (accumulate) v += (Vector<Sum>)_mm512_maskz_loadu_epi32(mask, c);
  _mm512_mask_storeu_epi32(c, mask, (__m512i)v);
#else
  for (int64_t i = 0; i < n; ++i) c[i] = accumulate ? c[i] + v[i] : v[i];
#endif
}

// Rows of A: packed (a[word][R]), or where they lie in memory.
template <int R>
struct Packed {
  const uint32_t* a;
  uint32_t at(int64_t p, int i) const { return a[p * R + i]; }
};
template <int R>
struct Loose {
  const char* row[(R + 3) / 4];  // every fourth, and the distances of those between: few enough for registers
  int64_t step[4];
  Loose(const void* a, int64_t bytes) {
    for (int i = 0; i < 4; ++i) step[i] = i * bytes;
#pragma GCC unroll 4
    for (int i = 0; i < (R + 3) / 4; ++i) row[i] = static_cast<const char*>(a) + 4 * i * bytes;
  }
  uint32_t at(int64_t p, int i) const {
    uint32_t word;
    __builtin_memcpy(&word, row[i / 4] + step[i % 4] + p * 4, 4);
    return word;
  }
};

// Columns of B: one strip, or two halves at offsets.
template <int V>
struct Strip {
  const uint32_t* b;
  const uint32_t* at(int64_t p, int v) const { return b + p * V * L + v * L; }
};
struct Halves {
  const uint32_t* half[2];
  const int64_t* offset;
  const uint32_t* at(int64_t p, int v) const { return half[v] + offset[p]; }
};

template <int R, int V, class A, class B>
inline void tile_of(int64_t words, A a, B b, Sum* c, int64_t ldc, int64_t cols, bool accumulate) {
  Vector<Sum> acc[R][V] = {};
#if MICRO_I8
  Vector<Sum> raised[V] = {};
#endif
  for (int64_t p = 0; p < words; ++p) {
    const uint32_t* columns[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) columns[v] = b.at(p, v);
#if MICRO_I8
    for (int v = 0; v < V; ++v) raised[v] = step(0, columns[v], raised[v]);
#endif
#pragma GCC unroll 14
    for (int i = 0; i < R; ++i) {
      const uint32_t word = a.at(p, i);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) acc[i][v] = step(word, columns[v], acc[i][v]);
    }
  }
#pragma GCC unroll 14
  for (int i = 0; i < R; ++i, c += ldc) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
#if MICRO_I8
      acc[i][v] -= raised[v];
#endif
      const int64_t left = cols - v * L;
      if (left >= L) {
        store(c + v * L, accumulate ? load(c + v * L) + acc[i][v] : acc[i][v]);
      } else if (left > 0) {
        store_part(c + v * L, acc[i][v], left, accumulate);
      }
    }
  }
}

template <int R>
void packed_rows(int64_t words, const uint32_t* a, const uint32_t* b, void* c, int64_t ldc, int64_t rows, int64_t cols,
                 bool accumulate) {
  if constexpr (R > 1) {
    if (rows < R) return packed_rows<R - 1>(words, a, b, c, ldc, rows, cols, accumulate);
  }
  if (cols > L) {
    tile_of<R, 2>(words, Packed<R>{a}, Strip<2>{b}, static_cast<Sum*>(c), ldc, cols, accumulate);
  } else {
    tile_of<R, 1>(words, Packed<R>{a}, Strip<1>{b}, static_cast<Sum*>(c), ldc, cols, accumulate);
  }
}

template <int R>
void halves_rows(int64_t words, const uint32_t* a, const uint32_t* b0, const uint32_t* b1, const int64_t* offset,
                 void* c, int64_t ldc, int64_t rows, int64_t cols, bool accumulate) {
  if constexpr (R > 1) {
    if (rows < R) return halves_rows<R - 1>(words, a, b0, b1, offset, c, ldc, rows, cols, accumulate);
  }
  const Halves b{{b0, b1}, offset};
  if (cols > L) {
    tile_of<R, 2>(words, Packed<R>{a}, b, static_cast<Sum*>(c), ldc, cols, accumulate);
  } else {
    tile_of<R, 1>(words, Packed<R>{a}, b, static_cast<Sum*>(c), ldc, cols, accumulate);
  }
}

template <int R>
void loose_rows(int64_t words, const void* a, int64_t bytes, const uint32_t* b, void* c, int64_t ldc, int64_t rows,
                int64_t cols, bool accumulate) {
  if constexpr (R > 1) {
    if (rows < R) return loose_rows<R - 1>(words, a, bytes, b, c, ldc, rows, cols, accumulate);
  }
  if (cols > L) {
    tile_of<R, 2>(words, Loose<R>(a, bytes), Strip<2>{b}, static_cast<Sum*>(c), ldc, cols, accumulate);
  } else {
    tile_of<R, 1>(words, Loose<R>(a, bytes), Strip<1>{b}, static_cast<Sum*>(c), ldc, cols, accumulate);
  }
}

}  // namespace
}  // namespace cmodel::product::KERNEL_ISA

#include "drivers/cmodel/product/kernels/points_impl.h"

namespace cmodel::product::KERNEL_ISA {
namespace {

// -- packing --

constexpr int64_t kSize = 4 / kDepth;  // bytes of an element

#if defined(__AVX512F__)
// Sixteen vectors as the rows of a matrix, transposed. (Shuffles and not intrinsics: GCC 12 warns about its own.)
typedef uint32_t Words __attribute__((vector_size(64)));
inline void transpose(Words* r) {
  Words t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
    t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      const Words x = t[i + j], y = t[i + j + 2];
      r[i + 2 * j] = __builtin_shufflevector(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      r[i + 2 * j + 1] = __builtin_shufflevector(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
  }
  const auto even = [](Words x, Words y) __attribute__((always_inline)) {
    return __builtin_shufflevector(x, y, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27);
  };
  const auto odd = [](Words x, Words y) __attribute__((always_inline)) {
    return __builtin_shufflevector(x, y, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
  };
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = even(r[i], r[i + 4]);
    t[i + 4] = odd(r[i], r[i + 4]);
    t[i + 8] = even(r[i + 8], r[i + 12]);
    t[i + 12] = odd(r[i + 8], r[i + 12]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[i] = even(t[i], t[i + 8]);
    r[i + 4] = even(t[i + 4], t[i + 12]);
    r[i + 8] = odd(t[i], t[i + 8]);
    r[i + 12] = odd(t[i + 4], t[i + 12]);
  }
}

// start(i): the first byte of line i.
template <class Start>
inline void deep_of(Start start, int64_t lines, int64_t k, int64_t strip, uint32_t* to) {
  constexpr int64_t kBlock = 16 * kDepth;  // elements of a line in one block
  // A word of a strip without gaps may be written past its end where more words follow, since those are written later.
  const bool tight = lines == strip && lines <= 16;
  for (int64_t first = 0; first < lines; first += 16) {
    const int64_t n = lines - first < 16 ? lines - first : 16;
    const __mmask16 stored = __mmask16((1u << n) - 1);
    const char* line[16];
    for (int64_t i = 0; i < 16; ++i) line[i] = start(first + (i < n ? i : 0));
    for (int64_t p = 0; p < k; p += kBlock) {
      const int64_t left = k - p, words = left < kBlock ? (left + kDepth - 1) / kDepth : 16;
      Words r[16];
      if (left >= kBlock) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) r[i] = (Words)_mm512_loadu_si512(line[i] + p * kSize);
      } else {
#if MICRO_I8
        const __mmask64 mask = (uint64_t(1) << left) - 1;
        for (int i = 0; i < 16; ++i) r[i] = (Words)_mm512_maskz_loadu_epi8(mask, line[i] + p * kSize);
#elif MICRO_BF16 || MICRO_I16
        const __mmask32 mask = __mmask32((uint64_t(1) << left) - 1);
        for (int i = 0; i < 16; ++i) r[i] = (Words)_mm512_maskz_loadu_epi16(mask, line[i] + p * kSize);
#else
        const __mmask16 mask = __mmask16((1u << left) - 1);
        for (int i = 0; i < 16; ++i) r[i] = (Words)_mm512_maskz_loadu_epi32(mask, line[i] + p * kSize);
#endif
      }
      transpose(r);
      uint32_t* out = to + p / kDepth * strip + first;
      const int64_t room = (left - kBlock) / kDepth * strip;
      if (words == 16 && (n == 16 || (tight && room >= 16 - n))) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) store(out + i * strip, r[i]);
      } else {
        for (int64_t i = 0; i < words; ++i) _mm512_mask_storeu_epi32(out + i * strip, stored, (__m512i)r[i]);
      }
    }
  }
}
#else
template <class Start>
inline void deep_of(Start start, int64_t lines, int64_t k, int64_t strip, uint32_t* to) {
  constexpr int64_t kBlock = 16;  // of k: one cache line of every line
  for (int64_t p = 0; p < k; p += kBlock) {
    const int64_t end = p + kBlock < k ? p + kBlock : k;
    for (int64_t i = 0; i < lines; ++i) {
      const uint32_t* source = reinterpret_cast<const uint32_t*>(start(i));
      for (int64_t q = p; q < end; ++q) to[q * strip + i] = source[q];
    }
  }
}
#endif

void deep(const void* from, int64_t step, int64_t lines, int64_t k, int64_t strip, uint32_t* to) {
  const char* first = static_cast<const char*>(from);
  deep_of([=](int64_t i) { return first + i * step * kSize; }, lines, k, strip, to);
}

void deep_at(const void* from, const int64_t* offset, int64_t lines, int64_t k, int64_t strip, uint32_t* to) {
  const char* first = static_cast<const char*>(from);
  deep_of([=](int64_t i) { return first + offset[i] * kSize; }, lines, k, strip, to);
}

#if MICRO_I8
// Four elements of k, which begin at first(p), for each line, `apart` bytes from the next.
template <class First>
inline void bytes_of(First first, int64_t apart, int64_t lines, int64_t k, int64_t strip, uint32_t* to) {
  for (int64_t p = 0; p < k; p += 4, to += strip) {
    for (int64_t i = 0; i < lines; ++i) {
      uint32_t word = 0;
      for (int64_t q = 0; q < 4 && p + q < k; ++q) word |= uint32_t(first(p + q)[i * apart]) << 8 * q;
      to[i] = word;
    }
  }
}

void wide(const void* from, int64_t step, int64_t lines, int64_t k, int64_t strip, uint32_t* to) {
  const uint8_t* source = static_cast<const uint8_t*>(from);
  bytes_of([=](int64_t p) { return source + p * step; }, 1, lines, k, strip, to);
}

void every_second(const void* from, int64_t step, int64_t lines, int64_t k, int64_t strip, uint32_t* to) {
  const uint8_t* source = static_cast<const uint8_t*>(from);
  bytes_of([=](int64_t p) { return source + p * step; }, 2, lines, k, strip, to);
}

void taps(const void* from, const int64_t* offset, int64_t lines, int64_t k, int64_t strip, uint32_t* to) {
  const uint8_t* source = static_cast<const uint8_t*>(from);
  bytes_of([=](int64_t p) { return source + offset[p]; }, 1, lines, k, strip, to);
}
#elif MICRO_BF16 || MICRO_I16
// Two lines of k, zipped.
inline void zip(const uint16_t* even, const uint16_t* odd, int64_t lines, uint32_t* to) {
  alignas(64) static constexpr uint16_t kLow[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                    8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
  alignas(64) static constexpr uint16_t kHigh[32] = {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                                                     24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};
  const __m512i low = _mm512_load_si512(kLow), high = _mm512_load_si512(kHigh);
  int64_t i = 0;
  for (; i + 32 <= lines; i += 32) {
    const __m512i a = _mm512_loadu_si512(even + i), b = odd ? _mm512_loadu_si512(odd + i) : _mm512_setzero_si512();
    _mm512_storeu_si512(to + i, _mm512_permutex2var_epi16(a, low, b));
    _mm512_storeu_si512(to + i + 16, _mm512_permutex2var_epi16(a, high, b));
  }
  if (i < lines) {
    const int64_t left = lines - i;
    const __mmask32 mask = __mmask32((uint64_t(1) << left) - 1);
    const __m512i a = _mm512_maskz_loadu_epi16(mask, even + i),
                  b = _mm512_maskz_loadu_epi16(odd ? mask : 0, odd ? odd + i : even);
    _mm512_mask_storeu_epi32(to + i, __mmask16(mask), _mm512_permutex2var_epi16(a, low, b));
    if (left > 16) _mm512_mask_storeu_epi32(to + i + 16, __mmask16(mask >> 16), _mm512_permutex2var_epi16(a, high, b));
  }
}

void wide(const void* from, int64_t step, int64_t lines, int64_t k, int64_t strip, uint32_t* to) {
  const uint16_t* source = static_cast<const uint16_t*>(from);
  for (int64_t p = 0; p < k; p += 2, source += 2 * step, to += strip) {
    zip(source, p + 1 < k ? source + step : nullptr, lines, to);
  }
}

void every_second(const void* from, int64_t step, int64_t lines, int64_t k, int64_t strip, uint32_t* to) {
  const uint16_t* source = static_cast<const uint16_t*>(from);
  for (int64_t p = 0; p < k; p += 2, source += 2 * step, to += strip) {
    const uint16_t *even = source, *odd = p + 1 < k ? source + step : nullptr;
    // Pairs of neighbours as words, of which one half is wanted; the last element may have no neighbour.
    int64_t i = 0;
    for (; i + 1 < lines; ++i) {
      uint32_t a, b = 0;
      __builtin_memcpy(&a, even + 2 * i, 4);
      if (odd) __builtin_memcpy(&b, odd + 2 * i, 4);
      to[i] = (a & 0xffff) | b << 16;
    }
    for (; i < lines; ++i) to[i] = even[2 * i] | uint32_t(odd ? odd[2 * i] : 0) << 16;
  }
}

void taps(const void* from, const int64_t* offset, int64_t lines, int64_t k, int64_t strip, uint32_t* to) {
  const uint16_t* source = static_cast<const uint16_t*>(from);
  for (int64_t p = 0; p < k; p += 2, to += strip) {
    zip(source + offset[p], p + 1 < k ? source + offset[p + 1] : nullptr, lines, to);
  }
}
#else
inline void copy_line(const uint32_t* from, int64_t lines, uint32_t* to) {
  int64_t i = 0;
  for (; i + L <= lines; i += L) store(to + i, load(from + i));
#if defined(__AVX512F__)
  if (i < lines) {
    const __mmask16 mask = __mmask16((1u << (lines - i)) - 1);
    _mm512_mask_storeu_epi32(to + i, mask, _mm512_maskz_loadu_epi32(mask, from + i));
  }
#else
  for (; i < lines; ++i) to[i] = from[i];
#endif
}

void wide(const void* from, int64_t step, int64_t lines, int64_t k, int64_t strip, uint32_t* to) {
  const uint32_t* source = static_cast<const uint32_t*>(from);
  for (int64_t p = 0; p < k; ++p, source += step, to += strip) copy_line(source, lines, to);
}

void every_second(const void* from, int64_t step, int64_t lines, int64_t k, int64_t strip, uint32_t* to) {
  const uint32_t* source = static_cast<const uint32_t*>(from);
  for (int64_t p = 0; p < k; ++p, source += step, to += strip) {
    for (int64_t i = 0; i < lines; ++i) to[i] = source[2 * i];
  }
}

void taps(const void* from, const int64_t* offset, int64_t lines, int64_t k, int64_t strip, uint32_t* to) {
  const uint32_t* source = static_cast<const uint32_t*>(from);
  for (int64_t p = 0; p < k; ++p, to += strip) copy_line(source + offset[p], lines, to);
}
#endif

}  // namespace

extern const Micro MICRO_NAME = {kRows,
                                 kCols,
                                 kDepth,
                                 packed_rows<kRows>,
                                 loose_rows<kRows>,
                                 halves_rows<kRows>,
                                 kSpan,
                                 kSpanRows,
                                 kPoints,
                                 kLines,
                                 deep,
                                 deep_at,
                                 wide,
                                 every_second,
                                 taps};

}  // namespace cmodel::product::KERNEL_ISA
