// Functions of F32 inside compiled loops: the steps of kernel_wide.h and kernel_math.h, so results are the same bits.
#pragma once
#include "drivers/cmodel/jit_encoder.h"

namespace cmodel {

bool is_function(int op);
int temporaries_of_function(int op);  // registers that it needs beside its result
// to = op(x). Changes `mask` and the temporaries; all registers differ.
void emit_function(Encoder& e, int op, int to, int x, const int* temporaries, int mask);

}  // namespace cmodel
