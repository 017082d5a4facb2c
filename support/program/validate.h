// The rules of docs/isa.md for a command, as far as they need no memory.
#pragma once
#include <string>

#include "npu/command.h"

namespace npu {

// Kind, ranks, operand types and count, program shape (folds only in REDUCE, acc only in an epilogue, ...). `program`
// is the desc of command.program, or null. Empty, or the first rule broken.
std::string validate_command(const npu_command& command, const npu_program_desc* program);

}  // namespace npu
