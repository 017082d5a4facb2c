// Many values to one. Sums keep 64 partial results (of F32), each a chain of sums of four, so that blocks of some
// thousand values are as accurate as pairwise sums. Included once per instruction set level, inside that level's
// namespace.

// Lane k and lane k ^ Step change places.
template <size_t Step, class Vector, size_t... Lane>
inline Vector crossed(Vector v, std::index_sequence<Lane...>) {
  using Mask = decltype(v == v);
  return __builtin_shuffle(v, Mask{static_cast<decltype(Mask{}[0] + 0)>(Lane ^ Step)...});
}
// Halves fold with halves until lane 0 is the fold of all.
template <class F, size_t Step, size_t Lanes, class Vector>
inline Vector fold_across(Vector v) {
  const Vector folded = F::v(v, crossed<Step>(v, std::make_index_sequence<Lanes>()));
  if constexpr (Step == 1)
    return folded;
  else
    return fold_across<F, Step / 2, Lanes>(folded);
}

template <class Op, class T>
void fold_wide(void* out, const void* in, int64_t n) {
#ifdef __AVX512F__
  constexpr int64_t kBytes = 64, kChains = 4;
#else
  constexpr int64_t kBytes = 32, kChains = 8;  // enough additions in flight to hide their latency
#endif
  typedef T Vector __attribute__((vector_size(kBytes)));
  typedef T Loose __attribute__((vector_size(kBytes), aligned(1), may_alias));
  constexpr int64_t w = kBytes / sizeof(T);
  const T* a = static_cast<const T*>(in);
  auto load = [&](int64_t at) -> Vector { return *reinterpret_cast<const Loose*>(a + at); };
  // The values behind the last whole vector go first: their chain runs beside the vectors'.
  int64_t i = n / w * w;
  T rest{};
  const bool odd = i < n;
  if (odd) {
    rest = a[i++];
    for (; i < n; ++i) rest = Op::f(rest, a[i]);
    if (n < w) {
      *static_cast<T*>(out) = rest;
      return;
    }
  }
  Vector all = load(0);
  i = w;
  if (n >= kChains * w) {
    Vector v[kChains];
    for (int64_t k = 0; k < kChains; ++k) v[k] = load(k * w);
    i = kChains * w;
    // Four vectors meet before they join a chain: as many additions, but a quarter of the roundings in a row.
    for (; i + 4 * kChains * w <= n; i += 4 * kChains * w)
      for (int64_t k = 0; k < kChains; ++k) {
        const int64_t at = i + 4 * k * w;
        v[k] = Op::v(v[k], Op::v(Op::v(load(at), load(at + w)), Op::v(load(at + 2 * w), load(at + 3 * w))));
      }
    for (; i + kChains * w <= n; i += kChains * w)
      for (int64_t k = 0; k < kChains; ++k) v[k] = Op::v(v[k], load(i + k * w));
#pragma GCC unroll 8
    for (int64_t k = 0; k < kChains - 1; ++k)
      if (i + w <= n) {
        v[k] = Op::v(v[k], load(i));
        i += w;
      }
    for (int64_t step = kChains / 2; step; step /= 2)
      for (int64_t k = 0; k < step; ++k) v[k] = Op::v(v[k], v[k + step]);
    all = v[0];
  }
  for (; i + w <= n; i += w) all = Op::v(all, load(i));
  const T result = fold_across<Op, w / 2, w>(all)[0];
  *static_cast<T*>(out) = odd ? Op::f(result, rest) : result;
}

// Integers are folded as unsigned ones, where overflow wraps; max and min need their own sign.
#define FOLD(name, operation)               \
  struct name {                             \
    template <class V>                      \
    static V v(V a, V b) {                  \
      return a operation b;                 \
    }                                       \
    template <class T>                      \
    static T f(T a, T b) {                  \
      return static_cast<T>(a operation b); \
    }                                       \
  };
FOLD(FoldSum, +)
FOLD(FoldProd, *)
FOLD(FoldAnd, &)
FOLD(FoldOr, |)
FOLD(FoldXor, ^)
struct FoldMax {
  static constexpr bool kGreatest = true;
  template <class V>
  static V v(V a, V b) {
    return (b > a) | (b != b) ? b : a;  // a NaN in `a` stays, because nothing is greater
  }
  template <class T>
  static T f(T a, T b) {
    return (b > a) || (b != b) ? b : a;
  }
};
struct FoldMin {
  static constexpr bool kGreatest = false;
  template <class V>
  static V v(V a, V b) {
    return (b < a) | (b != b) ? b : a;
  }
  template <class T>
  static T f(T a, T b) {
    return (b < a) || (b != b) ? b : a;
  }
};

