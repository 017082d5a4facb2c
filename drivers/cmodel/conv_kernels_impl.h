// The body behind conv_kernels.h, included once per instruction set with KERNEL_ISA and KERNEL_BYTES set.
#include "drivers/cmodel/conv_kernels.h"
#include "drivers/cmodel/matmul_vector.h"

namespace cmodel::conv::KERNEL_ISA {
namespace {

namespace v = blas::KERNEL_ISA;
using Line = v::Vector<float>;
constexpr int L = v::VectorOf<float>::lanes;

// Lines [0, R + H - 1) of one column into R rows of results.
template <int R, int V, int H>
inline __attribute__((always_inline)) void add_column(Line (&acc)[R][V], const float* in, int64_t pitch,
                                                      const float* weight) {
  Line w[H];
#pragma GCC unroll 7
  for (int h = 0; h < H; ++h) w[h] = v::splat(weight[h]);
#pragma GCC unroll 10
  for (int r = 0; r < R + H - 1; ++r, in += pitch) {
#pragma GCC unroll 2
    for (int i = 0; i < V; ++i) {
      const Line line = v::load(in + i * L);
#pragma GCC unroll 7
      for (int h = 0; h < H; ++h) {
        if (r - h >= 0 && r - h < R) acc[r - h][i] = v::fma<float>(w[h], line, acc[r - h][i]);
      }
    }
  }
}

template <int R, int V>
void tile(float* out, int64_t ld, const float* in, int64_t pitch, const Column* columns, int64_t count) {
  Line acc[R][V] = {};
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

}  // namespace

extern const ColumnKernel columns = all_rows;

}  // namespace cmodel::conv::KERNEL_ISA
