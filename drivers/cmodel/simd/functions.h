// The functions of real numbers. F32 uses simd/math.h where speed matters; the rest, and F64, is libm element by
// element. Included once per instruction set level, inside that level's namespace.

inline double digamma_of(double x) {
  constexpr double pi = 3.14159265358979323846;
  if (x == 0) return __builtin_copysign(__builtin_inf(), -x);
  double shift = 0;
  if (x < 0) {
    double whole = __builtin_trunc(x);
    if (x == whole) return __builtin_nan("");
    shift = -pi / __builtin_tan(pi * (x - whole));  // reflection; tan has period pi
    x = 1 - x;
  }
  while (x < 10) {
    shift -= 1 / x;
    x += 1;
  }
  double z = 1 / (x * x);
  // asymptotic series: Bernoulli numbers B(2k) / 2k
  double series =
      z *
      (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132 - z * (691.0 / 32760 - z / 12))))));
  return __builtin_log(x) - 0.5 / x - series + shift;
}

inline double erfinv_of(double y) {
  if (!(y > -1 && y < 1)) return y == 1 ? __builtin_inf() : y == -1 ? -__builtin_inf() : __builtin_nan("");
  if (y == 0) return y;
  double t = __builtin_fabs(y), x;
  // Start from a rational approximation by logarithms, then Newton (Halley) steps on erf or erfc.
  double l = __builtin_log((1 - t) * (1 + t)), h = 4.3307467508 + l / 2;  // 2 / (pi * 0.147)
  x = __builtin_sqrt(__builtin_sqrt(h * h - l / 0.147) - h);
  for (int i = 0; i < 3; ++i) {
    double error = t < 0.5 ? __builtin_erf(x) - t : (1 - t) - __builtin_erfc(x);
    double step = error / (1.1283791670955126 * __builtin_exp(-x * x));
    x -= step / (1 + x * step);
  }
  return __builtin_copysign(x, y);
}

// F32 by an own function, F64 by libm
#define FAST(name, single, dbl)                \
  struct name {                                \
    static float f(float a) { return single; } \
    static double f(double a) { return dbl; }  \
  };
FAST(Floor, __builtin_floorf(a), __builtin_floor(a))
FAST(Ceil, __builtin_ceilf(a), __builtin_ceil(a))
FAST(Round, __builtin_rintf(a), __builtin_rint(a))
FAST(Trunc, __builtin_truncf(a), __builtin_trunc(a))
FAST(Sqrt, __builtin_sqrtf(a), __builtin_sqrt(a))
FAST(Rsqrt, 1.0f / __builtin_sqrtf(a), 1.0 / __builtin_sqrt(a))
FAST(Reciprocal, 1.0f / a, 1.0 / a)
FAST(Exp, exp_f(a), __builtin_exp(a))
FAST(Exp2, exp2_f(a), __builtin_exp2(a))
FAST(Expm1, expm1_f(a), __builtin_expm1(a))
FAST(Log, log_f(a), __builtin_log(a))
FAST(Log2, __builtin_log2f(a), __builtin_log2(a))
FAST(Log10, __builtin_log10f(a), __builtin_log10(a))
FAST(Log1p, log1p_f(a), __builtin_log1p(a))
FAST(Tan, __builtin_tanf(a), __builtin_tan(a))
FAST(Asin, __builtin_asinf(a), __builtin_asin(a))
FAST(Acos, __builtin_acosf(a), __builtin_acos(a))
FAST(Atan, __builtin_atanf(a), __builtin_atan(a))
FAST(Sinh, __builtin_sinhf(a), __builtin_sinh(a))
FAST(Cosh, __builtin_coshf(a), __builtin_cosh(a))
FAST(Tanh, tanh_f(a), __builtin_tanh(a))
FAST(Asinh, __builtin_asinhf(a), __builtin_asinh(a))
FAST(Acosh, __builtin_acoshf(a), __builtin_acosh(a))
FAST(Atanh, __builtin_atanhf(a), __builtin_atanh(a))
FAST(Sigmoid, sigmoid_f(a), 1.0 / (1.0 + __builtin_exp(-a)))
FAST(Erf, erf_f(a), __builtin_erf(a))
FAST(Erfc, __builtin_erfcf(a), __builtin_erfc(a))
FAST(Erfinv, static_cast<float>(erfinv_of(a)), erfinv_of(a))
FAST(Digamma, static_cast<float>(digamma_of(a)), digamma_of(a))

