// Inner loops of convolutions in which a result channel reads one source channel, per instruction set.
#pragma once
#include <cstdint>

namespace cmodel::conv {

// Taps that read the same shift along x and consecutive lines of the window: each line that is loaded serves them all.
struct Column {
  int64_t offset;  // of the first line
  int64_t height;
  const float* weight;
};

constexpr int kColumnHeight = 7, kColumnStep = 32;  // the tallest column; results are written in whole steps

struct Kernels {
  // out[y * ld + x] = sum over columns and their lines of weight[line] * in[offset + (y + line) * pitch + x], for
  // points of rows x cols; up to kColumnStep points too many are read and written in each row.
  void (*columns)(float* out, int64_t ld, int64_t rows, int64_t cols, const float* in, int64_t pitch,
                  const Column* columns, int64_t count);
  // sums[t] += sum over points of gradient[y * ld + x] * in[offset[t] + y * pitch + x].
  void (*tap_sums)(double* sums, const float* gradient, int64_t ld, int64_t rows, int64_t cols, const float* in,
                   int64_t pitch, const int64_t* offset, int64_t taps);
  // Channels last: out[x * width + c] = sum over taps of weight[t * width + c] * in[offset[t] + x * step + c], for
  // `width` channels, a multiple of `lanes`.
  int lanes;
  void (*channels_last)(float* out, int64_t cols, int64_t width, const float* in, int64_t step, const int64_t* offset,
                        const float* weight, int64_t taps);
};

namespace base {
extern const Kernels kernels;
}
namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}

// The best that this processor has.
const Kernels& kernels();

}  // namespace cmodel::conv
