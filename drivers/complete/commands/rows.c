/* REDUCE and SCAN: a row after the other, its segments in order. CHIP: keep the row on the chip between segments. */
#include <string.h>

#include "commands/machine.h"
#include "commands/units.h"

/* What a row segment defines is seen at every point of later segments. */
static npu_status run_row_segment(machine* m, const segment* s) {
  machine_moved(m);
  const npu_status status = machine_segment(m, s, 1);
  const int width = m->elements < BLOCK ? (int)m->elements : BLOCK;
  for (uint16_t id = s->first; id < s->end; id++) {
    const npu_instr* in = &m->instrs[id];
    const int is_set =
        in->op != NPU_OP_CONST && in->op != NPU_OP_PARAM && in->op != NPU_OP_SIZE && in->op != NPU_OP_GET;
    if (is_set && in->dtype != NPU_DTYPE_NONE) lane_spread(&m->values[id], width, in->dtype);
  }
  return status;
}

static npu_status run_each_segment(machine* m, int number) {
  const segment* s = &m->code->segments[number];
  npu_status status = NPU_OK;
  for (int i = 0; i < m->fold_count; i++)
    if (m->folds[i].segment == number) fold_begin(&m->folds[i]);
  for (m->element = 0; m->element < m->elements && status == NPU_OK; m->element += BLOCK) {
    const int64_t left = m->elements - m->element;
    const int n = left < BLOCK ? (int)left : BLOCK;
    status = job_step(m->job);
    machine_moved(m);
    scans_recall(m, number, n);
    if (status == NPU_OK) status = machine_segment(m, s, n);
    advance(m->point, m->size, m->first, m->rank, n);
  }
  for (int i = 0; i < m->fold_count; i++)
    if (m->folds[i].segment == number) fold_end(m, &m->folds[i]);
  return status;
}

static npu_status run_rows(job* job) {
  machine m;
  const int first = job->command.rank - job->command.inner_rank;
  const int64_t rows = count_points(job->command.size, 0, first);
  if (rows == 0) return NPU_OK;
  npu_status status = machine_open(&m, job, first);
  if (status != NPU_OK) return status;
  for (int64_t row = 0; row < rows && status == NPU_OK; row++) {
    for (uint32_t s = 0; s < m.code->segment_count && status == NPU_OK; s++)
      status = m.code->segments[s].kind == NPU_SEGMENT_ROW ? run_row_segment(&m, &m.code->segments[s])
                                                           : run_each_segment(&m, (int)s);
    memset(m.point + first, 0, sizeof m.point - (size_t)first * sizeof *m.point);
    advance(m.point, m.size, 0, first, 1);
  }
  machine_close(&m);
  return status;
}

npu_status run_reduce(job* job) { return run_rows(job); }
npu_status run_scan(job* job) { return run_rows(job); }