#ifdef __AVX512F__
// The processor's max and min are what FoldMax and FoldMin do with numbers. False: there is a NaN.
template <bool Greatest>
bool extreme_of_numbers(float* out, const float* a, int64_t n) {
  constexpr int64_t kChains = 4, kStep = 2 * kChains * 16;
  // With a mask of everything: GCC 12 takes the plain form for the use of an undefined value.
  auto better = [](__m512 held, __m512 x) {
    return Greatest ? _mm512_maskz_max_ps(0xffff, x, held) : _mm512_maskz_min_ps(0xffff, x, held);
  };
  __m512 v[kChains];
  for (__m512& x : v) x = _mm512_set1_ps(a[0]);
  unsigned nan = 0;
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep)
    for (int64_t k = 0; k < kChains; ++k) {
      const __m512 x = _mm512_loadu_ps(a + i + 32 * k), y = _mm512_loadu_ps(a + i + 32 * k + 16);
      nan |= _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q);
      v[k] = better(v[k], better(x, y));
    }
  for (; i < n; i += 16) {
    const unsigned rest = n - i >= 16 ? 0xffffu : (1u << (n - i)) - 1;
    const __m512 x = _mm512_mask_loadu_ps(v[0], static_cast<__mmask16>(rest), a + i);
    nan |= _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    v[0] = better(v[0], x);
  }
  struct Better {
    static __m512 v(__m512 a, __m512 b) {
      return Greatest ? _mm512_maskz_max_ps(0xffff, b, a) : _mm512_maskz_min_ps(0xffff, b, a);
    }
  };
  *out = fold_across<Better, 8, 16>(better(better(v[0], v[1]), better(v[2], v[3])))[0];
  return nan == 0;
}
#endif

template <class Op, class T>
void fold_extreme(void* out, const void* in, int64_t n) {
#ifdef __AVX512F__
  if constexpr (sizeof(T) == 4 && is_real<T>) {
    if (extreme_of_numbers<Op::kGreatest>(static_cast<float*>(out), static_cast<const float*>(in), n)) return;
  }
#endif
  fold_wide<Op, T>(out, in, n);
}

// Eight rows meet in registers before they meet memory.
template <class Op, class T>
void fold_rows(void* into, const void* in, int64_t stride, int64_t rows, int64_t n) {
  typedef T Vector __attribute__((vector_size(64)));
  typedef T Loose __attribute__((vector_size(64), aligned(1), may_alias));
  constexpr int64_t w = 64 / sizeof(T);
  T* o = static_cast<T*>(into);
  const T* a = static_cast<const T*>(in);
  auto load = [](const T* at) -> Vector { return *reinterpret_cast<const Loose*>(at); };
  for (; rows > 0; rows -= 8, a += 8 * stride) {
    const bool whole = rows >= 8;
    int64_t i = 0;
    for (; i + w <= n; i += w) {
      const T* x = a + i;
      Vector y = load(o + i);
      if (whole) {
        const Vector left = Op::v(Op::v(load(x), load(x + stride)), Op::v(load(x + 2 * stride), load(x + 3 * stride)));
        const Vector right =
            Op::v(Op::v(load(x + 4 * stride), load(x + 5 * stride)), Op::v(load(x + 6 * stride), load(x + 7 * stride)));
        y = Op::v(y, Op::v(left, right));
      } else {
        for (int64_t r = 0; r < rows; ++r) y = Op::v(y, load(x + r * stride));
      }
      *reinterpret_cast<Loose*>(o + i) = y;
    }
    for (; i < n; ++i)
      for (int64_t r = 0; r < (whole ? 8 : rows); ++r) o[i] = Op::f(o[i], a[i + r * stride]);
  }
}

