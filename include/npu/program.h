/* npu/program.h: the program format.
 *
 * A program is a short list of typed instructions in SSA form. MAP, REDUCE, SCAN and SCATTER run one
 * for every point of an index space; MATMUL and CONV run one on every result (the epilogue). Sizes,
 * strides, storage types and scalar arguments travel in the command (command.h), never in the program,
 * so one program serves every shape. docs/isa.md defines every instruction; this header is its index.
 */
#ifndef NPU_PROGRAM_H
#define NPU_PROGRAM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Storage types: what an operand in memory may hold. */
typedef enum npu_dtype {
  NPU_BOOL = 0, /* one byte, zero is false, anything else is true; stored as 0 or 1 */
  NPU_U8 = 1,
  NPU_I8 = 2,
  NPU_U16 = 3,
  NPU_I16 = 4,
  NPU_U32 = 5,
  NPU_I32 = 6,
  NPU_U64 = 7,
  NPU_I64 = 8,
  NPU_F16 = 9,
  NPU_BF16 = 10,
  NPU_F32 = 11,
  NPU_F64 = 12,
  NPU_DTYPE_COUNT = 13,
  NPU_DTYPE_NONE = 255
} npu_dtype;

/* Compute types: what a value inside a program may hold. A load converts storage to compute type, a
 * store converts back (docs/isa.md, "Conversions"). Every storage type is exact in one of them:
 *   BOOL -> BOOL;  U8 I8 U16 I16 I32 -> I32;  U32 I64 -> I64;  U64 -> U64;  F16 BF16 F32 -> F32;  F64 -> F64
 */
#define NPU_IS_COMPUTE_DTYPE(t) \
  ((t) == NPU_BOOL || (t) == NPU_I32 || (t) == NPU_I64 || (t) == NPU_U64 || (t) == NPU_F32 || (t) == NPU_F64)

/* Instructions. NPU_OP(enumerator, text, number of value arguments). */
typedef enum npu_op {
#define NPU_OP(name, text, args) NPU_OP_##name,
#include "npu/ops.def"
#undef NPU_OP
  NPU_OP_COUNT
} npu_op;

/* Segments: `segment` instructions cut a program into parts (docs/isa.md, "Segments").
 * The first instruction of every program is a `segment`. */
typedef enum npu_segment {
  NPU_SEGMENT_EACH = 0,   /* runs once per point of the index space */
  NPU_SEGMENT_ROW = 1,    /* runs once per row: a point of the kept dimensions (REDUCE only) */
  NPU_SEGMENT_COMBINE = 2 /* body of an NPU_FOLD_CUSTOM fold or scan: two tuples in, one out */
} npu_segment;

/* What a `fold` (REDUCE) or `scan` (SCAN) instruction accumulates. */
typedef enum npu_fold {
  NPU_FOLD_SUM = 0,
  NPU_FOLD_PROD = 1,
  NPU_FOLD_MAX = 2, /* a NaN wins */
  NPU_FOLD_MIN = 3, /* a NaN wins */
  NPU_FOLD_AND = 4,
  NPU_FOLD_OR = 5,
  NPU_FOLD_XOR = 6,
  NPU_FOLD_ARGMAX = 7,  /* a: value, b: I64 index. get 0: value, get 1: index. Ties: lowest index; no element: -1 */
  NPU_FOLD_ARGMIN = 8,  /* likewise */
  NPU_FOLD_WELFORD = 9, /* a: value; or a, b, c: mean, m2, count. get 0..2: mean, m2, count */
  NPU_FOLD_CUSTOM = 10, /* a, b, c: a tuple of 1..3 values, combined by the COMBINE segment */
  NPU_FOLD_COUNT = 11
} npu_fold;

/* Instruction flags. */
enum {
  /* check_index */
  NPU_INDEX_WRAP = 1 << 0,  /* a negative index has the size added once, before any check */
  NPU_INDEX_CHECK = 1 << 1, /* an index outside [0, size) fails the command */
  /* store_at: how the stored value meets the one in memory */
  NPU_STORE_SET = 0,
  NPU_STORE_ADD = 1,
  NPU_STORE_MUL = 2,
  NPU_STORE_MAX = 3,
  NPU_STORE_MIN = 4
};

#define NPU_NO_VALUE 0xffffu

/* One instruction. Its position in the list is the id of the value that it defines, so an argument
 * always names an earlier instruction. Unused arguments are NPU_NO_VALUE; unused fields are zero. */
typedef struct npu_instr {
  uint8_t op;    /* npu_op */
  uint8_t dtype; /* compute type of the value defined; NPU_DTYPE_NONE where none is */
  uint8_t flags; /* see above */
  uint8_t zero;  /* must be 0 */
  uint16_t a;    /* arguments: value ids */
  uint16_t b;
  uint16_t c;
  uint16_t mask; /* BOOL value: where it is false a load yields 0 and touches nothing, a store, a
                    check and a fold do nothing; NPU_NO_VALUE: always true */
  uint32_t imm;  /* operand, parameter, constant or dimension number; kind; see docs/isa.md, "Programs" */
} npu_instr;

/* Limits that every driver can rely on. The host splits or falls back above them. */
enum {
  NPU_MAX_RANK = 8,
  NPU_MAX_OPERANDS = 64,
  NPU_MAX_PARAMS = 32,
  NPU_MAX_CONSTS = 64,
  NPU_MAX_INSTRS = 512,
  NPU_MAX_LIVE = 64,
  NPU_MAX_FOLDS = 4, /* per segment */
  NPU_MAX_TUPLE = 3
};

/* A program as the host hands it to a driver. Valid during the call only; a driver copies what it
 * keeps. `name` is for logs and errors; two programs may share a name. */
typedef struct npu_program_desc {
  uint32_t struct_size; /* sizeof(npu_program_desc) of the caller */
  uint32_t instr_count;
  const npu_instr* instrs;
  const uint64_t* consts; /* bits of an int64_t for integer and BOOL values, of a double for F32 and F64 */
  uint32_t const_count;
  uint32_t operand_count; /* operands a command must bring: 1 + the highest number used */
  uint32_t param_count;   /* likewise */
  uint32_t zero;
  const char* name;
} npu_program_desc;

#ifdef __cplusplus
}
#endif
#endif /* NPU_PROGRAM_H */
