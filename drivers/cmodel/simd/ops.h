// What each instruction does to one element, and the loops around it. Included once per instruction set level, inside
// that level's namespace.

template <class T>
constexpr bool is_real = T(0.5) != T(0);
template <class T>
constexpr TypeClass class_of() {
  if constexpr (__is_same(T, float))
    return kF32;
  else if constexpr (__is_same(T, double))
    return kF64;
  else if constexpr (__is_same(T, int32_t))
    return kI32;
  else if constexpr (__is_same(T, int64_t))
    return kI64;
  else if constexpr (__is_same(T, uint64_t))
    return kU64;
  else
    return kBool;
}
template <class T>
struct UnsignedOf {
  using type = T;
};
template <>
struct UnsignedOf<int32_t> {
  using type = uint32_t;
};
template <>
struct UnsignedOf<int64_t> {
  using type = uint64_t;
};

// Two integers computed in unsigned arithmetic, where overflow wraps; reals as they are.
#define WRAPPING(name, expression)                    \
  struct name {                                       \
    template <class T>                                \
    static T f(T x, T y) {                            \
      using U = typename UnsignedOf<T>::type;         \
      U a = static_cast<U>(x), b = static_cast<U>(y); \
      return static_cast<T>(expression);              \
    }                                                 \
  };
WRAPPING(Add, a + b)
WRAPPING(Sub, a - b)
WRAPPING(Mul, a* b)
WRAPPING(And, a& b)
WRAPPING(Or, a | b)
WRAPPING(Xor, a ^ b)

inline float fmod_of(float a, float b) {
  return __builtin_fmodf(a, b);
}
inline double fmod_of(double a, double b) {
  return __builtin_fmod(a, b);
}
inline float floor_of(float a) {
  return __builtin_floorf(a);
}
inline double floor_of(double a) {
  return __builtin_floor(a);
}

