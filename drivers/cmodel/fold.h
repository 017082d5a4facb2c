// Accumulators of REDUCE and SCAN, in two forms: Acc folds the values of a tile into one result (a row at a time),
// Lanes folds tile after tile element by element (many rows at a time).
#pragma once
#include <cstdint>

#include "drivers/cmodel/exec.h"

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
void merge(Frame& frame, const FoldPlan& fold, Acc& acc, const Acc& right);
// Writes member k to out[k] + row * size.
void finish(const FoldPlan& fold, const Acc& acc, char* const* out, int64_t row);

// Element-wise accumulators: arrays of n members, and how many steps they hold.
struct Lanes {
  char* member[NPU_MAX_TUPLE];
  char* partial;  // SUM: the last steps, kept apart so that long sums stay accurate
  int64_t steps = 0;
};
bool lanes_can(const FoldPlan& fold, const Op& op);  // else use Acc
void begin(Frame& frame, const FoldPlan& fold, Lanes& lanes, int64_t n);
void accumulate(Frame& frame, const FoldPlan& fold, Lanes& lanes, int64_t n);
void finish(Frame& frame, const FoldPlan& fold, Lanes& lanes, int64_t n);

}  // namespace cmodel
