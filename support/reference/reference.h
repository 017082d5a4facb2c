// docs/isa.md in executable form: runs one command literally, element by element, in the order that the
// document prescribes. Slow and plain on purpose. The C model's exact mode runs it, the driver test suite
// compares every driver with it, and the host uses it for a command that a driver does not have.
#pragma once
#include <functional>
#include <string>

#include "npu/runtime.h"

namespace npu {

// Where an operand's bytes are: the host pointer for [addr, addr + size), or nullptr if that is not memory the
// command may touch.
using Translate = std::function<void*(npu_addr addr, uint64_t size, bool write)>;

// `program` is the desc of command.program (nullptr where there is none). On failure `*error` says why in one line.
npu_status run_reference(const npu_command& command, const npu_program_desc* program, const Translate& translate,
                         std::string* error);

}  // namespace npu
