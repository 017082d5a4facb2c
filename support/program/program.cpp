#include "support/program/program.h"

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

OpInfo make_info(int op) {
  OpInfo info{kOpText[op], kOpArgs[op], 0, Result::kSame, 0};
  auto set = [&](uint8_t types, Result result, uint8_t uses = 0) {
    info.types = types;
    info.result = result;
    info.uses = uses;
  };
  switch (op) {
    case NPU_OP_SEGMENT:
      set(0, Result::kNone, kUsesImm);
      break;
    case NPU_OP_CONST:
    case NPU_OP_PARAM:
    case NPU_OP_GET:
    case NPU_OP_ARG:
    case NPU_OP_CAST:
    case NPU_OP_BITCAST:
    case NPU_OP_INDEX:
    case NPU_OP_SIZE:
      set(0, Result::kSpecial, kUsesImm);
      break;
    case NPU_OP_ACC:
    case NPU_OP_WHERE:
      set(0, Result::kSpecial);
      break;
    case NPU_OP_LOAD:
    case NPU_OP_LOAD_AT:
      set(0, Result::kSpecial, kUsesImm | kUsesMask);
      break;
    case NPU_OP_STORE:
      set(0, Result::kNone, kUsesImm | kUsesMask);
      break;
    case NPU_OP_STORE_AT:
      set(0, Result::kNone, kUsesImm | kUsesMask | kUsesFlags);
      break;
    case NPU_OP_CHECK_INDEX:
      set(kInt, Result::kSame, kUsesMask | kUsesFlags);
      break;
    case NPU_OP_FOLD:
      set(0, Result::kSame, kUsesImm | kUsesMask);
      break;
    case NPU_OP_SCAN:
      set(0, Result::kSame, kUsesImm);
      break;
    case NPU_OP_YIELD:
      set(kAny, Result::kNone, kUsesImm);
      break;
    case NPU_OP_MIN:
    case NPU_OP_MAX:
      set(kAny, Result::kSame);
      break;
    case NPU_OP_EQ:
    case NPU_OP_NE:
    case NPU_OP_LT:
    case NPU_OP_LE:
    case NPU_OP_GT:
    case NPU_OP_GE:
      set(kAny, Result::kBool);
      break;
    case NPU_OP_ISNAN:
    case NPU_OP_ISINF:
      set(kFloat, Result::kBool);
      break;
    case NPU_OP_SIGNBIT:
      set(kNumber, Result::kBool);
      break;
    case NPU_OP_AND:
    case NPU_OP_OR:
    case NPU_OP_XOR:
    case NPU_OP_NOT:
      set(kBits, Result::kSame);
      break;
    case NPU_OP_SHL:
    case NPU_OP_SHR:
      set(kInt, Result::kSame);
      break;
    case NPU_OP_LDEXP:
      set(0, Result::kSame);
      break;
    case NPU_OP_FREXP_E:
      set(kFloat, Result::kI32);
      break;
    case NPU_OP_PHILOX:
      set(0, Result::kI64, kUsesImm);
      break;
    default:
      set(op >= NPU_OP_FLOOR ? kFloat : kNumber, Result::kSame);
  }
  return info;
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

}  // namespace npu