struct Div {
  template <class T>
  static T f(T a, T b) {
    if constexpr (is_real<T>) {
      return a / b;
    } else {
      using U = typename UnsignedOf<T>::type;
      if (b == 0) return 0;
      if (b == static_cast<T>(-1) && T(-1) < T(0)) return static_cast<T>(U(0) - static_cast<U>(a));
      return a / b;
    }
  }
};
struct Fmod {
  template <class T>
  static T f(T a, T b) {
    if constexpr (is_real<T>) {
      return fmod_of(a, b);
    } else {
      if (b == 0 || (b == static_cast<T>(-1) && T(-1) < T(0))) return 0;
      return a % b;
    }
  }
};
struct Mod {
  template <class T>
  static T f(T a, T b) {
    T r = Fmod::f(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
};
struct FloorDiv {
  template <class T>
  static T f(T a, T b) {
    if constexpr (is_real<T>) {
      // torch's floor division: exact where a / b alone would round up to the next integer
      if (b == 0) return a / b;
      T r = fmod_of(a, b);
      T q = (a - r) / b;
      if (r != 0 && (b < 0) != (r < 0)) q -= 1;
      if (q == 0) return static_cast<T>(__builtin_copysign(0.0, a / b));
      T whole = floor_of(q);
      return q - whole > T(0.5) ? whole + 1 : whole;
    } else {
      if (b == 0) return 0;
      T q = Div::f(a, b), r = Fmod::f(a, b);
      return r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
    }
  }
};
// Min and max: a NaN wins; fmin and fmax: a NaN loses. Equal zeros: the first.
template <bool greatest, bool keeps_nan>
struct Extreme {
  template <class T>
  static T f(T a, T b) {
    T r = (greatest ? b > a : b < a) ? b : a;
    if constexpr (is_real<T>) r = (keeps_nan ? b != b : a != a) ? b : r;
    return r;
  }
};
using Min = Extreme<false, true>;
using Max = Extreme<true, true>;
using Fmin = Extreme<false, false>;
using Fmax = Extreme<true, false>;
struct Pow {
  static float f(float a, float b) { return __builtin_powf(a, b); }
  static double f(double a, double b) { return __builtin_pow(a, b); }
  template <class T>
  static T f(T a, T b) {
    using U = typename UnsignedOf<T>::type;
    if (b < 0) return a == 1 ? T(1) : a == static_cast<T>(-1) ? ((b & 1) ? static_cast<T>(-1) : T(1)) : T(0);
    U r = 1, x = static_cast<U>(a);
    for (U e = static_cast<U>(b); e; e >>= 1, x *= x)
      if (e & 1) r *= x;
    return static_cast<T>(r);
  }
};

#define COMPARISON(name, operation) \
  struct name {                     \
    template <class T>              \
    static uint8_t f(T a, T b) {    \
      return a operation b;         \
    }                               \
  };
COMPARISON(Eq, ==)
COMPARISON(Ne, !=)
COMPARISON(Lt, <)
COMPARISON(Le, <=)
COMPARISON(Gt, >)
COMPARISON(Ge, >=)

struct Shl {
  template <class T>
  static T f(T a, T b) {
    using U = typename UnsignedOf<T>::type;
    U s = static_cast<U>(b);
    T r = static_cast<T>(static_cast<U>(a) << (s & (sizeof(T) * 8 - 1)));
    return s < sizeof(T) * 8 ? r : T(0);
  }
};
struct Shr {
  template <class T>
  static T f(T a, T b) {
    using U = typename UnsignedOf<T>::type;
    U s = static_cast<U>(b);
    T r = a >> (s & (sizeof(T) * 8 - 1));
    return s < sizeof(T) * 8 ? r : a < 0 ? static_cast<T>(-1) : T(0);
  }
};

// BOOL: any byte but 0 is true
#define LOGIC(name, expression)              \
  struct name {                              \
    static uint8_t f(uint8_t x, uint8_t y) { \
      bool a = x != 0, b = y != 0;           \
      return (expression);                   \
    }                                        \
  };
LOGIC(BoolAnd, a& b)
LOGIC(BoolOr, a | b)
LOGIC(BoolXor, a != b)
LOGIC(BoolEq, a == b)
LOGIC(BoolLt, !a & b)
LOGIC(BoolLe, !a | b)
LOGIC(BoolGt, a & !b)
LOGIC(BoolGe, a | !b)
struct BoolNot {
  static uint8_t f(uint8_t a) { return a == 0; }
};

struct Neg {
  template <class T>
  static T f(T a) {
    using U = typename UnsignedOf<T>::type;
    if constexpr (is_real<T>)
      return -a;
    else
      return static_cast<T>(U(0) - static_cast<U>(a));
  }
};
struct Not {
  template <class T>
  static T f(T a) {
    return ~a;
  }
};
struct Abs {
  static float f(float a) { return __builtin_fabsf(a); }
  static double f(double a) { return __builtin_fabs(a); }
  template <class T>
  static T f(T a) {
    return a < 0 ? Neg::f(a) : a;
  }
};
struct Sign {
  template <class T>
  static T f(T a) {
    return static_cast<T>((a > 0 ? T(1) : T(0)) - (a < 0 ? T(1) : T(0)));
  }
};
struct IsNan {
  template <class T>
  static uint8_t f(T a) {
    return a != a;
  }
};
struct IsInf {
  static uint8_t f(float a) { return __builtin_fabsf(a) == __builtin_inff(); }
  static uint8_t f(double a) { return __builtin_fabs(a) == __builtin_inf(); }
  template <class T>
  static uint8_t f(T) {
    return 0;
  }
};
struct SignBit {
  static uint8_t f(float a) { return __builtin_bit_cast(int32_t, a) < 0; }
  static uint8_t f(double a) { return __builtin_bit_cast(int64_t, a) < 0; }
  template <class T>
  static uint8_t f(T a) {
    return a < 0;
  }
};
struct Fma {
  static float f(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
  static double f(double a, double b, double c) { return __builtin_fma(a, b, c); }
  template <class T>
  static T f(T a, T b, T c) {
    return Add::f(Mul::f(a, b), c);
  }
};

// Two instructions on three arguments.
template <class First, class Second, bool Swapped>
struct Pair {
  static float f(float a, float b, float c) {
    const float x = First::f(a, b);
    return Swapped ? Second::f(c, x) : Second::f(x, c);
  }
};

template <class Op, class T>
void unary(void* out, const void* in, const void*, const void*, int64_t n, unsigned) {
  using R = decltype(Op::f(T()));
  R* o = static_cast<R*>(out);
  const T* a = static_cast<const T*>(in);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) o[i] = Op::f(a[i]);
}

template <class Op, class T>
void binary(void* out, const void* in0, const void* in1, const void*, int64_t n, unsigned uniform) {
  using R = decltype(Op::f(T(), T()));
  R* o = static_cast<R*>(out);
  const T* a = static_cast<const T*>(in0);
  const T* b = static_cast<const T*>(in1);
  if (uniform & 1) {
    const T x = *a;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = Op::f(x, b[i]);
  } else if (uniform & 2) {
    const T y = *b;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = Op::f(a[i], y);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = Op::f(a[i], b[i]);
  }
}

template <class Op, class T, unsigned U>
void ternary_loop(T* o, const T* a, const T* b, const T* c, int64_t n) {
  const T x = *a, y = *b, z = *c;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) o[i] = Op::f(U & 1 ? x : a[i], U & 2 ? y : b[i], U & 4 ? z : c[i]);
}

template <class Op, class T>
void ternary(void* out, const void* in0, const void* in1, const void* in2, int64_t n, unsigned uniform) {
  T* o = static_cast<T*>(out);
  const T *a = static_cast<const T*>(in0), *b = static_cast<const T*>(in1), *c = static_cast<const T*>(in2);
  switch (uniform & 7) {
    case 0:
      return ternary_loop<Op, T, 0>(o, a, b, c, n);
    case 1:
      return ternary_loop<Op, T, 1>(o, a, b, c, n);
    case 2:
      return ternary_loop<Op, T, 2>(o, a, b, c, n);
    case 3:
      return ternary_loop<Op, T, 3>(o, a, b, c, n);
    case 4:
      return ternary_loop<Op, T, 4>(o, a, b, c, n);
    case 5:
      return ternary_loop<Op, T, 5>(o, a, b, c, n);
    case 6:
      return ternary_loop<Op, T, 6>(o, a, b, c, n);
    default:
      return ternary_loop<Op, T, 7>(o, a, b, c, n);
  }
}

template <unsigned U>
void normalize_loop(float* o, const float* x, float mean, float scale, const float* weight, const float* bias,
                    int64_t n) {
  const float w = *weight, b = *bias;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) o[i] = (x[i] - mean) * scale * (U & 1 ? w : weight[i]) + (U & 2 ? b : bias[i]);
}

