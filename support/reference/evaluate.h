// One arithmetic instruction on one set of values (docs/isa.md, "Instructions").
#pragma once
#include "npu/program.h"
#include "support/reference/value.h"

namespace npu {

// `type` is the compute type of the first argument (of the choices for `where`). Loads, stores, folds and the like are
// not evaluated here.
Value evaluate(const npu_instr& instr, int type, Value a, Value b, Value c);

// Philox4x32-10: four words for a counter and a key.
void philox(uint64_t seed, uint64_t offset, uint64_t subsequence, uint32_t out[4]);

double digamma(double x);
double erfinv(double x);

}  // namespace npu
