// A command in the making: what a rule reads, and what it writes. Addresses are not known here: an operand lies in one
// of the refused command's operands, or in scratch memory that a recipe brings, so that a recipe serves every later
// command of its signature.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "npu/command.h"
#include "support/program/program.h"

namespace npu::legalise {

// Of 64 bits that a call brings, an immediate or a parameter: all of them, or one word as an i32.
enum class Part : uint8_t { kWhole, kLow, kHigh };
uint64_t part_of(uint64_t bits, Part part);

// Where an operand's first element lies.
struct Place {
  enum Kind : uint8_t {
    kOperand,  // `offset` bytes behind the refused command's operand `number`, or into the bits of an immediate
    kScratch,  // `offset` bytes behind the recipe's scratch `number`
    kLiteral   // an immediate that a rule wrote: its bits are in the form's addr
  } kind = kOperand;
  uint32_t number = 0;
  int64_t offset = 0;
  Part part = Part::kWhole;  // of an immediate
  bool operator==(const Place&) const = default;
};

// Addresses are looked at modulo this, in bytes: allocations are multiples of it (`alignment` in npu/runtime.h).
constexpr int64_t kAlignment = 64;

struct Operand {
  npu_operand form{};  // all but the address
  Place place;
  uint8_t skew = 0;  // of the address, modulo kAlignment. Rules ask Script::skew for it

  bool immediate() const { return form.flags & NPU_OPERAND_IMMEDIATE; }
  // The same elements, walked from `elements` further on.
  Operand moved(int64_t elements) const;
  // The same strides, from so many bytes further on, in memory or in the bits of an immediate.
  Operand moved_bytes(int64_t bytes) const;
};

// A parameter of the refused command (`from`, which its calls bring), or a number that a rule wrote (-1).
struct Param {
  int from = -1;
  npu_scalar value{};
  bool known = false;  // `value` is that of the call, too: it says where something lies, so that a recipe depends on it
  Part part = Part::kWhole;  // of what the call brings
};

struct Draft {
  npu_command command{};  // kind, ranks, sizes and `u`; what points elsewhere is in the fields below
  std::vector<Operand> operands;
  std::vector<Param> params;
  std::shared_ptr<const Program> program;  // null: none
  uint64_t tried = 0;                      // which rules (their place in the table) led here
  bool plain = false;                      // for the driver itself: a rule that made it anew would make the work twice

  Draft() { command.struct_size = sizeof(npu_command); }
  Draft(npu_command_kind kind, const std::vector<int64_t>& size, int inner_rank = 0);

  std::vector<int64_t> size() const { return {command.size, command.size + command.rank}; }
  int64_t points() const;  // of the index space
};

// A command as a draft of itself: its operands lie in its operands.
Draft draft_of(const npu_command& command, std::shared_ptr<const Program> program);
// For each operand the first one at its address.
std::vector<uint32_t> aliases_of(const npu_command& command);

// A draft with addresses, as it is given to a driver; the program is left to who gives it.
struct Bound {
  // `refused` is the command whose operands, parameters and label the draft speaks of, `scratch` where each scratch
  // lies.
  Bound(const Draft& draft, const npu_command& refused, const std::vector<npu_addr>& scratch);
  Bound(const Bound&) = delete;

  npu_command command;
  npu_operand operands[NPU_MAX_OPERANDS];
  npu_scalar params[NPU_MAX_PARAMS];
};

// COPY of `from` to `to` over `size`.
Draft copy(const std::vector<int64_t>& size, const Operand& to, const Operand& from);

// Strides of a dense array of this shape, row-major.
std::vector<int64_t> dense_strides(const std::vector<int64_t>& size);
// Sets the first strides; the others become 0.
void set_strides(npu_operand& form, const std::vector<int64_t>& strides);

}  // namespace npu::legalise
