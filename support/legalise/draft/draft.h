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
    kOperand,  // `offset` bytes behind the refused command's operand `number`; an immediate stays what it is
    kScratch,  // `offset` bytes behind the recipe's scratch `number`
    kLiteral   // an immediate that a rule wrote: its bits are in the form's addr
  } kind = kOperand;
  uint32_t number = 0;
  int64_t offset = 0;
  Part part = Part::kWhole;  // of an immediate
  bool operator==(const Place&) const = default;
};

struct Operand {
  npu_operand form{};  // all but the address
  Place place;

  bool immediate() const { return form.flags & NPU_OPERAND_IMMEDIATE; }
  // The same elements, walked from `elements` further on.
  Operand moved(int64_t elements) const;
};

// A parameter of the refused command (`from`, which its calls bring), or a number that a rule wrote (-1).
struct Param {
  int from = -1;
  npu_scalar value{};
  Part part = Part::kWhole;  // of what the call brings
};

struct Draft {
  npu_command command{};  // kind, ranks, sizes and `u`; what points elsewhere is in the fields below
  std::vector<Operand> operands;
  std::vector<Param> params;
  std::shared_ptr<const Program> program;  // null: none
  uint64_t tried = 0;                      // which rules (their place in the table) led here

  Draft() { command.struct_size = sizeof(npu_command); }
  Draft(npu_command_kind kind, const std::vector<int64_t>& size, int inner_rank = 0);

  std::vector<int64_t> size() const { return {command.size, command.size + command.rank}; }
  int64_t points() const;  // of the index space
};

// COPY of `from` to `to` over `size`.
Draft copy(const std::vector<int64_t>& size, const Operand& to, const Operand& from);

// Strides of a dense array of this shape, row-major.
std::vector<int64_t> dense_strides(const std::vector<int64_t>& size);
// Sets the first strides; the others become 0.
void set_strides(npu_operand& form, const std::vector<int64_t>& strides);

}  // namespace npu::legalise
