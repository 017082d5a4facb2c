// exp, sigmoid and erf inside compiled loops: the steps of kernel_wide.h, so results are the same bits.
#pragma once
#include "drivers/cmodel/jit_encoder.h"

namespace cmodel {

constexpr int kMostTemporaries = 5;
int temporaries_of(int op);  // registers that the function needs beside its result; 0: no such function
// to = op(x). Changes `mask` and the temporaries; all registers differ.
void emit_function(Encoder& e, int op, int to, int x, const int* temporaries, int mask);

}  // namespace cmodel
