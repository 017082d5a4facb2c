// What a command reads and writes, byte for byte. Knows the contract only.
#pragma once
#include <functional>
#include <vector>

#include "csrc/core/sanitizer/bytes.h"

namespace torch_npu::sanitizer {

// Of one operand by one instruction, or by the command itself.
struct Touch {
  uint32_t operand = 0;
  bool write = false;
  bool unsure = false;  // which bytes it is was not to be found out: at most these
  Bytes bytes;
};

// Copies device memory to the host, as it is when the command begins. False: it cannot be read.
using ReadMemory = std::function<bool(npu_addr addr, uint64_t size, void* out)>;

// In the order in which a point of the index space sees them, so that a load behind a store finds what was stored.
// Addresses and masks that programs compute are computed here too, from the same indices. `program` is null where the
// command has none.
std::vector<Touch> touches_of(const npu_command& command, const npu_program_desc* program, const ReadMemory& read);

}  // namespace torch_npu::sanitizer
