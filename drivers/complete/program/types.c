#include "program/types.h"

int dtype_width(int dtype) {
  static const uint8_t width[NPU_DTYPE_COUNT] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};
  return dtype >= 0 && dtype < NPU_DTYPE_COUNT ? width[dtype] : 0;
}

int compute_dtype(int dtype) {
  static const uint8_t compute[NPU_DTYPE_COUNT] = {
      [NPU_BOOL] = NPU_BOOL, [NPU_U8] = NPU_I32,  [NPU_I8] = NPU_I32,  [NPU_U16] = NPU_I32, [NPU_I16] = NPU_I32,
      [NPU_U32] = NPU_I64,   [NPU_I32] = NPU_I32, [NPU_U64] = NPU_U64, [NPU_I64] = NPU_I64, [NPU_F16] = NPU_F32,
      [NPU_BF16] = NPU_F32,  [NPU_F32] = NPU_F32, [NPU_F64] = NPU_F64};
  return dtype >= 0 && dtype < NPU_DTYPE_COUNT ? compute[dtype] : NPU_DTYPE_NONE;
}

const char* dtype_name(int dtype) {
  static const char* const name[NPU_DTYPE_COUNT] = {"bool", "u8",  "i8",  "u16",  "i16", "u32", "i32",
                                                    "u64",  "i64", "f16", "bf16", "f32", "f64"};
  return dtype >= 0 && dtype < NPU_DTYPE_COUNT ? name[dtype] : "no type";
}

const char* op_name(int op) {
  static const char* const name[] = {
#define NPU_OP(name, text, args) text,
#include "npu/ops.def"
#undef NPU_OP
  };
  return op >= 0 && op < NPU_OP_COUNT ? name[op] : "unknown";
}

const char* command_name(int kind) {
  static const char* const name[NPU_COMMAND_COUNT] = {"COPY", "MAP",     "REDUCE", "SCAN",
                                                      "SORT", "SCATTER", "MATMUL", "CONV"};
  return kind >= 0 && kind < NPU_COMMAND_COUNT ? name[kind] : "command";
}

int dtype_class(int compute) {
  switch (compute) {
    case NPU_BOOL: return IS_BOOL;
    case NPU_I32:
    case NPU_I64:
    case NPU_U64: return IS_INT;
    case NPU_F32:
    case NPU_F64: return IS_FLOAT;
    default: return 0;
  }
}

int fold_members(const npu_instr* in) {
  switch (fold_kind(in)) {
    case NPU_FOLD_ARGMAX:
    case NPU_FOLD_ARGMIN: return 2;
    case NPU_FOLD_WELFORD: return 3;
    case NPU_FOLD_CUSTOM: return in->b == NPU_NO_VALUE ? 1 : in->c == NPU_NO_VALUE ? 2 : 3;
    default: return 1;
  }
}

int fold_member_type(const npu_instr* code, const npu_instr* in, int k) {
  if (k == 0 || fold_kind(in) == NPU_FOLD_WELFORD) return in->dtype;
  return code[k == 1 ? in->b : in->c].dtype;
}
