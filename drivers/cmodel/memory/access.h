// From a command's operands to host memory: which bytes a command will touch, and whether they are live.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/memory/memory.h"

namespace cmodel {

// How a program uses each operand.
struct ProgramAccess {
  enum : uint8_t {
    kEach = 1,   // load or store at every point
    kRow = 2,    // at every point of the kept dimensions (ROW segments)
    kLoose = 4,  // under a mask: the points that count are known only when it runs
    kAt = 8,     // at computed addresses
    kRead = 16,
    kWrite = 32
  };
  std::array<uint8_t, NPU_MAX_OPERANDS> use{};

  static ProgramAccess of(const npu::Program& program);
};

// Fills out[0 .. operand_count). The command is valid; `access` is that of its program (nullptr: none). NPU_OK, or an
// error with its text.
npu_status bind_operands(const Memory& memory, const npu_command& command, const ProgramAccess* access, Operand* out,
                         std::string* error);

}  // namespace cmodel
