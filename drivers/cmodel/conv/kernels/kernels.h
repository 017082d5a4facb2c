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

// Vectors whose lanes are positions of results, each with its own taps. In each step a lane multiplies one of its taps
// by a number of the source, or any tap by 0.
constexpr int kLanes = 16, kLaneRows = 8, kLaneTaps = 16;
struct LaneSteps {
  int64_t count, same;  // the first `same` of them have one tap in all lanes
  const int32_t* taps;  // [step][lane]
};

constexpr int kSelected = 32;  // `select` reads a line in whole parts of that many

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
  // to[i] = line[index[i]], or 0 where that is negative, for a count that is a multiple of kLanes and indices below
  // `size`.
  void (*select)(const float* line, int64_t size, const int32_t* index, int64_t count, float* to);
  // c[r * ldc + lane] (+)= sum over k < count and steps of weight[r * row_step + k * k_step + taps[step][lane]] *
  // source[k * pitch + step * kLanes + lane], for at most kLaneRows rows. nullptr: lanes cannot have taps of their own.
  void (*lane_taps)(const LaneSteps& steps, int64_t count, const float* weight, int64_t row_step, int64_t k_step,
                    int64_t taps, const float* source, int64_t pitch, float* c, int64_t ldc, int64_t rows,
                    bool accumulate);
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
