// What a command reads and writes, byte for byte. Knows the contract only.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "csrc/core/observe/sanitizer/bytes.h"

namespace torch_npu::sanitizer {

// Of one operand by one instruction, or by the command itself.
struct Touch {
  uint32_t operand = 0;
  bool write = false;
  bool unsure = false;  // which bytes it is was not to be found out: at most these
  Bytes bytes;
  uint16_t instruction = NPU_NO_VALUE;  // of the program; none: the command itself
  bool is_choice = false;               // a load that the program only chooses from, with `where`
  std::optional<Bytes> used = {};       // of a choice: what is chosen and computed with, once somebody has asked
};

// Copies device memory to the host, as it is when the command begins. False: it cannot be read.
using ReadMemory = std::function<bool(npu_addr addr, uint64_t size, void* out)>;

// In the order in which a point of the index space sees them, so that a load behind a store finds what was stored.
// Addresses and masks that programs compute are computed here too, from the same indices. `program` is null where the
// command has none.
std::vector<Touch> touches_of(const npu_command& command, const npu_program_desc* program, const ReadMemory& read);

// Of a load that is a choice: the bytes that are chosen, and computed with instead of just stored. Empty where that
// cannot be found out.
Bytes used_bytes(const npu_command& command, const npu_program_desc& program, const ReadMemory& read,
                 const Touch& touch);
// What stores get from choices that nobody has written. `is_written` is asked of an element.
Bytes unwritten_results(const npu_command& command, const npu_program_desc& program, const ReadMemory& read,
                        const std::function<bool(Run)>& is_written);

}  // namespace torch_npu::sanitizer
