// Part of product/kernels/micro_impl.h: tiles with few rows of A, which are read where they lie, and many columns of B.
// Convolution has its images as A, so that nothing of them is packed.
namespace cmodel::product::KERNEL_ISA {
namespace {

constexpr int kSpanRows = KERNEL_BYTES == 64 ? 7 : 6, kSpanVectors = KERNEL_BYTES == 64 ? 4 : 2;
constexpr int kSpan = kSpanVectors * L;

#if MICRO_I8 || MICRO_I16
constexpr decltype(Micro::points) kPoints = nullptr;
#else

template <int R, int V>
struct Span {
  Vector<Sum> acc[R][V] = {};

  template <class A>
  inline void add(A a, const uint32_t* b) {
#pragma GCC unroll 7
    for (int i = 0; i < R; ++i) {
      const uint32_t word = a(i);
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) acc[i][v] = step(word, b + v * L, acc[i][v]);
    }
  }
  inline void store_to(Sum* c, int64_t ldc, bool accumulate) const {
#pragma GCC unroll 7
    for (int i = 0; i < R; ++i, c += ldc) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) store(c + v * L, accumulate ? load(c + v * L) + acc[i][v] : acc[i][v]);
    }
  }
};

template <int R, int V>
void points_of(int64_t words, const uint32_t* a, const int64_t* offset, const uint32_t* b, Sum* c, int64_t ldc,
               int64_t rows, bool accumulate) {
  if constexpr (R > 1) {
    if (rows < R) return points_of<R - 1, V>(words, a, offset, b, c, ldc, rows, accumulate);
  }
  Span<R, V> span;
  for (int64_t p = 0; p < words; ++p, b += V * L) {
    const uint32_t* point = a + offset[p];
    span.add([point](int i) { return point[i]; }, b);
  }
  span.store_to(c, ldc, accumulate);
}

template <int V>
void points_by(int64_t words, const uint32_t* a, const int64_t* offset, const uint32_t* b, void* c, int64_t ldc,
               int64_t rows, int64_t cols, bool accumulate) {
  if constexpr (V > 1) {
    if (cols < V * L) return points_by<V - 1>(words, a, offset, b, c, ldc, rows, cols, accumulate);
  }
  points_of<kSpanRows, V>(words, a, offset, b, static_cast<Sum*>(c), ldc, rows, accumulate);
}
constexpr decltype(Micro::points) kPoints = points_by<kSpanVectors>;
#endif

#if MICRO_I8 || MICRO_I16 || MICRO_BF16
constexpr decltype(Micro::lines) kLines = nullptr;
#else
template <int R, int V>
void lines_of(int64_t count, int64_t length, const uint32_t* a, const int64_t* start, const int64_t* offset,
              const uint32_t* b, Sum* c, int64_t ldc, int64_t rows, bool accumulate) {
  if constexpr (R > 1) {
    if (rows < R) return lines_of<R - 1, V>(count, length, a, start, offset, b, c, ldc, rows, accumulate);
  }
  Span<R, V> span;
  const uint32_t* line[R];
  for (int64_t y = 0; y < count; ++y) {
#pragma GCC unroll 7
    for (int i = 0; i < R; ++i) line[i] = a + start[y] + offset[i];
    for (int64_t p = 0; p < length; ++p, b += V * L) span.add([&](int i) { return line[i][p]; }, b);
  }
  span.store_to(c, ldc, accumulate);
}

template <int V>
void lines_by(int64_t count, int64_t length, const uint32_t* a, const int64_t* start, const int64_t* offset,
              const uint32_t* b, void* c, int64_t ldc, int64_t rows, int64_t cols, bool accumulate) {
  if constexpr (V > 1) {
    if (cols < V * L) return lines_by<V - 1>(count, length, a, start, offset, b, c, ldc, rows, cols, accumulate);
  }
  lines_of<kSpanRows, V>(count, length, a, start, offset, b, static_cast<Sum*>(c), ldc, rows, accumulate);
}
constexpr decltype(Micro::lines) kLines = lines_by<kSpanVectors>;
#endif

}  // namespace
}  // namespace cmodel::product::KERNEL_ISA
