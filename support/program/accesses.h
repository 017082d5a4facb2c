// What a command touches, as far as its form tells: which operands it reads and writes, at which points, and which
// instruction does. Who wants bytes (footprints, the sanitizer, the host executor, the compiler) begins here.
#pragma once
#include <cstdint>
#include <vector>

#include "npu/command.h"

namespace npu {

struct Access {
  uint32_t operand = 0;
  bool write = false;
  bool computed = false;  // load_at, store_at: the program says where, within the operand's limit if it has one
  bool masked = false;
  bool meets = false;                   // a write whose result depends on what is there: it reads, too
  int rank = 0;                         // it happens at the points of the first `rank` dimensions of operand_shape
  uint16_t instruction = NPU_NO_VALUE;  // none: the command itself
};

// In the order in which a point of the index space sees them. `program` is null where the command has none.
std::vector<Access> accesses_of(const npu_command& command, const npu_program_desc* program);

// How many dimensions have the points at which a segment of this kind runs.
inline int segment_rank(const npu_command& command, uint32_t segment) {
  return command.rank - (segment == NPU_SEGMENT_ROW ? command.inner_rank : 0);
}

}  // namespace npu