inline void fold_all(void* out, const void* in, int64_t n) {
  const uint8_t* a = static_cast<const uint8_t*>(in);
  uint8_t r = 1;
  for (int64_t i = 0; i < n; ++i) r &= a[i] != 0;
  *static_cast<uint8_t*>(out) = r;
}
inline void fold_any(void* out, const void* in, int64_t n) {
  const uint8_t* a = static_cast<const uint8_t*>(in);
  uint8_t r = 0;
  for (int64_t i = 0; i < n; ++i) r |= a[i] != 0;
  *static_cast<uint8_t*>(out) = r;
}
inline void fold_parity(void* out, const void* in, int64_t n) {
  const uint8_t* a = static_cast<const uint8_t*>(in);
  uint8_t r = 0;
  for (int64_t i = 0; i < n; ++i) r ^= a[i] != 0;
  *static_cast<uint8_t*>(out) = r;
}

// First the extreme value at full speed, then the lowest index that has it.
template <class T, bool Greatest>
void arg_fold(void* value, int64_t* at, const void* in, const int64_t* index, int64_t first, int64_t step, int64_t n) {
  const T* a = static_cast<const T*>(in);
  T best = a[0];
  if constexpr (sizeof(T) == 1) {
    best = a[0] != 0;
    for (int64_t i = 1; i < n; ++i) best = Greatest ? (best | (a[i] != 0)) : (best & (a[i] != 0));
  } else if constexpr (Greatest) {
    fold_extreme<FoldMax, T>(&best, in, n);
  } else {
    fold_extreme<FoldMin, T>(&best, in, n);
  }
  auto hit = [&](T x) { return sizeof(T) == 1 ? (x != 0) == (best != 0) : x == best || (x != x && best != best); };
  int64_t where = INT64_MAX;
  if (!index && step > 0) {
    // Blocks without a branch inside; the one with a hit once more.
    int64_t i = 0;
    for (; i + 64 <= n; i += 64) {
      int any = 0;
      for (int64_t k = 0; k < 64; ++k) any |= hit(a[i + k]);
      if (any) break;
    }
    for (; i < n; ++i)
      if (hit(a[i])) {
        where = first + i * step;
        break;
      }
  } else {
    for (int64_t i = 0; i < n; ++i)
      if (hit(a[i])) {
        int64_t k = index ? index[i] : first + i * step;
        where = k < where ? k : where;
      }
  }
  *static_cast<T*>(value) = best;
  *at = where;
}

// Better: a NaN beats every number; of equals, and of NaNs, the lower index.
template <class T, bool Greatest>
void arg_lanes(void* best, int64_t* at, const void* in, const int64_t* index, const char* mask, int64_t n) {
  T* held = static_cast<T*>(best);
  const T* x = static_cast<const T*>(in);
  int64_t i = 0;
  if constexpr (sizeof(T) >= 4) {
    typedef int64_t Wide __attribute__((vector_size(64)));
    typedef int64_t LooseWide __attribute__((vector_size(64), aligned(1), may_alias));
    typedef T Vector __attribute__((vector_size(8 * sizeof(T))));
    typedef T Loose __attribute__((vector_size(8 * sizeof(T)), aligned(1), may_alias));
    typedef int8_t Bytes __attribute__((vector_size(8)));
    for (; i + 8 <= n; i += 8) {
      const Vector a = *reinterpret_cast<const Loose*>(x + i), b = *reinterpret_cast<const Loose*>(held + i);
      const Wide ai = *reinterpret_cast<const LooseWide*>(index + i), bi = *reinterpret_cast<const LooseWide*>(at + i);
      const auto win = (Greatest ? a > b : a < b) | ((a != a) & (b == b));
      const auto same = (a == b) | ((a != a) & (b != b));
      Wide better = __builtin_convertvector(win, Wide) | (__builtin_convertvector(same, Wide) & (ai < bi));
      if (mask) {
        Bytes set;
        __builtin_memcpy(&set, mask + i, sizeof set);
        better &= __builtin_convertvector(set != 0, Wide);
      }
      const auto narrow = __builtin_convertvector(better, decltype(win));
      *reinterpret_cast<Loose*>(held + i) = narrow ? a : b;
      *reinterpret_cast<LooseWide*>(at + i) = better ? ai : bi;
    }
  }
  for (; i < n; ++i) {
    if (mask && !mask[i]) continue;
    const T a = sizeof(T) == 1 ? static_cast<T>(x[i] != 0) : x[i], b = held[i];
    const bool win = (Greatest ? a > b : a < b) || (a != a && b == b);
    const bool same = a == b || (a != a && b != b);
    if (win || (same && index[i] < at[i])) {
      held[i] = a;
      at[i] = index[i];
    }
  }
}

