// The inner loop of convolutions in which a result channel reads one source channel, per instruction set.
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

// out[y * ld + x] = sum over columns and their lines of weight[line] * in[offset + (y + line) * pitch + x], for points
// of rows x cols; up to kColumnStep points too many are read and written in each row.
using ColumnKernel = void (*)(float* out, int64_t ld, int64_t rows, int64_t cols, const float* in, int64_t pitch,
                              const Column* columns, int64_t count);

namespace base {
extern const ColumnKernel columns;
}
namespace avx2 {
extern const ColumnKernel columns;
}
namespace avx512 {
extern const ColumnKernel columns;
}

// The best that this processor has.
ColumnKernel column_kernel();

}  // namespace cmodel::conv