#ifdef __AVX512F__
// Past the caches: `out` is the start of a cache line.
inline void normalize_lines(float* out, const float* x, float mean, float scale, const float* weight, const float* bias,
                            int64_t n, unsigned uniform) {
  typedef float Vector __attribute__((vector_size(64)));
  typedef float Loose __attribute__((vector_size(64), aligned(4), may_alias));
  const auto load = [](const float* at) -> Vector { return *reinterpret_cast<const Loose*>(at); };
  const Vector w = Vector{} + *weight, b = Vector{} + *bias;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const Vector y = (load(x + i) - mean) * scale * (uniform & 1 ? w : load(weight + i));
    _mm512_stream_ps(out + i, reinterpret_cast<__m512>(y + (uniform & 2 ? b : load(bias + i))));
  }
  for (; i < n; ++i) out[i] = (x[i] - mean) * scale * weight[uniform & 1 ? 0 : i] + bias[uniform & 2 ? 0 : i];
}
#endif

inline void normalize(float* out, const float* x, float mean, float scale, const float* weight, const float* bias,
                      int64_t n, unsigned uniform) {
#ifdef __AVX512F__
  if (uniform & 4) return normalize_lines(out, x, mean, scale, weight, bias, n, uniform);
#endif
  switch (uniform & 3) {
    case 0:
      return normalize_loop<0>(out, x, mean, scale, weight, bias, n);
    case 1:
      return normalize_loop<1>(out, x, mean, scale, weight, bias, n);
    case 2:
      return normalize_loop<2>(out, x, mean, scale, weight, bias, n);
    default:
      return normalize_loop<3>(out, x, mean, scale, weight, bias, n);
  }
}

// kThen, kElse: one value for all.
template <bool kThen, bool kElse, class T>
void where_loop(T* out, const uint8_t* mask, const T* then, const T* other, int64_t n) {
  const T y = *then, z = *other;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T t = kThen ? y : then[i], e = kElse ? z : other[i];
    out[i] = mask[i] ? t : e;
  }
}

template <class T>
void where(void* out, const void* in0, const void* in1, const void* in2, int64_t n, unsigned uniform) {
  T* o = static_cast<T*>(out);
  const uint8_t* m = static_cast<const uint8_t*>(in0);
  const T *b = static_cast<const T*>(in1), *c = static_cast<const T*>(in2);
  if (uniform & 1) {  // one condition for all, but not one value
    const bool yes = *m != 0;
    const T* from = yes ? b : c;
    const bool same = uniform & (yes ? 2u : 4u);
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) o[i] = from[same ? 0 : i];
    return;
  }
  switch (uniform >> 1) {
    case 0:
      return where_loop<false, false>(o, m, b, c, n);
    case 1:
      return where_loop<true, false>(o, m, b, c, n);
    case 2:
      return where_loop<false, true>(o, m, b, c, n);
    default:
      return where_loop<true, true>(o, m, b, c, n);
  }
}
