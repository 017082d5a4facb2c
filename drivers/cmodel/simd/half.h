// One-instruction programs over BF16 and F16: convert, compute in F32, convert back in one pass over registers instead
// of four over the first cache. Included once per instruction set level, inside that level's namespace.

template <class H, class Op>
void half_binary(void* out, const void* in0, const void* in1, const void*, int64_t n, unsigned uniform) {
  constexpr int64_t kBlock = 256;
  H* o = static_cast<H*>(out);
  const H *a = static_cast<const H*>(in0), *b = static_cast<const H*>(in1);
  if constexpr (__is_same(H, BFloat)) {
    if (uniform & 1) {
      const float x = *static_cast<const float*>(in0);
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) o[i] = to_bfloat(Op::f(x, widen(b[i])));
    } else if (uniform & 2) {
      const float y = *static_cast<const float*>(in1);
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) o[i] = to_bfloat(Op::f(widen(a[i]), y));
    } else {
#pragma GCC ivdep
      for (int64_t i = 0; i < n; ++i) o[i] = to_bfloat(Op::f(widen(a[i]), widen(b[i])));
    }
  } else {
    float x[kBlock], y[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = n - i < kBlock ? n - i : kBlock;
      if (!(uniform & 1)) convert<float, H>(x, a + i, m);
      if (!(uniform & 2)) convert<float, H>(y, b + i, m);
      binary<Op, float>(x, uniform & 1 ? in0 : x, uniform & 2 ? in1 : y, nullptr, m, uniform);
      convert<H, float>(o + i, x, m);
    }
  }
}

template <class H, class Op>
void half_unary(void* out, const void* in, const void*, const void*, int64_t n, unsigned) {
  constexpr int64_t kBlock = 256;
  H* o = static_cast<H*>(out);
  const H* a = static_cast<const H*>(in);
  if constexpr (__is_same(H, BFloat)) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = to_bfloat(Op::f(widen(a[i])));
  } else {
    float x[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
      const int64_t m = n - i < kBlock ? n - i : kBlock;
      convert<float, H>(x, a + i, m);
      unary<Op, float>(x, x, nullptr, nullptr, m, 0);
      convert<H, float>(o + i, x, m);
    }
  }
}

template <class H>
void set_half(Kernels& t, int row) {
  Kernel* f = t.half_op[row];
  f[NPU_OP_ADD] = half_binary<H, Add>;
  f[NPU_OP_SUB] = half_binary<H, Sub>;
  f[NPU_OP_MUL] = half_binary<H, Mul>;
  f[NPU_OP_DIV] = half_binary<H, Div>;
  f[NPU_OP_MAX] = half_binary<H, Max>;
  f[NPU_OP_MIN] = half_binary<H, Min>;
  f[NPU_OP_NEG] = half_unary<H, Neg>;
  f[NPU_OP_ABS] = half_unary<H, Abs>;
  f[NPU_OP_SQRT] = half_unary<H, Sqrt>;
  f[NPU_OP_RSQRT] = half_unary<H, Rsqrt>;
  f[NPU_OP_RECIPROCAL] = half_unary<H, Reciprocal>;
  f[NPU_OP_EXP] = half_unary<H, Exp>;
  f[NPU_OP_TANH] = half_unary<H, Tanh>;
  f[NPU_OP_SIGMOID] = half_unary<H, Sigmoid>;
}

inline void set_halves(Kernels& t) {
  set_half<BFloat>(t, 0);
  set_half<Half>(t, 1);
}
