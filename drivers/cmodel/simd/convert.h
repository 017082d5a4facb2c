// Conversions between all storage types and copies between dense and strided memory. Included once per instruction set
// level, inside that level's namespace.

struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};
struct Flag {
  uint8_t bits;
};

inline float widen(BFloat x) {
  return float_of(static_cast<int32_t>(static_cast<uint32_t>(x.bits) << 16));
}
inline BFloat to_bfloat(float x) {
  uint32_t u = static_cast<uint32_t>(bits_of(x));
  uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
  return {static_cast<uint16_t>(x == x ? rounded : 0x7fc0u)};
}
// F16 by integer and float arithmetic only; exact, and good enough without F16C.
inline float widen(Half h) {
  uint32_t sign = static_cast<uint32_t>(h.bits & 0x8000u) << 16, rest = h.bits & 0x7fffu;
  float normal = float_of(static_cast<int32_t>((rest << 13) + (112u << 23)));
  float special = float_of(static_cast<int32_t>((rest << 13) + (224u << 23)));
  float small = static_cast<float>(static_cast<int32_t>(rest)) * 5.9604644775390625e-8f;  // 2^-24
  float magnitude = rest < 0x400u ? small : rest >= 0x7c00u ? special : normal;
  return float_of(bits_of(magnitude) | static_cast<int32_t>(sign));
}
inline Half to_half(float x) {
  uint32_t u = static_cast<uint32_t>(bits_of(x)), sign = (u >> 16) & 0x8000u, m = u & 0x7fffffffu;
  uint32_t normal = (m + 0xfffu + ((m >> 13) & 1) - (112u << 23)) >> 13;
  // Adding 0.5 puts the last bit of a subnormal F16 at the last bit of the F32 significand, which rounds it.
  uint32_t small = static_cast<uint32_t>(bits_of(float_of(static_cast<int32_t>(m)) + 0.5f)) - 0x3f000000u;
  uint32_t r = m < 0x38800000u ? small : normal;
  r = r > 0x7c00u ? 0x7c00u : r;
  r = m >= 0x47800000u ? 0x7c00u : r;
  r = m > 0x7f800000u ? 0x7e00u : r;
  return {static_cast<uint16_t>(r | sign)};
}

// Through the compute type of D: what does not fit becomes that type's smallest integer, as x86 does.
template <class D, class S>
inline D number_to_integer(S x) {
  if constexpr (sizeof(D) == 8 && D(-1) > D(0)) {
    constexpr S top = S(9223372036854775808.0);
    return x >= top && x < 2 * top ? static_cast<D>(static_cast<int64_t>(x - top)) + (D(1) << 63)
                                   : static_cast<D>(static_cast<int64_t>(x));
  } else if constexpr (sizeof(D) == 8 || (sizeof(D) == 4 && D(-1) > D(0))) {
    return static_cast<D>(static_cast<int64_t>(x));
  } else {
    return static_cast<D>(static_cast<int32_t>(x));
  }
}

template <class D, class S>
inline D convert_one(S x) {
  if constexpr (__is_same(S, Flag)) {
    return convert_one<D>(static_cast<int32_t>(x.bits != 0));
  } else if constexpr (__is_same(S, BFloat) || __is_same(S, Half)) {
    if constexpr (__is_same(S, D))
      return x;
    else
      return convert_one<D>(widen(x));
  } else if constexpr (__is_same(D, Flag)) {
    return {static_cast<uint8_t>(x != 0)};
  } else if constexpr (__is_same(D, BFloat)) {
    return to_bfloat(static_cast<float>(x));
  } else if constexpr (__is_same(D, Half)) {
    return to_half(static_cast<float>(x));
  } else if constexpr (is_real<S> && !is_real<D>) {
    return number_to_integer<D>(x);
  } else {
    return static_cast<D>(x);
  }
}

template <class D, class S>
void convert(void* out, const void* in, int64_t n) {
  if constexpr (__is_same(D, S) && !__is_same(D, Flag)) {
    __builtin_memmove(out, in, static_cast<size_t>(n) * sizeof(D));
  } else {
    D* o = static_cast<D*>(out);
    const S* a = static_cast<const S*>(in);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = convert_one<D>(a[i]);
  }
}

#ifdef __F16C__
template <>
void convert<float, Half>(void* out, const void* in, int64_t n) {
  float* o = static_cast<float*>(out);
  const Half* a = static_cast<const Half*>(in);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(o + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i))));
  for (; i < n; ++i) o[i] = widen(a[i]);
}
template <>
void convert<Half, float>(void* out, const void* in, int64_t n) {
  Half* o = static_cast<Half*>(out);
  const float* a = static_cast<const float*>(in);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(o + i), _mm256_cvtps_ph(_mm256_loadu_ps(a + i), 0));
  for (; i < n; ++i) o[i] = to_half(a[i]);
}
#endif