// lgamma of libm writes the sign to a global; the reentrant form does not.
extern "C" float lgammaf_r(float, int*) noexcept;
extern "C" double lgamma_r(double, int*) noexcept;
struct Lgamma {
  static float f(float a) {
    int sign;
    return lgammaf_r(a, &sign);
  }
  static double f(double a) {
    int sign;
    return lgamma_r(a, &sign);
  }
};

#define FAST2(name, single, dbl)                        \
  struct name {                                         \
    static float f(float a, float b) { return single; } \
    static double f(double a, double b) { return dbl; } \
  };
FAST2(Atan2, __builtin_atan2f(a, b), __builtin_atan2(a, b))
FAST2(Hypot, __builtin_hypotf(a, b), __builtin_hypot(a, b))
FAST2(Copysign, __builtin_copysignf(a, b), __builtin_copysign(a, b))
FAST2(Nextafter, __builtin_nextafterf(a, b), __builtin_nextafter(a, b))

template <int Quarter>
void sincos_f32(void* out, const void* in, const void*, const void*, int64_t n, unsigned) {
  float* o = static_cast<float*>(out);
  const float* a = static_cast<const float*>(in);
  int far = 0;
  for (int64_t i = 0; i < n; ++i) far |= !(__builtin_fabsf(a[i]) < 65536.0f);
  if (far) {
    for (int64_t i = 0; i < n; ++i) o[i] = Quarter ? __builtin_cosf(a[i]) : __builtin_sinf(a[i]);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = sincos_f(a[i], Quarter);
  }
}
struct Sin {
  static double f(double a) { return __builtin_sin(a); }
};
struct Cos {
  static double f(double a) { return __builtin_cos(a); }
};

template <class T>
void ldexp_loop(void* out, const void* in0, const void* in1, const void*, int64_t n, unsigned uniform) {
  T* o = static_cast<T*>(out);
  const T* a = static_cast<const T*>(in0);
  const int32_t* b = static_cast<const int32_t*>(in1);
  for (int64_t i = 0; i < n; ++i)
    o[i] = static_cast<T>(__builtin_ldexp(a[uniform & 1 ? 0 : i], b[uniform & 2 ? 0 : i]));
}
template <class T>
void frexp_m(void* out, const void* in, const void*, const void*, int64_t n, unsigned) {
  int exponent;
  for (int64_t i = 0; i < n; ++i)
    static_cast<T*>(out)[i] = static_cast<T>(__builtin_frexp(static_cast<const T*>(in)[i], &exponent));
}
template <class T>
void frexp_e(void* out, const void* in, const void*, const void*, int64_t n, unsigned) {
  for (int64_t i = 0; i < n; ++i) {
    int exponent = 0;
    double x = static_cast<const T*>(in)[i];
    (void)__builtin_frexp(x, &exponent);
    static_cast<int32_t*>(out)[i] = x - x == 0 ? exponent : 0;
  }
}

