// The instructions of a program inside compiled loops. Results are the bits of the kernels of the same level.
#pragma once
#include "drivers/cmodel/jit/vectors.h"
#include "npu/program.h"

namespace cmodel {

// Vector registers that the instruction needs beside its result and arguments.
constexpr int kMostTemporaries = 6;
int temporaries_of(const npu_instr& in);
// to = in(a, b, c); `type`: of a. Changes the spare mask and the temporaries; all registers differ.
void emit_instruction(Vectors& e, const npu_instr& in, int type, int to, int a, int b, int c, const int* temporaries);

}  // namespace cmodel
