#include "support/program/program.h"

#include <algorithm>
#include <iterator>

#include "npu/command.h"
#include "support/program/op_info.h"

namespace npu {
namespace {

// In the order of npu_op; the static_assert below keeps the two in step.
constexpr const char* kOpText[] = {
#define NPU_OP(name, text, args) text,
#include "npu/ops.def"
#undef NPU_OP
};
constexpr uint8_t kOpArgs[] = {
#define NPU_OP(name, text, args) args,
#include "npu/ops.def"
#undef NPU_OP
};
static_assert(sizeof(kOpArgs) == NPU_OP_COUNT);

// What instructions first .. last have in common. The first rule that fits is taken.
struct Rule {
  uint8_t first, last;
  uint8_t types;
  Result result = Result::kSame;
  uint8_t uses = 0;
};
constexpr Rule kRules[] = {
    {NPU_OP_SEGMENT, NPU_OP_SEGMENT, 0, Result::kNone, kUsesImm},
    {NPU_OP_CONST, NPU_OP_SIZE, 0, Result::kSpecial, kUsesImm},  // const, param, index, size
    {NPU_OP_LOAD, NPU_OP_LOAD_AT, 0, Result::kSpecial, kUsesImm | kUsesMask},
    {NPU_OP_STORE, NPU_OP_STORE, 0, Result::kNone, kUsesImm | kUsesMask},
    {NPU_OP_STORE_AT, NPU_OP_STORE_AT, 0, Result::kNone, kUsesImm | kUsesMask | kUsesFlags},
    {NPU_OP_CHECK_INDEX, NPU_OP_CHECK_INDEX, kInt, Result::kSame, kUsesMask | kUsesFlags},
    {NPU_OP_FOLD, NPU_OP_FOLD, 0, Result::kSame, kUsesImm | kUsesMask},
    {NPU_OP_SCAN, NPU_OP_SCAN, 0, Result::kSame, kUsesImm},
    {NPU_OP_ACC, NPU_OP_ACC, 0, Result::kSpecial},
    {NPU_OP_YIELD, NPU_OP_YIELD, kAny, Result::kNone, kUsesImm},
    {NPU_OP_GET, NPU_OP_BITCAST, 0, Result::kSpecial, kUsesImm},  // and arg, cast
    {NPU_OP_MIN, NPU_OP_MAX, kAny},
    {NPU_OP_EQ, NPU_OP_GE, kAny, Result::kBool},
    {NPU_OP_ISNAN, NPU_OP_ISINF, kFloat, Result::kBool},
    {NPU_OP_SIGNBIT, NPU_OP_SIGNBIT, kNumber, Result::kBool},
    {NPU_OP_AND, NPU_OP_NOT, kBits},
    {NPU_OP_SHL, NPU_OP_SHR, kInt},
    {NPU_OP_WHERE, NPU_OP_WHERE, 0, Result::kSpecial},
    {NPU_OP_LDEXP, NPU_OP_LDEXP, 0},
    {NPU_OP_FREXP_E, NPU_OP_FREXP_E, kFloat, Result::kI32},
    {NPU_OP_PHILOX, NPU_OP_PHILOX, 0, Result::kI64, kUsesImm},
    {NPU_OP_FLOOR, NPU_OP_COUNT - 1, kFloat},
    {NPU_OP_SEGMENT, NPU_OP_COUNT - 1, kNumber},
};

OpInfo make_info(int op) {
  const Rule* rule = std::find_if(std::begin(kRules), std::end(kRules),
                                  [&](const Rule& one) { return op >= one.first && op <= one.last; });
  return {kOpText[op], kOpArgs[op], rule->types, rule->result, rule->uses};
}

struct OpTable {
  OpInfo info[NPU_OP_COUNT];
  OpTable() {
    for (int op = 0; op < NPU_OP_COUNT; ++op) info[op] = make_info(op);
  }
};

}  // namespace

const OpInfo& op_info(int op) {
  static const OpTable table;
  return table.info[op];
}

uint8_t dtype_class(int compute) {
  switch (compute) {
    case NPU_BOOL:
      return kBool;
    case NPU_I32:
    case NPU_I64:
    case NPU_U64:
      return kInt;
    case NPU_F32:
    case NPU_F64:
      return kFloat;
    default:
      return 0;
  }
}

int tuple_size(const npu_instr& instr) {
  switch (fold_kind(instr)) {
    case NPU_FOLD_ARGMAX:
    case NPU_FOLD_ARGMIN:
      return 2;
    case NPU_FOLD_WELFORD:
      return 3;
    case NPU_FOLD_CUSTOM:
      return instr.b == NPU_NO_VALUE ? 1 : instr.c == NPU_NO_VALUE ? 2 : 3;
    default:
      return 1;
  }
}

Program Program::copy_of(const npu_program_desc& desc) {
  Program program;
  if (desc.name) program.name = desc.name;
  if (desc.instr_count) program.instrs.assign(desc.instrs, desc.instrs + desc.instr_count);
  if (desc.const_count) program.consts.assign(desc.consts, desc.consts + desc.const_count);
  program.operand_count = desc.operand_count;
  program.param_count = desc.param_count;
  return program;
}

npu_program_desc Program::desc() const {
  npu_program_desc desc{};
  desc.struct_size = sizeof(desc);
  desc.instr_count = static_cast<uint32_t>(instrs.size());
  desc.instrs = instrs.data();
  desc.consts = consts.data();
  desc.const_count = static_cast<uint32_t>(consts.size());
  desc.operand_count = operand_count;
  desc.param_count = param_count;
  desc.name = name.c_str();
  return desc;
}

int dtype_size(int dtype) {
  static constexpr int kSize[NPU_DTYPE_COUNT] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};
  return dtype >= 0 && dtype < NPU_DTYPE_COUNT ? kSize[dtype] : 0;
}