// Philox4x32-10: key = seed, counter = (offset, subsequence). One or two of its words.
template <bool Two>
void philox_words(int64_t* o, int64_t* o2, const void* in0, const void* in1, const void* in2, int64_t n,
                  unsigned uniform, unsigned word, unsigned word2) {
  const uint64_t* seed = static_cast<const uint64_t*>(in0);
  const uint64_t* offset = static_cast<const uint64_t*>(in1);
  const uint64_t* sequence = static_cast<const uint64_t*>(in2);
  const uint64_t low = 0xffffffffu;
  const int64_t sa = uniform & 1 ? 0 : 1, sb = uniform & 2 ? 0 : 1, sc = uniform & 4 ? 0 : 1;
  int64_t i = 0;
  // Products of 32-bit numbers: one instruction, which the compiler does not find by itself.
#if defined(__AVX512F__)
  using Wide = __m512i;
  auto load = [](const uint64_t* from, bool one) {
    return one ? _mm512_set1_epi64(static_cast<int64_t>(*from)) : _mm512_loadu_si512(from);
  };
  auto times = [](Wide a, Wide b) { return _mm512_mul_epu32(a, b); };
  auto high = [](Wide a) { return _mm512_srli_epi64(a, 32); };
  auto xor3 = [](Wide a, Wide b, Wide c) { return _mm512_ternarylogic_epi64(a, b, c, 0x96); };
  auto set = [](uint32_t a) { return _mm512_set1_epi64(a); };
  auto add = [](Wide a, Wide b) { return _mm512_add_epi32(a, b); };
  auto keep = [](Wide a) { return _mm512_and_si512(a, _mm512_set1_epi64(0xffffffff)); };
  auto store = [](int64_t* to, Wide a) { _mm512_storeu_si512(to, a); };
  constexpr int64_t w = 8;
#elif defined(__AVX2__)
  using Wide = __m256i;
  auto load = [](const uint64_t* from, bool one) {
    return one ? _mm256_set1_epi64x(static_cast<int64_t>(*from))
               : _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  };
  auto times = [](Wide a, Wide b) { return _mm256_mul_epu32(a, b); };
  auto high = [](Wide a) { return _mm256_srli_epi64(a, 32); };
  auto xor3 = [](Wide a, Wide b, Wide c) { return _mm256_xor_si256(a, _mm256_xor_si256(b, c)); };
  auto set = [](uint32_t a) { return _mm256_set1_epi64x(a); };
  auto add = [](Wide a, Wide b) { return _mm256_add_epi32(a, b); };
  auto keep = [](Wide a) { return _mm256_and_si256(a, _mm256_set1_epi64x(0xffffffff)); };
  auto store = [](int64_t* to, Wide a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), a); };
  constexpr int64_t w = 4;
#endif
#ifdef __AVX2__
  const Wide m0 = set(0xD2511F53u), m1 = set(0xCD9E8D57u), g0 = set(0x9E3779B9u), g1 = set(0xBB67AE85u);
  for (; i + w <= n; i += w) {
    // The upper halves of 64-bit lanes may hold anything: products read the lower ones.
    const Wide s = load(seed + i * sa, !sa), b = load(offset + i * sb, !sb), c = load(sequence + i * sc, !sc);
    Wide k0 = s, k1 = high(s), x0 = b, x1 = high(b), x2 = c, x3 = high(c);
    for (int round = 0; round < 10; ++round) {
      const Wide p = times(m0, x0), q = times(m1, x2);
      x0 = xor3(high(q), x1, k0);
      x1 = q;
      x2 = xor3(high(p), x3, k1);
      x3 = p;
      k0 = add(k0, g0);
      k1 = add(k1, g1);
    }
    store(o + i, keep(word == 0 ? x0 : word == 1 ? x1 : word == 2 ? x2 : x3));
    if constexpr (Two) store(o2 + i, keep(word2 == 0 ? x0 : word2 == 1 ? x1 : word2 == 2 ? x2 : x3));
  }
#endif
  for (; i < n; ++i) {
    uint64_t s = seed[i * sa], b = offset[i * sb], c = sequence[i * sc];
    uint64_t k0 = s & low, k1 = s >> 32;
    uint64_t x0 = b & low, x1 = b >> 32, x2 = c & low, x3 = c >> 32;
    for (int round = 0; round < 10; ++round) {
      uint64_t p = 0xD2511F53u * x0, q = 0xCD9E8D57u * x2;
      x0 = (q >> 32) ^ x1 ^ k0;
      x1 = q & low;
      x2 = (p >> 32) ^ x3 ^ k1;
      x3 = p & low;
      k0 = (k0 + 0x9E3779B9u) & low;
      k1 = (k1 + 0xBB67AE85u) & low;
    }
    o[i] = static_cast<int64_t>(word == 0 ? x0 : word == 1 ? x1 : word == 2 ? x2 : x3);
    if constexpr (Two) o2[i] = static_cast<int64_t>(word2 == 0 ? x0 : word2 == 1 ? x1 : word2 == 2 ? x2 : x3);
  }
}

// The word wanted is in the top bits of `uniform`.
inline void philox(void* out, const void* in0, const void* in1, const void* in2, int64_t n, unsigned uniform) {
  philox_words<false>(static_cast<int64_t*>(out), nullptr, in0, in1, in2, n, uniform & 7, uniform >> 8, 0);
}