template <class T>
void moments(double* mean, double* m2, const void* in, int64_t n, const void* next) {
  const T* a = static_cast<const T*>(in);
  // The second pass finds its values in the first cache: time to ask memory for the next ones.
  const T* ahead = next ? static_cast<const T*>(next) : a;
  T sum;
  fold_wide<FoldSum, T>(&sum, in, n);
  const double center = static_cast<double>(sum) / static_cast<double>(n);
  const T c = static_cast<T>(center);
  typedef T Vector __attribute__((vector_size(64)));
  typedef T Loose __attribute__((vector_size(64), aligned(1), may_alias));
  constexpr int64_t w = 64 / sizeof(T), kChains = 4;
  Vector square[kChains] = {}, plain[kChains] = {};
  int64_t i = 0;
  for (; i + kChains * w <= n; i += kChains * w)
    for (int64_t k = 0; k < kChains; ++k) {
      __builtin_prefetch(ahead + i + k * w);
      const Vector x = *reinterpret_cast<const Loose*>(a + i + k * w) - c;
      square[k] += x * x;
      plain[k] += x;
    }
  for (; i + w <= n; i += w) {
    const Vector x = *reinterpret_cast<const Loose*>(a + i) - c;
    square[0] += x * x;
    plain[0] += x;
  }
  const Vector s = (square[0] + square[1]) + (square[2] + square[3]), d = (plain[0] + plain[1]) + (plain[2] + plain[3]);
  double squares = 0, drift = 0;
  for (; i < n; ++i) {
    const T x = a[i] - c;
    squares += x * x;
    drift += x;
  }
  // Four chains each: the additions of one would wait for each other.
  double parts[4] = {}, drifts[4] = {};
  for (int64_t k = 0; k < w; ++k) {
    parts[k % 4] += static_cast<double>(s[k]);
    drifts[k % 4] += static_cast<double>(d[k]);
  }
  squares += (parts[0] + parts[1]) + (parts[2] + parts[3]);
  drift += (drifts[0] + drifts[1]) + (drifts[2] + drifts[3]);
  // `c` is a rounded mean: correct both results for the difference.
  const double delta = drift / static_cast<double>(n);
  *mean = delta - delta == 0 ? static_cast<double>(c) + delta : center;  // an infinite mean stays one
  *m2 = squares - delta * drift;
}

template <class T>
void welford_lanes(void* mean, void* m2, const void* in, int64_t n, double count) {
  T* m = static_cast<T*>(mean);
  T* s = static_cast<T*>(m2);
  const T* a = static_cast<const T*>(in);
  const T scale = static_cast<T>(1 / count);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T delta = a[i] - m[i];
    const T next = m[i] + delta * scale;
    s[i] = s[i] + delta * (a[i] - next);
    m[i] = next;
  }
}

// Running values along a row. Sums of F32 run in F64, as in PyTorch.
template <class Op, class T, class Carry>
void scan_row(void* out, const void* in, int64_t n, void* carry) {
  T* o = static_cast<T*>(out);
  const T* a = static_cast<const T*>(in);
  Carry x = *static_cast<Carry*>(carry);
  for (int64_t i = 0; i < n; ++i) {
    x = Op::f(x, static_cast<Carry>(a[i]));
    o[i] = static_cast<T>(x);
  }
  *static_cast<Carry*>(carry) = x;
}

template <class Op, class T, class Carry>
void scan_rows(void* const* out, const void* const* in, int64_t n, uint64_t* carry) {
  static_assert(sizeof(Carry) == sizeof(uint64_t));
  T* o[kScanRows];
  const T* a[kScanRows];
  Carry x[kScanRows];
  for (int r = 0; r < kScanRows; ++r) {
    o[r] = static_cast<T*>(out[r]);
    a[r] = static_cast<const T*>(in[r]);
    __builtin_memcpy(&x[r], &carry[r], sizeof(Carry));
  }
  for (int64_t i = 0; i < n; ++i) {
#pragma GCC unroll 4
    for (int r = 0; r < kScanRows; ++r) {
      x[r] = Op::f(x[r], static_cast<Carry>(a[r][i]));
      o[r][i] = static_cast<T>(x[r]);
    }
  }
  __builtin_memcpy(carry, x, sizeof x);
}

template <class T>
constexpr auto carry_type() {
  if constexpr (is_real<T>)
    return double();
  else
    return T();
}
