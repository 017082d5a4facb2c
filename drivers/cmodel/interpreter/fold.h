// Accumulators of REDUCE and SCAN, in two forms: Acc folds the values of a tile into one result (a row at a time),
// Lanes folds tile after tile element by element (many rows at a time).
#pragma once
#include <cstdint>

#include "drivers/cmodel/interpreter/interpreter.h"

namespace cmodel {

// Temporaries that the folds use, behind the kTemps of the interpreter.
constexpr int kFoldTemps = 9;

struct Acc {
  uint64_t member[NPU_MAX_TUPLE];  // in the members' types; WELFORD: doubles
  double sum;                      // SUM of F32: blocks are added in F64
  bool any;
};

// The bits of the value that leaves every other as it is.
uint64_t identity_bits(int fold, int dtype);

void begin(const FoldPlan& fold, Acc& acc);
// Folds columns [row * cols, (row + 1) * cols) of the tile's values, for each of `rows` accumulators.
void accumulate(Frame& frame, const FoldPlan& fold, Acc* acc, int64_t rows, int64_t cols);
// Up to this many values are one call of a kernel: few enough that its partial results stay accurate.
constexpr int64_t kPlainBlock = 4096;
// Folds n values of the member's type that lie side by side in memory; the fold has no mask, and no second argument
// but the index of argmax and argmin, which is index + i * step. `next`: what will be folded behind these.
void accumulate_plain(const Kernels& k, const FoldPlan& fold, Acc& acc, const char* values, int64_t n,
                      int64_t index = 0, int64_t step = 0, const char* next = nullptr);
void merge(Frame& frame, const FoldPlan& fold, Acc& acc, const Acc& right);
// Writes member k to out[k] + row * size.
void finish(const FoldPlan& fold, const Acc& acc, char* const* out, int64_t row);

// Element-wise accumulators: arrays of n members, and how many steps they hold.
struct Lanes {
  char* member[NPU_MAX_TUPLE];
  char* partial;  // SUM: the last steps, kept apart so that long sums stay accurate; of F32, the others are F64
  int64_t steps = 0, flushed = 0;
};
// Folds `rows` folded points, `stride` elements apart, of a tile whose rows lie `tile_stride` elements apart and are
// dense; the fold has one argument, no mask and a kernel for it.
bool lanes_fold_rows(const Kernels& k, const FoldPlan& fold);
void accumulate_rows(Frame& frame, const FoldPlan& fold, Lanes& lanes, const char* values, int64_t stride, int64_t rows,
                     const Tile& tile, int64_t tile_stride);
// Behind steps that were added to `partial` of an F32 sum, at most 64 at once: keeps long sums accurate.
void settle(Frame& frame, const FoldPlan& fold, Lanes& lanes, int64_t n);
bool lanes_can(const FoldPlan& fold, const Op& op);  // else use Acc
void begin(Frame& frame, const FoldPlan& fold, Lanes& lanes, int64_t n);
void accumulate(Frame& frame, const FoldPlan& fold, Lanes& lanes, int64_t n);
void finish(Frame& frame, const FoldPlan& fold, Lanes& lanes, int64_t n);

}  // namespace cmodel
