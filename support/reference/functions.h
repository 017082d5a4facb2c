// The functions of f32 that docs/isa.md, "Functions", defines as sequences of exactly rounded instructions. The one
// place that has them is codegen/functions.ops: the reference evaluates programs made of it, a driver for hardware
// that has no such function emits their instructions, and so all of them agree to the last bit.
#pragma once
#include "support/program/program.h"
#include "support/reference/value.h"

namespace npu {

// The program of an instruction: operands 0 (and 1) are its arguments, the last one its result. It may use other
// functions that have a sequence. Null: the instruction has none.
const Program* sequence(int op);

// Are the bits of this instruction's result defined, or may drivers differ by approximation(op)?
bool is_defined(int op, int dtype);

// The function that a sequence computes.
float run_sequence(int op, float a, float b);

}  // namespace npu
