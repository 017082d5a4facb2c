// Which bytes a command reads and writes.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "npu/runtime.h"
#include "support/program/operand_shape.h"

namespace npu {

// The smallest interval of whole elements that holds all that the command touches of one operand. Elements between
// those that a strided operand names are inside; bytes outside are never touched by a right device.
struct Region {
  uint32_t operand = 0;
  uint8_t dtype = 0;
  npu_addr addr = 0;
  uint64_t size = 0;  // bytes
  bool read = false, write = false;
};

struct Extent {
  npu_addr addr = 0;
  uint64_t size = 0;  // 0: none
};
// The live allocation around an address.
using FindAllocation = std::function<Extent(npu_addr)>;

// A region per operand that memory is touched for, clipped to its allocation; none for operands outside any.
std::vector<Region> footprint(const npu_command& command, const npu_program_desc* program, const FindAllocation& find);

}  // namespace npu
