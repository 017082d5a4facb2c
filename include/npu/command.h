/* npu/command.h: the eight commands.
 *
 * Every command walks an index space: `rank` dimensions of `size[0] .. size[rank - 1]`, dimension 0
 * outermost, visited in row-major order wherever the order can be seen in the result. An operand is a
 * device address plus one stride per dimension, so broadcasting, transposing and flipping cost
 * nothing. docs/isa.md defines each command; this header is its index.
 */
#ifndef NPU_COMMAND_H
#define NPU_COMMAND_H

#include "npu/program.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An address in one device's memory. Never a host pointer. 0 is never a valid address. */
typedef uint64_t npu_addr;

typedef enum npu_command_kind {
  NPU_COPY = 0,    /* operand 0 <- operand 1, converting types. An immediate operand 1 is a fill */
  NPU_MAP = 1,     /* the program at every point */
  NPU_REDUCE = 2,  /* the program, folding over the last `inner_rank` dimensions */
  NPU_SCAN = 3,    /* the program, scanning along the last dimension (inner_rank is 1) */
  NPU_SORT = 4,    /* sorts along the last dimension (inner_rank is 1); see npu_sort */
  NPU_SCATTER = 5, /* a MAP whose program has store_at */
  NPU_MATMUL = 6,  /* see npu_matmul */
  NPU_CONV = 7,    /* see npu_conv */
  NPU_COMMAND_COUNT = 8
} npu_command_kind;

enum {
  NPU_OPERAND_IMMEDIATE = 1 << 0 /* `addr` holds the value's bits in `dtype`, low bytes first; strides are 0 */
};

/* One operand: where element (0, 0, ..., 0) of the index space lies, and how far one step along each
 * dimension moves, in elements of `dtype` (0 broadcasts, negative walks backwards). */
typedef struct npu_operand {
  npu_addr addr;
  int64_t limit; /* load_at and store_at stay in [addr, addr + limit elements); 0: no such promise */
  uint8_t dtype; /* npu_dtype: the storage type */
  uint8_t flags; /* NPU_OPERAND_* */
  uint16_t zero0;
  uint32_t zero1;
  int64_t stride[NPU_MAX_RANK];
} npu_operand;

/* A scalar argument: bits of an int64_t where a program reads it as BOOL or integer, of a double where
 * it reads it as F32 or F64. */
typedef union npu_scalar {
  int64_t i;
  uint64_t u;
  double f;
} npu_scalar;

/* MATMUL: for every batch, acc[m, n] = sum over k of A[m, k] * B[k, n], accumulated in `acc_dtype`.
 * Index space: batch dimensions..., m, n.
 * Operand 0 is A: strides of the batch dimensions..., m, k. Operand 1 is B: ..., k, n.
 * Without a program the result is stored to operand 2. With one (the epilogue), the program runs at
 * every point, reads the result with `acc`, and stores it itself; operand numbers in the program are
 * those of the command. */
typedef struct npu_matmul {
  int64_t k;
  uint8_t acc_dtype; /* F32, F64, I32 or I64 */
  uint8_t flags;     /* NPU_MATMUL_* */
  uint8_t zero[6];
} npu_matmul;

enum {
  NPU_MATMUL_REDUCED = 1 << 0 /* F32 inputs may be rounded to BF16 first. Applies to CONV too */
};

typedef enum npu_conv_mode {
  NPU_CONV_FORWARD = 0,    /* result: output.       operand 0: input,           operand 1: weight */
  NPU_CONV_GRAD_INPUT = 1, /* result: input grad.   operand 0: output gradient, operand 1: weight */
  NPU_CONV_GRAD_WEIGHT = 2 /* result: weight grad.  operand 0: output gradient, operand 1: input */
} npu_conv_mode;

/* CONV: input [batch, in_channels, spatial...], weight [out_channels, in_channels / groups, kernel...],
 * output [batch, out_channels, spatial...]; cross-correlation as torch.nn.functional.conv*d.
 * rank is 2 + spatial_rank; `size` is the shape of the result; operand strides follow these shapes.
 * A transposed convolution is GRAD_INPUT. Result and epilogue as in MATMUL. */
typedef struct npu_conv {
  uint32_t mode;         /* npu_conv_mode */
  uint32_t spatial_rank; /* 1 to 3 */
  int64_t batch, in_channels, out_channels, groups;
  int64_t in_size[3], out_size[3], kernel[3];
  int64_t stride[3], padding[3], dilation[3];
  uint8_t acc_dtype;
  uint8_t flags; /* NPU_MATMUL_REDUCED */
  uint8_t zero[6];
} npu_conv;

/* SORT: along the last dimension of n elements.
 * Operand 0: keys. Operand 1: payload, an integer type, or an immediate: then the payload is 0 .. n - 1.
 * Operand 2: sorted keys. Operand 3: sorted payload. Only the first `count` results of each row are
 * written. A NaN is greater than every number. */
typedef struct npu_sort {
  int64_t count;
  uint8_t descending;
  uint8_t stable; /* equal keys keep their order */
  uint8_t zero[6];
} npu_sort;

/* A command as the host hands it to a driver. It and all it points to are valid during the call only;
 * a driver copies what it keeps. Operands may alias only if they are the same elements in the same
 * order (in place), or are all read. Fields that a kind does not use are zero. */
typedef struct npu_command {
  uint32_t struct_size; /* sizeof(npu_command) of the caller */
  uint8_t kind;         /* npu_command_kind */
  uint8_t rank;
  uint8_t inner_rank; /* REDUCE: dimensions folded; SCAN, SORT: 1; else 0 */
  uint8_t choice;     /* which of the driver's ways to run it (`choices` in runtime.h); 0: the driver decides */
  uint32_t operand_count;
  uint32_t param_count;
  int64_t size[NPU_MAX_RANK];
  const npu_operand* operands;
  const npu_scalar* params;
  struct npu_program* program; /* made by this device's program_create; NULL where there is none */
  const char* label;           /* the op that asked, for errors and profiles; a string that lives forever */
  union {
    npu_matmul matmul;
    npu_conv conv;
    npu_sort sort;
  } u;
} npu_command;

#ifdef __cplusplus
}
#endif
#endif /* NPU_COMMAND_H */
