// The bodies behind conv/kernels/kernels.h, included once per instruction set with KERNEL_ISA and KERNEL_BYTES set.
#include "drivers/cmodel/conv/kernels/kernels.h"
#include "drivers/cmodel/product/kernels/vector.h"

namespace cmodel::conv::KERNEL_ISA {
namespace {

namespace v = product::KERNEL_ISA;
using Vector = v::Vector<float>;
constexpr int L = v::VectorOf<float>::lanes;

// Lines [0, R + H - 1) of one column into R rows of results.
template <int R, int V, int H>
inline __attribute__((always_inline)) void add_column(Vector (&acc)[R][V], const float* in, int64_t pitch,
                                                      const float* weight) {
  Vector w[H];
#pragma GCC unroll 7
  for (int h = 0; h < H; ++h) w[h] = v::splat(weight[h]);
#pragma GCC unroll 10
  for (int r = 0; r < R + H - 1; ++r, in += pitch) {
#pragma GCC unroll 2
    for (int i = 0; i < V; ++i) {
      const Vector line = v::load(in + i * L);
#pragma GCC unroll 7
      for (int h = 0; h < H; ++h) {
        if (r - h >= 0 && r - h < R) acc[r - h][i] = v::fma<float>(w[h], line, acc[r - h][i]);
      }
    }
  }
}

template <int R, int V>
void tile(float* out, int64_t ld, const float* in, int64_t pitch, const Column* columns, int64_t count) {
  Vector acc[R][V] = {};
  for (int64_t c = 0; c < count; ++c) {
    const float* from = in + columns[c].offset;
    const float* weight = columns[c].weight;
    switch (columns[c].height) {
      case 1:
        add_column<R, V, 1>(acc, from, pitch, weight);
        break;
      case 2:
        add_column<R, V, 2>(acc, from, pitch, weight);
        break;
      case 3:
        add_column<R, V, 3>(acc, from, pitch, weight);
        break;
      case 4:
        add_column<R, V, 4>(acc, from, pitch, weight);
        break;
      case 5:
        add_column<R, V, 5>(acc, from, pitch, weight);
        break;
      case 6:
        add_column<R, V, 6>(acc, from, pitch, weight);
        break;
      default:
        add_column<R, V, 7>(acc, from, pitch, weight);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int i = 0; i < V; ++i) v::store(out + r * ld + i * L, acc[r][i]);
  }
}

template <int R>
void rows_of(float* out, int64_t ld, int64_t cols, const float* in, int64_t pitch, const Column* columns,
             int64_t count) {
  int64_t x = 0;
  for (; x + L < cols; x += 2 * L) tile<R, 2>(out + x, ld, in + x, pitch, columns, count);
  for (; x < cols; x += L) tile<R, 1>(out + x, ld, in + x, pitch, columns, count);
}

void all_rows(float* out, int64_t ld, int64_t rows, int64_t cols, const float* in, int64_t pitch, const Column* columns,
              int64_t count) {
  int64_t y = 0;
  for (; y + 4 <= rows; y += 4) rows_of<4>(out + y * ld, ld, cols, in + y * pitch, pitch, columns, count);
  for (; y + 2 <= rows; y += 2) rows_of<2>(out + y * ld, ld, cols, in + y * pitch, pitch, columns, count);
  for (; y < rows; ++y) rows_of<1>(out + y * ld, ld, cols, in + y * pitch, pitch, columns, count);
}

// Up to L points of a line, zeros behind them.
inline Vector load_part(const float* p, int64_t n) {
#if defined(__AVX512F__)
  return (Vector)_mm512_maskz_loadu_ps(__mmask16((1u << n) - 1), p);
#else
  float part[L] = {};
  for (int64_t i = 0; i < n; ++i) part[i] = p[i];
  return v::load(part);
#endif
}

template <int N>
void tap_sums_of(double* sums, const float* gradient, int64_t ld, int64_t rows, int64_t cols, const float* in,
                 int64_t pitch, const int64_t* offset) {
  Vector acc[N] = {};
  for (int64_t y = 0; y < rows; ++y, gradient += ld, in += pitch) {
    int64_t x = 0;
    for (; x + L <= cols; x += L) {
      const Vector g = v::load(gradient + x);
#pragma GCC unroll 9
      for (int t = 0; t < N; ++t) acc[t] = v::fma<float>(g, v::load(in + offset[t] + x), acc[t]);
    }
    if (x < cols) {
      const Vector g = load_part(gradient + x, cols - x);
#pragma GCC unroll 9
      for (int t = 0; t < N; ++t) acc[t] = v::fma<float>(g, load_part(in + offset[t] + x, cols - x), acc[t]);
    }
  }
  for (int t = 0; t < N; ++t) {
    for (int i = 0; i < L; ++i) sums[t] += double(acc[t][i]);
  }
}

template <int N>
void some_taps(double* sums, const float* gradient, int64_t ld, int64_t rows, int64_t cols, const float* in,
               int64_t pitch, const int64_t* offset, int64_t taps) {
  if constexpr (N > 1) {
    if (taps < N) return some_taps<N - 1>(sums, gradient, ld, rows, cols, in, pitch, offset, taps);
  }
  tap_sums_of<N>(sums, gradient, ld, rows, cols, in, pitch, offset);
}

void tap_sums(double* sums, const float* gradient, int64_t ld, int64_t rows, int64_t cols, const float* in,
              int64_t pitch, const int64_t* offset, int64_t taps) {
  constexpr int64_t kMost = 9;
  const int64_t passes = (taps + kMost - 1) / kMost;
  for (int64_t i = 0; i < passes; ++i) {
    const int64_t first = taps * i / passes, last = taps * (i + 1) / passes;
    some_taps<kMost>(sums + first, gradient, ld, rows, cols, in, pitch, offset + first, last - first);
  }
}

// X points of V vectors of channels.
template <int X, int V>
inline void last_tile(float* out, int64_t width, const float* in, int64_t step, const int64_t* offset,
                      const float* weight, int64_t taps) {
  Vector acc[X][V] = {};
  for (int64_t t = 0; t < taps; ++t, weight += width) {
    const float* from = in + offset[t];
    Vector w[V];
#pragma GCC unroll 2
    for (int i = 0; i < V; ++i) w[i] = v::load(weight + i * L);
#pragma GCC unroll 6
    for (int x = 0; x < X; ++x) {
#pragma GCC unroll 2
      for (int i = 0; i < V; ++i) acc[x][i] = v::fma<float>(w[i], v::load(from + x * step + i * L), acc[x][i]);
    }
  }
#pragma GCC unroll 6
  for (int x = 0; x < X; ++x) {
#pragma GCC unroll 2
    for (int i = 0; i < V; ++i) v::store(out + x * width + i * L, acc[x][i]);
  }
}

template <int V>
void last_columns(float* out, int64_t cols, int64_t width, const float* in, int64_t step, const int64_t* offset,
                  const float* weight, int64_t taps) {
  int64_t x = 0;
  for (; x + 6 <= cols; x += 6) last_tile<6, V>(out + x * width, width, in + x * step, step, offset, weight, taps);
  for (; x + 2 <= cols; x += 2) last_tile<2, V>(out + x * width, width, in + x * step, step, offset, weight, taps);
  for (; x < cols; ++x) last_tile<1, V>(out + x * width, width, in + x * step, step, offset, weight, taps);
}

void channels_last(float* out, int64_t cols, int64_t width, const float* in, int64_t step, const int64_t* offset,
                   const float* weight, int64_t taps) {
  int64_t c = 0;
  for (; c + 2 * L <= width; c += 2 * L) last_columns<2>(out + c, cols, width, in + c, step, offset, weight + c, taps);
  for (; c < width; c += L) last_columns<1>(out + c, cols, width, in + c, step, offset, weight + c, taps);
}

void select(const float* line, [[maybe_unused]] int64_t size, const int32_t* index, int64_t count, float* to) {
#if defined(__AVX512F__)
  for (int64_t i = 0; i < count; i += L) {
    const __m512i at = _mm512_loadu_si512(index + i);
    __m512 all = _mm512_setzero_ps();
    for (int64_t from = 0; from < size; from += kSelected) {
      const __mmask16 here =
          _mm512_cmplt_epu32_mask(_mm512_sub_epi32(at, _mm512_set1_epi32(int(from))), _mm512_set1_epi32(kSelected));
      const __m512 low = _mm512_loadu_ps(line + from), high = _mm512_loadu_ps(line + from + L);
      all = _mm512_mask_mov_ps(all, here, _mm512_permutex2var_ps(low, at, high));
    }
    _mm512_storeu_ps(to + i, all);
  }
  static_assert(kSelected == 2 * L);
#else
  for (int64_t i = 0; i < count; ++i) to[i] = index[i] < 0 ? 0.0f : line[index[i]];
#endif
}

#if defined(__AVX512F__)
template <int R>
void lane_taps_of(const LaneSteps& steps, int64_t count, const float* weight, int64_t row_step, int64_t k_step,
                  int64_t taps, const float* source, int64_t pitch, float* c, int64_t ldc, int64_t rows,
                  bool accumulate) {
  if constexpr (R > 1) {
    if (rows < R) {
      return lane_taps_of<R - 1>(steps, count, weight, row_step, k_step, taps, source, pitch, c, ldc, rows, accumulate);
    }
  }
  typedef int32_t Index __attribute__((vector_size(64)));
  const __mmask16 inside = __mmask16((1u << taps) - 1);
  Vector acc[R] = {};
  for (int64_t k = 0; k < count; ++k, weight += k_step, source += pitch) {
    int64_t s = 0;
    for (; s < steps.same; ++s) {
      const Vector x = v::load(source + s * L);
      const float* tap = weight + steps.taps[s * L];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) acc[r] = v::fma<float>(v::splat(tap[r * row_step]), x, acc[r]);
    }
    if (s == steps.count) continue;
    Vector row[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) row[r] = (Vector)_mm512_maskz_loadu_ps(inside, weight + r * row_step);
    for (; s < steps.count; ++s) {
      const Vector x = v::load(source + s * L);
      const Index index = (Index)_mm512_loadu_si512(steps.taps + s * L);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) acc[r] = v::fma<float>(__builtin_shuffle(row[r], index), x, acc[r]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) v::store(c + r * ldc, accumulate ? v::load(c + r * ldc) + acc[r] : acc[r]);
}
constexpr decltype(Kernels::lane_taps) kLaneTapsOf = lane_taps_of<kLaneRows>;
static_assert(L == kLanes);
#else
constexpr decltype(Kernels::lane_taps) kLaneTapsOf = nullptr;
#endif

}  // namespace

extern const Kernels kernels = {all_rows, tap_sums, L, channels_last, select, kLaneTapsOf};

}  // namespace cmodel::conv::KERNEL_ISA
