/* MATMUL: both inputs as dense arrays of the accumulation type, then row after row. CHIP: the matrix engine. */
#include <stdlib.h>
#include <string.h>

#include "commands/result.h"
#include "commands/units.h"

#define T float
#define U float
#define NAME(x) f32_##x
#include "commands/matmul.inc"
#undef T
#undef U
#undef NAME

#define T double
#define U double
#define NAME(x) f64_##x
#include "commands/matmul.inc"
#undef T
#undef U
#undef NAME

#define T int32_t
#define U uint32_t
#define NAME(x) i32_##x
#include "commands/matmul.inc"
#undef T
#undef U
#undef NAME

#define T int64_t
#define U uint64_t
#define NAME(x) i64_##x
#include "commands/matmul.inc"

typedef void rows_function(void* sums, const void* a, const void* b, int64_t n, int64_t k, int rows);

static rows_function* rows_of(int type) {
  switch (type) {
    case NPU_F32: return f32_matmul_rows;
    case NPU_F64: return f64_matmul_rows;
    case NPU_I32: return i32_matmul_rows;
    default: return i64_matmul_rows;
  }
}

/* One matrix product of dense inputs. */
static npu_status multiply(job* job, result* out, const char* a, const char* b, void* sums) {
  const npu_command* c = &job->command;
  const int64_t m = c->size[c->rank - 2], n = c->size[c->rank - 1], k = c->u.matmul.k;
  const int width = lane_width(c->u.matmul.acc_dtype), most = matmul_rows(c->choice);
  rows_function* run = rows_of(c->u.matmul.acc_dtype);
  npu_status status = NPU_OK;
  for (int64_t i = 0; i < m && status == NPU_OK;) {
    const int rows = m - i >= most ? most : 1;
    run(sums, a + i * k * width, b, n, k, rows);
    status = job_step(job);
    if (status == NPU_OK) status = result_put(out, sums, rows * n);
    i += rows;
  }
  return status;
}

/* An operand with all its batches but those that it repeats: a stride of 0 reads one matrix again. */
typedef struct input {
  char* dense;
  int64_t step[NPU_MAX_RANK]; /* elements, of each batch dimension */
} input;

static npu_status read_input(job* job, uint32_t operand, int64_t rows, int64_t columns, input* out) {
  const npu_command* c = &job->command;
  int64_t size[NPU_MAX_RANK];
  const int batch = c->rank - 2;
  int64_t step = rows * columns;
  size[batch] = rows;
  size[batch + 1] = columns;
  for (int d = batch - 1; d >= 0; d--) {
    const int repeats = c->operands[operand].stride[d] == 0;
    size[d] = repeats ? 1 : c->size[d];
    out->step[d] = repeats ? 0 : step;
    step *= size[d];
  }
  out->dense = dense_operand(job, operand, size, c->rank, c->u.matmul.acc_dtype);
  return out->dense ? NPU_OK : job->failure;
}

static npu_status run_batches(job* job, result* out, const input* a, const input* b) {
  const npu_command* c = &job->command;
  const int batch = c->rank - 2, width = lane_width(c->u.matmul.acc_dtype);
  int64_t point[NPU_MAX_RANK] = {0};
  void* sums = malloc((size_t)(16 * c->size[c->rank - 1]) * 8);
  if (!sums) return job_fail(job, NPU_ERROR_MEMORY, "expected host memory for sums, got none");
  npu_status status = NPU_OK;
  for (int64_t left = count_points(c->size, 0, batch); left > 0 && status == NPU_OK; left--) {
    const int64_t from = offset_of(point, a->step, batch), with = offset_of(point, b->step, batch);
    status = multiply(job, out, a->dense + from * width, b->dense + with * width, sums);
    advance(point, c->size, 0, batch, 1);
  }
  free(sums);
  return status;
}

npu_status run_matmul(job* job) {
  const npu_command* c = &job->command;
  const int64_t m = c->size[c->rank - 2], n = c->size[c->rank - 1], k = c->u.matmul.k;
  if (count_points(c->size, 0, c->rank) == 0) return NPU_OK;
  input a = {0}, b = {0};
  result out;
  npu_status status = read_input(job, 0, m, k, &a);
  if (status == NPU_OK) status = read_input(job, 1, k, n, &b);
  if (status == NPU_OK) status = result_open(&out, job);
  if (status == NPU_OK) status = result_close(&out, run_batches(job, &out, &a, &b));
  free(a.dense);
  free(b.dense);
  return status;
}

/* Ways to run it: how many rows of the result share one pass over B. CHIP: your tile sizes. */
static const struct {
  int choice, rows;
  const char* text;
} ways[] = {{1, 4, "rows=4"}, {2, 16, "rows=16"}, {3, 1, "rows=1"}};
enum { WAYS = sizeof ways / sizeof *ways };

int matmul_rows(int choice) {
  for (int i = 0; i < WAYS; i++)
    if (ways[i].choice == choice) return ways[i].rows;
  return choice == 0 ? ways[0].rows : 0;
}

npu_status choices(npu_device* device, const npu_command* command, npu_choice* out, uint32_t capacity,
                   uint32_t* count) {
  (void)device;
  *count = command->kind == NPU_MATMUL ? WAYS : 0;
  for (uint32_t i = 0; i < *count && i < capacity; i++) {
    out[i] = (npu_choice){.id = (uint32_t)ways[i].choice};
    memcpy(out[i].text, ways[i].text, strlen(ways[i].text));
  }
  return NPU_OK;
}
