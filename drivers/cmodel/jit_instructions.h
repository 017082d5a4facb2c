// The instructions of a program inside compiled loops. Results are the bits of the kernels.
#pragma once
#include "drivers/cmodel/jit_encoder.h"
#include "npu/program.h"

namespace cmodel {

// Vector registers that the instruction needs beside its result and arguments.
constexpr int kMostTemporaries = 6;
int temporaries_of(const npu_instr& in);
// to = in(a, b, c); `type`: of a. BOOL values are in mask registers. Changes mask register `mask` and the temporaries;
// all registers differ.
void emit_instruction(Encoder& e, const npu_instr& in, int type, int to, int a, int b, int c, const int* temporaries,
                      int mask);

// F32 to the 16 bits of a bf16, in the lower half of each element.
void to_bfloat(Encoder& e, int to, int from, int mask);

}  // namespace cmodel
