// What the validator, the text form and the reference need to know about each instruction, in one table.
#pragma once
#include <cstdint>

#include "npu/program.h"

namespace npu {

// Sets of compute types an instruction may take.
enum : uint8_t { kBool = 1, kInt = 2, kFloat = 4, kNumber = kInt | kFloat, kBits = kBool | kInt, kAny = 7 };

enum class Result : uint8_t {
  kSame,    // the type of the first argument
  kBool,    // BOOL
  kI32,     // I32
  kI64,     // I64
  kNone,    // defines no value
  kSpecial  // the instruction says (load, const, cast, where, get, ...)
};

// Which parts of npu_instr beside the arguments an instruction uses.
enum : uint8_t { kUsesImm = 1, kUsesFlags = 2, kUsesMask = 4 };

struct OpInfo {
  const char* text;
  uint8_t args;
  uint8_t types;  // of the arguments; 0 where the validator has a rule of its own
  Result result;
  uint8_t uses;
};

const OpInfo& op_info(int op);     // op < NPU_OP_COUNT
uint8_t dtype_class(int compute);  // kBool, kInt or kFloat; 0 if not a compute type
inline bool is_float(int dtype) {
  return dtype >= NPU_F16 && dtype <= NPU_F64;
}

// Number of members of the tuple that a fold or scan instruction makes.
int tuple_size(const npu_instr& instr);
inline int fold_kind(const npu_instr& instr) {
  return static_cast<int>(instr.imm & 0xff);
}
inline int fold_combine(const npu_instr& instr) {
  return static_cast<int>(instr.imm >> 8);
}

}  // namespace npu