int compute_dtype(int dtype) {
  switch (dtype) {
    case NPU_BOOL:
      return NPU_BOOL;
    case NPU_U8:
    case NPU_I8:
    case NPU_U16:
    case NPU_I16:
    case NPU_I32:
      return NPU_I32;
    case NPU_U32:
    case NPU_I64:
      return NPU_I64;
    case NPU_U64:
      return NPU_U64;
    case NPU_F16:
    case NPU_BF16:
    case NPU_F32:
      return NPU_F32;
    case NPU_F64:
      return NPU_F64;
    default:
      return NPU_DTYPE_NONE;
  }
}

const char* dtype_name(int dtype) {
  static constexpr const char* kName[NPU_DTYPE_COUNT] = {"bool", "u8",  "i8",  "u16",  "i16", "u32", "i32",
                                                         "u64",  "i64", "f16", "bf16", "f32", "f64"};
  return dtype >= 0 && dtype < NPU_DTYPE_COUNT ? kName[dtype] : "?";
}

const char* op_name(int op) {
  return op >= 0 && op < NPU_OP_COUNT ? kOpText[op] : "?";
}

const char* command_name(int kind) {
  static constexpr const char* kName[NPU_COMMAND_COUNT] = {"COPY", "MAP",     "REDUCE", "SCAN",
                                                           "SORT", "SCATTER", "MATMUL", "CONV"};
  return kind >= 0 && kind < NPU_COMMAND_COUNT ? kName[kind] : "?";
}

const char* fold_name(int fold) {
  static constexpr const char* kName[NPU_FOLD_COUNT] = {"sum", "prod",   "max",    "min",     "and",   "or",
                                                        "xor", "argmax", "argmin", "welford", "custom"};
  return fold >= 0 && fold < NPU_FOLD_COUNT ? kName[fold] : "?";
}

bool is_address(const npu_program_desc& desc, uint32_t id) {
  const npu_instr& cast = desc.instrs[id];
  if (cast.op != NPU_OP_CAST || cast.dtype != NPU_I64 || cast.imm != NPU_DTYPE_NONE) return false;
  if (desc.instrs[cast.a].dtype != NPU_I32) return false;
  for (uint32_t k = id + 1; k < desc.instr_count; ++k) {
    const npu_instr& in = desc.instrs[k];
    const bool load = in.op == NPU_OP_LOAD_AT, store = in.op == NPU_OP_STORE_AT;
    if ((in.a == id && !load) || (in.b == id && !store) || in.c == id) return false;
  }
  return true;
}

}  // namespace npu
