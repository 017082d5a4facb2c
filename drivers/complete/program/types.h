/* Storage types, compute types and names. */
#ifndef PROGRAM_TYPES_H
#define PROGRAM_TYPES_H

#include <stdint.h>

#include "npu/command.h"

int dtype_width(int dtype);   /* bytes of a storage type; 0: none */
int compute_dtype(int dtype); /* in which a storage type is exact; NPU_DTYPE_NONE: none */
const char* dtype_name(int dtype);
const char* op_name(int op);
const char* command_name(int kind);

/* Sets of compute types. */
enum { IS_BOOL = 1, IS_INT = 2, IS_FLOAT = 4, IS_NUMBER = IS_INT | IS_FLOAT, IS_BITS = IS_BOOL | IS_INT, IS_ANY = 7 };
int dtype_class(int compute); /* one of them; 0: no compute type */
static inline int is_float(int dtype) { return dtype >= NPU_F16 && dtype <= NPU_F64; }

/* Folds and scans. */
static inline int fold_kind(const npu_instr* in) { return (int)(in->imm & 0xff); }
static inline uint32_t fold_combine(const npu_instr* in) { return in->imm >> 8; }
static inline int is_fold(const npu_instr* in) { return in->op == NPU_OP_FOLD || in->op == NPU_OP_SCAN; }
int fold_members(const npu_instr* in); /* of the tuple that it makes */
/* The type of member k; `code` is the program that the fold belongs to. */
int fold_member_type(const npu_instr* code, const npu_instr* in, int k);

#endif
