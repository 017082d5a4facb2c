// exp, sigmoid, tanh and erf of F32 with instructions that only AVX-512 has: scaling by a power of two in one step, and
// tables in registers. Other levels use simd/math.h. Included once per instruction set level, inside that level's
// namespace.

struct ExpSub {  // exp(a - b), as in softmax
  static float f(float a, float b) { return exp_f(a - b); }
};
struct ErfMul {  // erf(a * b), as in gelu
  static float f(float a, float b) { return erf_f(a * b); }
};

struct Gelu {
  static float f(float a, float b, float c) { return (1.0f + erf_f(a * b)) * (a * c); }
};

#ifdef __AVX512F__

// e^y for y in [-105, 89]
inline __m512 exp_between(__m512 y) {
  __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(y, _mm512_set1_ps(kLog2E)), _MM_FROUND_TO_NEAREST_INT);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2High), y);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2Low), r);
  __m512 p = _mm512_set1_ps(kExpSeries[0]);
  for (int i = 1; i < kExpTerms; ++i) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpSeries[i]));
  return _mm512_scalef_ps(p, n);
}

inline __m512 exp_wide(__m512 x) {
  // NaN: min and max return their second argument.
  return exp_between(_mm512_max_ps(_mm512_set1_ps(kExpLowest), _mm512_min_ps(_mm512_set1_ps(kExpHighest), x)));
}

// e^-|x| is at most 1, so nothing overflows: x >= 0 gives 1 / (1 + e), x < 0 gives e / (1 + e).
inline __m512 sigmoid_wide(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 e = exp_between(_mm512_max_ps(_mm512_set1_ps(kExpLowest), _mm512_or_ps(x, _mm512_set1_ps(-0.0f))));
  const __m512 top = _mm512_mask_mov_ps(one, _mm512_movepi32_mask(_mm512_castps_si512(x)), e);
  return _mm512_div_ps(top, _mm512_add_ps(e, one));
}

inline __m512 erf_wide(__m512 x) {
  const __m512 sign = _mm512_set1_ps(-0.0f);
  __m512 t = _mm512_andnot_ps(sign, x);
  __m512 s = _mm512_min_ps(_mm512_set1_ps(kErfLast), t);
  __m512i k = _mm512_cvttps_epi32(_mm512_mul_ps(s, _mm512_set1_ps(4.0f)));
  auto look = [&](const float* table) { return _mm512_permutexvar_ps(k, _mm512_load_ps(table)); };
  __m512 u = _mm512_sub_ps(s, look(kErfCenter));
  __m512 q = look(kErfQ[4]);
  for (int i = 3; i >= 0; --i) q = _mm512_fmadd_ps(q, u, look(kErfQ[i]));
  __m512 value = _mm512_mask_mov_ps(look(kErfValue), _mm512_testn_epi32_mask(k, k), s);
  __m512 r = _mm512_fmadd_ps(q, u, value);
  r = _mm512_mask_mov_ps(r, _mm512_cmp_ps_mask(t, _mm512_set1_ps(4.0f), _CMP_GE_OQ), _mm512_set1_ps(1.0f));
  return _mm512_or_ps(r, _mm512_and_ps(sign, x));
}

inline __m512 tanh_wide(__m512 x) {
  const __m512 sign = _mm512_set1_ps(-0.0f);
  __m512 s = _mm512_min_ps(_mm512_set1_ps(kTanhLast), _mm512_andnot_ps(sign, x));
  __m512i k = _mm512_srli_epi32(_mm512_castps_si512(_mm512_max_ps(_mm512_set1_ps(kTanhFirst), s)), 22);
  auto look = [&](const float* table) { return _mm512_permutexvar_ps(k, _mm512_load_ps(table)); };
  __m512 u = _mm512_sub_ps(s, look(kTanhCenter));
  __m512 q = look(kTanhQ[5]);
  for (int i = 4; i >= 0; --i) q = _mm512_fmadd_ps(q, u, look(kTanhQ[i]));
  return _mm512_or_ps(_mm512_fmadd_ps(q, u, look(kTanhValue)), _mm512_and_ps(sign, x));
}

template <class F>
inline void each_wide(float* o, int64_t n, F f) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) _mm512_storeu_ps(o + i, f(i, __mmask16(0xffff)));
  if (i < n) {
    const __mmask16 rest = static_cast<__mmask16>((1u << (n - i)) - 1);
    _mm512_mask_storeu_ps(o + i, rest, f(i, rest));
  }
}

inline __m512 part(const float* a, int64_t i, __mmask16 mask, bool uniform) {
  return uniform ? _mm512_set1_ps(*a) : _mm512_maskz_loadu_ps(mask, a + i);
}

template <__m512 (*F)(__m512)>
void unary_wide(void* out, const void* in, const void*, const void*, int64_t n, unsigned) {
  const float* a = static_cast<const float*>(in);
  each_wide(static_cast<float*>(out), n, [&](int64_t i, __mmask16 mask) { return F(part(a, i, mask, false)); });
}

inline void exp_sub_wide(void* out, const void* in0, const void* in1, const void*, int64_t n, unsigned uniform) {
  const float *a = static_cast<const float*>(in0), *b = static_cast<const float*>(in1);
  each_wide(static_cast<float*>(out), n, [&](int64_t i, __mmask16 mask) {
    return exp_wide(_mm512_sub_ps(part(a, i, mask, uniform & 1), part(b, i, mask, uniform & 2)));
  });
}

inline void erf_mul_wide(void* out, const void* in0, const void* in1, const void*, int64_t n, unsigned uniform) {
  const float *a = static_cast<const float*>(in0), *b = static_cast<const float*>(in1);
  each_wide(static_cast<float*>(out), n, [&](int64_t i, __mmask16 mask) {
    return erf_wide(_mm512_mul_ps(part(a, i, mask, uniform & 1), part(b, i, mask, uniform & 2)));
  });
}

inline void gelu_wide(void* out, const void* in0, const void* in1, const void* in2, int64_t n, unsigned uniform) {
  const float *a = static_cast<const float*>(in0), *b = static_cast<const float*>(in1),
              *c = static_cast<const float*>(in2);
  each_wide(static_cast<float*>(out), n, [&](int64_t i, __mmask16 mask) {
    const __m512 x = part(a, i, mask, uniform & 1);
    const __m512 e = erf_wide(_mm512_mul_ps(x, part(b, i, mask, uniform & 2)));
    return _mm512_mul_ps(_mm512_add_ps(_mm512_set1_ps(1.0f), e), _mm512_mul_ps(x, part(c, i, mask, uniform & 4)));
  });
}

inline void set_wide(Kernels& t) {
  t.gelu = gelu_wide;
  t.op[NPU_OP_EXP][kF32] = unary_wide<exp_wide>;
  t.op[NPU_OP_SIGMOID][kF32] = unary_wide<sigmoid_wide>;
  t.op[NPU_OP_TANH][kF32] = unary_wide<tanh_wide>;
  t.op[NPU_OP_ERF][kF32] = unary_wide<erf_wide>;
  t.exp_sub = exp_sub_wide;
  t.erf_mul = erf_mul_wide;
}

#else

inline void set_wide(Kernels& t) {
  t.gelu = ternary<Gelu, float>;
  t.exp_sub = binary<ExpSub, float>;
  t.erf_mul = binary<ErfMul, float>;
}

#endif
