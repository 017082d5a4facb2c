// exp and erf of F32 with instructions that only AVX-512 has: scaling by a power of two in one step, and tables in
// registers. Other levels use kernel_math.h. Included once per instruction set level, inside that level's namespace.

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

inline __m512 exp_wide(__m512 x) {
  // NaN: min and max return their second argument.
  __m512 y = _mm512_max_ps(_mm512_set1_ps(-105.0f), _mm512_min_ps(_mm512_set1_ps(89.0f), x));
  __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(y, _mm512_set1_ps(kLog2E)), _MM_FROUND_TO_NEAREST_INT);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2High), y);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kLn2Low), r);
  __m512 p = _mm512_set1_ps(1.991699334e-04f);
  for (float c : {1.394644606e-03f, 8.333267089e-03f, 4.166626455e-02f, 1.666666685e-01f, 5.000000080e-01f, 1.0f, 1.0f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  return _mm512_scalef_ps(p, n);
}

// erf(s) = value + u * q(u), u = s - center, in 16 intervals of [0, 4); each center is a point where erf is an F32
// number as good as exactly. In the first interval erf(s) = s + s * q(s). Errors are below 1.2 units in the last place.
alignas(64) constexpr float kErfCenter[16] = {
    0.0f,        0.375000536f, 0.624998212f, 0.874997199f, 1.12500894f, 1.37499821f, 1.62499344f, 1.87499917f,
    2.12499142f, 2.37499285f,  2.62498116f,  2.87497449f,  3.12503195f, 3.37509513f, 3.62490487f, 3.87490487f};
alignas(64) constexpr float kErfValue[16] = {
    0.0f,         0.404117435f, 0.623239517f, 0.784073591f, 0.888391078f, 0.948169768f, 0.978443205f, 0.99199003f,
    0.997345865f, 0.999217033f, 0.999794602f, 0.999952137f, 0.999990106f, 0.999998212f, 0.999999702f, 0.99999994f};
alignas(64) constexpr float kErfQ[5][16] = {
    {0.128379136f, 0.980352402f, 0.763501227f, 0.52474761f, 0.318267554f, 0.17036061f, 0.0804739743f, 0.0335459299f,
     0.0123412702f, 0.00400661398f, 0.00114798895f, 0.000290271069f, 6.47458728e-05f, 1.27436024e-05f, 2.21746109e-06f,
     3.40076127e-07f},
    {6.60820706e-06f, -0.367627352f, -0.477182508f, -0.459151596f, -0.358055502f, -0.234247893f, -0.13077122f,
     -0.0628990382f, -0.0262249038f, -0.00951534882f, -0.00301320874f, -0.000834399194f, -0.000202283962f,
     -4.29949396e-05f, -8.0337677e-06f, -1.31677189e-06f},
    {-0.376324654f, -0.234874681f, -0.0556760468f, 0.0929183885f, 0.162451297f, 0.157938212f, 0.114843227f,
     0.067442283f, 0.033038713f, 0.0137308873f, 0.00489069428f, 0.00150261843f, 0.00039988989f, 9.25054919e-05f,
     1.86792349e-05f, 3.28910664e-06f},
    {0.00197638548f, 0.165491745f, 0.175558239f, 0.112169996f, 0.0283081234f, -0.0300171953f, -0.0494036898f,
     -0.0421695784f, -0.0264006741f, -0.0132014044f, -0.00546382833f, -0.00190697145f, -0.000567417825f,
     -0.000145032653f, -3.20602667e-05f, -6.13611246e-06f},
    {0.106041782f, 0.0453261808f, -0.0270351227f, -0.066709213f, -0.0610613339f, -0.0306438766f, -0.0023031577f,
     0.0113280257f, 0.0124441963f, 0.00836055633f, 0.00423637172f, 0.00172767823f, 0.000584276568f, 0.000166593847f,
     4.04557686e-05f, 8.4295425e-06f}};

inline __m512 erf_wide(__m512 x) {
  const __m512 sign = _mm512_set1_ps(-0.0f);
  __m512 t = _mm512_andnot_ps(sign, x);
  __m512 s = _mm512_min_ps(_mm512_set1_ps(3.9999998f), t);
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
