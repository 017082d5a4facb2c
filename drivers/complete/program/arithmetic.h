/* Arithmetic on blocks: docs/isa.md, "Instructions". CHIP: the vector unit. */
#ifndef PROGRAM_ARITHMETIC_H
#define PROGRAM_ARITHMETIC_H

#include "program/lanes.h"
#include "program/types.h"

/* One instruction that neither touches memory nor folds. `type` is the compute type of its first argument (of the
 * choices for `where`); arguments that it does not have are NULL. `out` is none of the arguments. */
void compute(const npu_instr* in, int type, int n, lanes* restrict out, const lanes* a, const lanes* b, const lanes* c);

/* -- simple folds, sum to xor -- */

/* The instruction that combines two values. */
int fold_op(int kind);
value fold_identity(int kind, int type);
/* Combines n values into 16 lanes, value i into lane i mod 16: the order of docs/isa.md. */
void fold_values(int kind, int type, int n, lanes* into, const lanes* x);
/* The 16 lanes become one, in lane 0. */
void fold_finish(int kind, int type, lanes* lane);
/* Running values: out[i] = state with x[0] .. x[i] combined into it. */
void scan_values(int kind, int type, int n, value* state, const lanes* x, lanes* restrict out);

#endif
