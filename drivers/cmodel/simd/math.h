// Functions of one F32 value without branches or loops, so that loops over them become SIMD code. Errors are below 1.5
// units in the last place; infinities, NaNs, signed zeros and subnormal results come out as in libm. Coefficients are
// minimax fits. Included once per instruction set level, inside that level's namespace.

#ifdef __FMA__
inline float madd(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
#else
inline float madd(float a, float b, float c) {
  return a * b + c;
}
#endif

inline int32_t bits_of(float x) {
  return __builtin_bit_cast(int32_t, x);
}
inline float float_of(int32_t x) {
  return __builtin_bit_cast(float, x);
}
inline float power_of_two(int32_t n) {  // n in [-126, 127]
  return float_of(static_cast<int32_t>((static_cast<uint32_t>(n) + 127u) << 23));
}
// x * 2^n for n in [-252, 254], right also where the result is subnormal
inline float scale(float x, int32_t n) {
  int32_t half = n >> 1;
  return x * power_of_two(half) * power_of_two(n - half);
}
// Nearest integer of |x| < 2^22: adding 1.5 * 2^23 pushes the fraction out of the significand.
inline float nearest(float x) {
  return (x + 12582912.0f) - 12582912.0f;
}

// p(x), the highest power first.
template <int kTerms>
inline float series(const float* terms, float x) {
  if constexpr (kTerms == 1) {
    return terms[0];
  } else {
    return madd(series<kTerms - 1>(terms, x), x, terms[kTerms - 1]);
  }
}

// (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2
inline float exp_tail(float r) {
  return series<kExpTerms - 2>(kExpSeries, r);
}

inline float exp_f(float x) {
  float y = x > 89.0f ? 89.0f : x;
  y = y < -105.0f ? -105.0f : y;
  float n = nearest(y * kLog2E);
  float r = madd(n, -kLn2High, y);
  r = madd(n, -kLn2Low, r);
  float p = madd(madd(exp_tail(r), r, 1.0f), r, 1.0f);
  return scale(p, static_cast<int32_t>(n));
}

// e^x for x in [-87, 0]: what other functions need, without the ends of the range
inline float exp_inside(float x) {
  float n = nearest(x * kLog2E);
  float r = madd(n, -kLn2High, x);
  r = madd(n, -kLn2Low, r);
  float p = madd(madd(exp_tail(r), r, 1.0f), r, 1.0f);
  return float_of(bits_of(p) + static_cast<int32_t>(static_cast<uint32_t>(static_cast<int32_t>(n)) << 23));
}

inline float exp2_f(float x) {
  float y = x > 129.0f ? 129.0f : x;
  y = y < -152.0f ? -152.0f : y;
  float n = nearest(y);
  float r = (y - n) * 0.693147181f;
  float p = madd(madd(exp_tail(r), r, 1.0f), r, 1.0f);
  return scale(p, static_cast<int32_t>(n));
}

inline float expm1_f(float x) {
  float y = x > 89.0f ? 89.0f : x;
  y = y < -18.0f ? -18.0f : y;
  float n = nearest(y * kLog2E);
  float r = madd(n, -kLn2High, y);
  r = madd(n, -kLn2Low, r);
  float p = madd(exp_tail(r) * r, r, r);
  int32_t k = static_cast<int32_t>(n);
  float one = 1.0f - power_of_two(k > 126 ? -126 : static_cast<int32_t>(0u - static_cast<uint32_t>(k)));
  float result = scale(p + one, k);
  return x == 0.0f ? x : result;
}

inline float log_f(float x) {
  bool tiny = x < kLeastNormal;
  float y = tiny ? x * 8388608.0f : x;
  int32_t i = static_cast<int32_t>(static_cast<uint32_t>(bits_of(y)) -
                                   kRootHalf);  // the significand ends up in [sqrt(1/2), sqrt(2))
  int32_t e = i >> 23;
  float f = float_of(static_cast<int32_t>(static_cast<uint32_t>(bits_of(y)) - (static_cast<uint32_t>(e) << 23))) - 1.0f;
  float n = static_cast<float>(e - (tiny ? 23 : 0));
  float p = series<kLogTerms>(kLogSeries, f);
  float z = f * f;
  float r = p * f * z;
  r = madd(n, kLn2Low, r);
  r = madd(-0.5f, z, r);
  r = madd(n, kLn2High, r + f);
  r = x == 0.0f ? -__builtin_inff() : r;
  r = x < 0.0f ? __builtin_nanf("") : r;
  return x < __builtin_inff() ? r : x + x;  // infinity and NaN
}

inline float log1p_f(float x) {
  float u = 1.0f + x;
  float correction = (x - (u - 1.0f)) / u;
  float r = log_f(u) + correction;
  r = x == 0.0f ? x : r;
  r = x == -1.0f ? -__builtin_inff() : r;
  return x < __builtin_inff() ? r : x + x;
}

inline float tanh_f(float x) {
  float z = x * x;
  float p = series<kTanhTerms>(kTanhSeries, z);
  float near = madd(p * z, x, x);
  float t = __builtin_fabsf(x);
  float y = -2.0f * t;
  float e = exp_inside(y > kTanhLowest ? y : kTanhLowest);
  float far = (1.0f - e) / (1.0f + e);
  far = x == x ? far : x;
  return t < kTanhNear ? near : __builtin_copysignf(far, x);
}

inline float sigmoid_f(float x) {
  float e = exp_f(-__builtin_fabsf(x));
  float top = x >= 0.0f ? 1.0f : e;
  float r = top / (1.0f + e);
  return x == x ? r : x;
}

inline float erf_f(float x) {
  float t = __builtin_fabsf(x);
  float z = x * x;
  float p = series<kErfNearTerms>(kErfNearSeries, z);
  float near = madd(p, x, x);
  float s = t > kErfHighest ? kErfHighest : t;
  float q = series<kErfFarTerms>(kErfFarSeries, s);
  float far = 1.0f - exp_inside(-q * s);
  float r = t < kErfNear ? near : __builtin_copysignf(far, x);
  return x == x ? r : x;
}

// sin (quarter 0) or cos (quarter 1) for |x| < 2^16; larger arguments go to libm
inline float sincos_f(float x, int32_t quarter) {
  float n = nearest(x * 0.636619772f);
  float r = madd(n, -1.5703125f, x);
  r = madd(n, -4.837512969970703125e-4f, r);
  r = madd(n, -7.54978995489188216e-8f, r);
  int32_t q = static_cast<int32_t>(n) + quarter;
  float z = r * r;
  float s = 2.717564290e-06f;
  s = madd(s, z, -1.983925661e-04f);
  s = madd(s, z, 8.333329144e-03f);
  s = madd(s, z, -1.666666664e-01f);
  s = madd(s * z, r, r);
  float c = -2.720330084e-07f;
  c = madd(c, z, 2.479943637e-05f);
  c = madd(c, z, -1.388888344e-03f);
  c = madd(c, z, 4.166666662e-02f);
  c = madd(c * z, z, madd(-0.5f, z, 1.0f));
  float y = (q & 1) ? c : s;
  return float_of(bits_of(y) ^ static_cast<int32_t>(static_cast<uint32_t>(q & 2) << 30));
}
