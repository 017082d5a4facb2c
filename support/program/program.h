// The program format for both sides of the contract: an owning container, the validator and the text form.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "npu/program.h"

namespace npu {

// A program that owns its parts. desc() borrows from it.
struct Program {
  std::string name;
  std::vector<npu_instr> instrs;
  std::vector<uint64_t> consts;
  uint32_t operand_count = 0;
  uint32_t param_count = 0;

  static Program copy_of(const npu_program_desc& desc);
  npu_program_desc desc() const;
};

// Empty if the program keeps every rule of docs/isa.md, else the first rule broken, in one line.
std::string validate(const npu_program_desc& desc);

// The text form of docs/isa.md. parse(to_text(p)) gives p back, bit for bit.
std::string to_text(const npu_program_desc& desc);

// Throws std::invalid_argument with the line and what was expected.
Program parse(std::string_view text);

// Is this value an i32 that is cast to i64 for offsets of load_at and store_at, and for nothing else? A chip that has
// no other i64 can say so and is given no other (docs/driver-guide.md).
bool is_address(const npu_program_desc& desc, uint32_t id);

// Facts about types and instructions, by number.
int dtype_size(int dtype);           // bytes; 0 for an unknown type
int compute_dtype(int dtype);        // the compute type that holds a storage type exactly
const char* dtype_name(int dtype);   // "f32"; "?" for an unknown type
const char* op_name(int op);         // "add"
const char* command_name(int kind);  // "MAP"
const char* fold_name(int fold);     // "sum"

}  // namespace npu
