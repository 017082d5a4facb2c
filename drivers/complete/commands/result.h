/* The result of a product: complete sums in row-major order, which the epilogue or operand 2 takes. */
#ifndef COMMANDS_RESULT_H
#define COMMANDS_RESULT_H

#include "commands/machine.h"

typedef struct result {
  job* job;
  int type; /* of the sums: acc_dtype */
  int count;
  lanes sums; /* those that came since the last block */
  int has_program;
  machine machine; /* of the epilogue, or only its place in the result */
  view to;         /* without an epilogue: operand 2 */
} result;

npu_status result_open(result* r, job* job);
/* The next n sums. */
npu_status result_put(result* r, const void* sums, int64_t n);
/* Ends it, `status` being that of the work so far. */
npu_status result_close(result* r, npu_status status);

/* An operand as a dense array of the accumulation type, in row-major order of `size`. NULL: the job has failed. */
void* dense_operand(job* job, uint32_t operand, const int64_t* size, int rank, int type);

#endif
