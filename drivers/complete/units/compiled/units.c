/* Who runs which command: MAP goes to a compiled kernel if it has one, all else to the interpreter. */
#include <stdlib.h>
#include <string.h>

#include "commands/units.h"
#include "units/compiled/compiled.h"

const option unit_options[] = {
    {"compile_after", 0, 1ull << 40, 2, offsetof(npu_instance, compile_after), 0}, /* uses of a program in one layout */
    {0},
};

/* What is known of a program in one layout. */
struct kernels {
  struct kernels* next;
  layout layout;
  uint64_t uses;
  int is_tried;
  kernel_function* run;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the kernels of all programs */

static void free_kernels(struct kernels* k) {
  while (k) {
    struct kernels* next = k->next;
    free(k);
    k = next;
  }
}

/* The entry of this layout, made at its first use. The lock is held. */
static struct kernels* entry_of(code* code, const layout* l) {
  struct kernels* k = code->kernels;
  while (k && memcmp(&k->layout, l, sizeof *l) != 0) k = k->next;
  if (k || !(k = calloc(1, sizeof *k))) return k;
  k->next = code->kernels;
  k->layout = *l;
  code->kernels = k;
  code->free_kernels = free_kernels;
  return k;
}

static kernel_function* kernel_of(const job* job, const layout* l) {
  pthread_mutex_lock(&lock);
  struct kernels* k = entry_of(job->code, l);
  const int is_due = k && ++k->uses > job->device->instance.compile_after && !k->is_tried;
  if (is_due) {
    k->is_tried = 1;
    char* text = emit_kernel(job->code, l);
    k->run = text ? compile_kernel(text) : NULL;
    free(text);
  }
  kernel_function* found = k ? k->run : NULL;
  pthread_mutex_unlock(&lock);
  return found;
}

/* Opens the operands that the program uses. Returns 0 if one is not known to be live as a whole. */
static int open_views(job* job, view* views, uint8_t* is_used) {
  const npu_program_desc* program = &job->code->desc;
  for (uint32_t i = 0; i < program->instr_count; i++) {
    const npu_instr* in = &program->instrs[i];
    if ((in->op != NPU_OP_LOAD && in->op != NPU_OP_STORE) || is_used[in->imm]) continue;
    view* v = &views[in->imm];
    is_used[in->imm] = 1;
    view_open(v, job, in->imm, job->command.size, job->command.rank);
    if (!v->is_whole && !v->is_immediate) return 0;
    if (v->is_immediate) v->zero = (char*)&v->bits;
  }
  return 1;
}

/* How the kernel walks the operands: the same as the interpreter, as few dimensions as may be. */
static void plan(const job* job, view* views, const uint8_t* is_used, layout* l, walk* w) {
  const npu_program_desc* program = &job->code->desc;
  view* used[NPU_MAX_OPERANDS];
  int count = 0, rank = job->command.rank;
  memcpy(w->size, job->command.size, sizeof w->size);
  memcpy(w->shape, job->command.size, sizeof w->shape);
  for (uint32_t k = 0; k < program->operand_count; k++)
    if (is_used[k]) used[count++] = &views[k];
  if (!job->code->uses_index) rank = collapse(used, count, w->size, rank);
  if (rank == 0) w->size[rank++] = 1; /* one point */
  l->rank = (uint8_t)rank;
  for (uint32_t k = 0; k < program->operand_count; k++) {
    if (!is_used[k]) continue;
    const int64_t step = job->command.rank ? views[k].stride[rank - 1] : 0;
    w->at[k] = views[k].zero;
    for (int d = 0; d < rank; d++) w->stride[k][d] = views[k].stride[d] * views[k].width;
    l->dtype[k] = (uint8_t)views[k].dtype;
    l->step[k] = views[k].is_immediate ? NO_STEP : step == 0 || step == 1 ? (uint8_t)step : ANY_STEP;
  }
  w->params = (const scalar*)job->command.params;
}

static npu_status run_compiled(job* job) {
  view views[NPU_MAX_OPERANDS];
  uint8_t is_used[NPU_MAX_OPERANDS] = {0};
  layout l = {0};
  walk w;
  if (count_points(job->command.size, 0, job->command.rank) == 0) return NPU_OK;
  if (!can_emit(job->code) || !open_views(job, views, is_used)) return run_map(job);
  plan(job, views, is_used, &l, &w);
  kernel_function* kernel = kernel_of(job, &l);
  if (!kernel) return run_map(job);
  kernel(&w);
  return job_step(job);
}

job_function* const units[NPU_COMMAND_COUNT] = {
    [NPU_COPY] = run_copy, [NPU_MAP] = run_compiled,    [NPU_REDUCE] = run_reduce, [NPU_SCAN] = run_scan,
    [NPU_SORT] = run_sort, [NPU_SCATTER] = run_scatter, [NPU_MATMUL] = run_matmul, [NPU_CONV] = run_conv,
};
