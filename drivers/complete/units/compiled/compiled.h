/* Programs of MAP as C: a kernel for each program and layout, made by the chip's own compiler and kept by content. What
 * is not generated runs on the interpreter: load_at, check_index, bitcast, philox, functions that math.h has not got,
 * integer powers, and operands that lie in more than one allocation. */
#ifndef UNITS_COMPILED_COMPILED_H
#define UNITS_COMPILED_COMPILED_H

#include "commands/view.h"
#include "units/compiled/kernel.h"

/* What a kernel is made for beside the program. Two equal layouts have one kernel. */
typedef struct layout {
  uint8_t rank; /* of the walk */
  uint8_t dtype[NPU_MAX_OPERANDS];
  uint8_t
      step[NPU_MAX_OPERANDS]; /* in the innermost dimension: 0, 1 (side by side), or ANY_STEP; NO_STEP: an immediate */
} layout;
enum { ANY_STEP = 2, NO_STEP = 3 };

typedef void kernel_function(const walk* w);

/* -- emit.c -- */

/* Whether all of the program can be written as C. */
int can_emit(const code* code);
/* The text of its kernel, to be freed. NULL: no host memory. */
char* emit_kernel(const code* code, const layout* layout);

/* -- compile.c -- */

/* The kernel of this text, from this process, from the cache on disk, or from the compiler. NULL: it cannot be had. */
kernel_function* compile_kernel(const char* text);

/* What stands in front of every kernel: program/half.h and kernel.h. */
extern const char kernel_prelude[];

#endif
