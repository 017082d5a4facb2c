// Functions of F32 inside compiled loops: the steps of simd/wide.h and simd/math.h, so results are the bits of the
// kernels of the same instruction set level.
#pragma once
#include "drivers/cmodel/jit/vectors.h"

namespace cmodel {

bool is_function(int op);
int temporaries_of_function(int op);  // registers that it needs beside its result
// to = op(x). Changes `mask` and the temporaries; all registers differ.
void emit_function(Vectors& e, int op, int to, int x, const int* temporaries, int mask);

}  // namespace cmodel