template <class D>
void set_converts_to(Kernels& t, int d) {
  t.convert[NPU_BOOL][d] = convert<D, Flag>;
  t.convert[NPU_U8][d] = convert<D, uint8_t>;
  t.convert[NPU_I8][d] = convert<D, int8_t>;
  t.convert[NPU_U16][d] = convert<D, uint16_t>;
  t.convert[NPU_I16][d] = convert<D, int16_t>;
  t.convert[NPU_U32][d] = convert<D, uint32_t>;
  t.convert[NPU_I32][d] = convert<D, int32_t>;
  t.convert[NPU_U64][d] = convert<D, uint64_t>;
  t.convert[NPU_I64][d] = convert<D, int64_t>;
  t.convert[NPU_F16][d] = convert<D, Half>;
  t.convert[NPU_BF16][d] = convert<D, BFloat>;
  t.convert[NPU_F32][d] = convert<D, float>;
  t.convert[NPU_F64][d] = convert<D, double>;
}

#ifdef __AVX512F__
// Every second of 32-bit elements, as the parts of complex numbers.
inline void gather_second(uint32_t* o, const uint32_t* a, int64_t n) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  int64_t i = 0;
  for (; i + 17 <= n; i += 16) {  // the element behind the last is read too
    // The processor does not look beyond its page by itself.
    __builtin_prefetch(a + 2 * i + 1024, 0, 2);
    __builtin_prefetch(a + 2 * i + 1040, 0, 2);
    const __m512i low = _mm512_loadu_si512(a + 2 * i), high = _mm512_loadu_si512(a + 2 * i + 16);
    _mm512_storeu_si512(o + i, _mm512_permutex2var_epi32(low, even, high));
  }
  if (i == n) return;
  const uint32_t last = (uint32_t{2} << (2 * (n - 1 - i))) - 1;  // up to the last one, of 32
  const __m512i low = _mm512_maskz_loadu_epi32(static_cast<__mmask16>(last), a + 2 * i);
  const __m512i high = _mm512_maskz_loadu_epi32(static_cast<__mmask16>(last >> 16), a + 2 * i + 16);
  _mm512_mask_storeu_epi32(o + i, static_cast<__mmask16>((1u << (n - i)) - 1),
                           _mm512_permutex2var_epi32(low, even, high));
}
inline int64_t scatter_second(uint32_t* o, const uint32_t* a, int64_t n) {
  const __m512i low = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512i x = _mm512_loadu_si512(a + i);
    _mm512_mask_storeu_epi32(o + 2 * i, 0x5555, _mm512_permutexvar_epi32(low, x));
    _mm512_mask_storeu_epi32(o + 2 * i + 16, 0x5555, _mm512_permutexvar_epi32(high, x));
  }
  return i;
}
#endif

template <class T>
void gather(void* out, const void* in, int64_t stride, int64_t n) {
  T* o = static_cast<T*>(out);
  const T* a = static_cast<const T*>(in);
#ifdef __AVX512F__
  if constexpr (sizeof(T) == 4) {
    if (stride == 2) return gather_second(o, a, n);
  }
#endif
  if (stride == 0) {
    const T x = *a;
    for (int64_t i = 0; i < n; ++i) o[i] = x;
  } else if (stride == 2) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = a[2 * i];
  } else if (stride == -1) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = a[-i];
  } else {
    for (int64_t i = 0; i < n; ++i) o[i] = a[i * stride];
  }
}
template <class T>
void scatter(void* out, int64_t stride, const void* in, int64_t n) {
  T* o = static_cast<T*>(out);
  const T* a = static_cast<const T*>(in);
#ifdef __AVX512F__
  if constexpr (sizeof(T) == 4) {
    if (stride == 2) {
      const int64_t done = scatter_second(o, a, n);
      o += 2 * done;
      a += done;
      n -= done;
    }
  }
#endif
  for (int64_t i = 0; i < n; ++i) o[i * stride] = a[i];
}

template <class T>
void transpose_plain(T* o, int64_t o_row, int64_t o_col, const T* a, int64_t a_row, int64_t a_col, int64_t rows,
                     int64_t cols) {
  for (int64_t c = 0; c < cols; ++c)
    for (int64_t r = 0; r < rows; ++r) o[r * o_row + c * o_col] = a[r * a_row + c * a_col];
}

#ifdef __AVX2__
// out[r * o_row + c] = in[r + c * a_col] for 8 x 8 elements of four bytes
inline void transpose_8x8(float* o, int64_t o_row, const float* a, int64_t a_col) {
  __m256 x[8], y[8];
  for (int i = 0; i < 8; ++i) x[i] = _mm256_loadu_ps(a + i * a_col);
  for (int i = 0; i < 8; i += 2) {
    y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    x[i] = _mm256_shuffle_ps(y[i], y[i + 2], 0x44);
    x[i + 1] = _mm256_shuffle_ps(y[i], y[i + 2], 0xee);
    x[i + 2] = _mm256_shuffle_ps(y[i + 1], y[i + 3], 0x44);
    x[i + 3] = _mm256_shuffle_ps(y[i + 1], y[i + 3], 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(o + i * o_row, _mm256_permute2f128_ps(x[i], x[i + 4], 0x20));
    _mm256_storeu_ps(o + (i + 4) * o_row, _mm256_permute2f128_ps(x[i], x[i + 4], 0x31));
  }
}
#endif

// out[r * o_row + c] = in[r + c * a_col]
template <class T>
void transpose(T* o, int64_t o_row, const T* a, int64_t a_col, int64_t rows, int64_t cols) {
#ifdef __AVX2__
  if constexpr (sizeof(T) == 4) {
    int64_t r = 0;
    for (; r + 8 <= rows; r += 8) {
      int64_t c = 0;
      for (; c + 8 <= cols; c += 8)
        transpose_8x8(reinterpret_cast<float*>(o + r * o_row + c), o_row,
                      reinterpret_cast<const float*>(a + r + c * a_col), a_col);
      transpose_plain(o + r * o_row + c, o_row, 1, a + r + c * a_col, 1, a_col, 8, cols - c);
    }
    return transpose_plain(o + r * o_row, o_row, 1, a + r, 1, a_col, rows - r, cols);
  }
#endif
  for (int64_t r = 0; r < rows; r += 16)
    transpose_plain(o + r * o_row, o_row, 1, a + r, 1, a_col, rows - r < 16 ? rows - r : 16, cols);
}

template <class T>
void gather_transposed(void* out, const void* in, int64_t stride, int64_t rows, int64_t cols) {
  transpose(static_cast<T*>(out), cols, static_cast<const T*>(in), stride, rows, cols);
}
template <class T>
void scatter_transposed(void* out, const void* in, int64_t stride, int64_t rows, int64_t cols) {
  transpose(static_cast<T*>(out), stride, static_cast<const T*>(in), cols, cols, rows);
}

// Short rows: a call of memcpy for each would cost more than the bytes.
inline void copy_rows(void* out, int64_t out_step, const void* in, int64_t in_step, int64_t rows, int64_t bytes) {
  char* o = static_cast<char*>(out);
  const char* a = static_cast<const char*>(in);
  if (bytes % 64 == 0 && bytes <= 512) {
    for (int64_t r = 0; r < rows; ++r, o += out_step, a += in_step)
      for (int64_t i = 0; i < bytes; i += 64) __builtin_memcpy(o + i, a + i, 64);
  } else if (bytes % 16 == 0 && bytes <= 256) {
    for (int64_t r = 0; r < rows; ++r, o += out_step, a += in_step)
      for (int64_t i = 0; i < bytes; i += 16) __builtin_memcpy(o + i, a + i, 16);
  } else {
    for (int64_t r = 0; r < rows; ++r, o += out_step, a += in_step) __builtin_memcpy(o, a, static_cast<size_t>(bytes));
  }
}

inline void stream(void* out, const void* in, int64_t bytes) {
  char* o = static_cast<char*>(out);
  const char* a = static_cast<const char*>(in);
  int64_t i = 0;
#ifdef __AVX512F__
  const int64_t head = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(out) & 63);
  if (bytes >= head + 64) {
    __builtin_memcpy(o, a, static_cast<size_t>(head));
    for (i = head; i + 64 <= bytes; i += 64)
      _mm512_stream_si512(reinterpret_cast<__m512i*>(o + i), _mm512_loadu_si512(a + i));
  }
#elif defined(__AVX2__)
  const int64_t head = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(out) & 31);
  if (bytes >= head + 32) {
    __builtin_memcpy(o, a, static_cast<size_t>(head));
    for (i = head; i + 32 <= bytes; i += 32)
      _mm256_stream_si256(reinterpret_cast<__m256i*>(o + i),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + i)));
  }
#endif
  __builtin_memcpy(o + i, a + i, static_cast<size_t>(bytes - i));
}

template <class T>
void set_moves(Kernels& t, int log_size) {
  t.gather[log_size] = gather<T>;
  t.scatter[log_size] = scatter<T>;
  t.gather_transposed[log_size] = gather_transposed<T>;
  t.scatter_transposed[log_size] = scatter_transposed<T>;
}
