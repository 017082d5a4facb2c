#include "commands/machine.h"

#include <stdlib.h>
#include <string.h>

#include "program/arithmetic.h"

/* Memory for what is counted by instructions, operands and folds, in one piece. */
static npu_status get_memory(machine* m) {
  const uint32_t n = m->code->desc.instr_count, operands = m->job->command.operand_count;
  int folds = 0;
  for (uint32_t i = 0; i < n; i++) folds += is_fold(&m->instrs[i]);
  const size_t values = n * sizeof(lanes), places_size = operands * sizeof(places), views = operands * sizeof(view);
  const size_t fold_size = (size_t)folds * sizeof(fold);
  char* memory = aligned_alloc(64, round_up(values + places_size + views + fold_size + operands, 64));
  if (!memory) return job_fail(m->job, NPU_ERROR_MEMORY, "expected host memory for a program, got none");
  m->values = (lanes*)memory;
  m->places = (places*)(memory + values);
  m->views = (view*)(memory + values + places_size);
  m->folds = (fold*)(memory + values + places_size + views);
  m->placed = (uint8_t*)(memory + values + places_size + views + fold_size);
  memset(m->folds, 0, fold_size);
  memset(m->placed, 0, operands);
  return NPU_OK;
}

/* Values that are the same at every point; what each fold is; the memory of each operand. */
static void prepare(machine* m) {
  const npu_command* command = &m->job->command;
  const int width = m->elements < BLOCK ? (m->elements > 0 ? (int)m->elements : 1) : BLOCK;
  int segment = -1;
  for (uint32_t i = 0; i < m->code->desc.instr_count; i++) {
    const npu_instr* in = &m->instrs[i];
    lanes* out = &m->values[i];
    fold* f;
    switch (in->op) {
      case NPU_OP_SEGMENT: segment += in->imm != NPU_SEGMENT_COMBINE; break;
      case NPU_OP_CONST: broadcast(width, out, in->dtype, (npu_scalar){.u = m->code->desc.consts[in->imm]}); break;
      case NPU_OP_PARAM: broadcast(width, out, in->dtype, command->params[in->imm]); break;
      case NPU_OP_SIZE: broadcast(width, out, in->dtype, (npu_scalar){.i = command->size[in->imm]}); break;
      case NPU_OP_LOAD:
      case NPU_OP_LOAD_AT:
      case NPU_OP_STORE:
      case NPU_OP_STORE_AT: view_open(&m->views[in->imm], m->job, in->imm, command->size, command->rank); break;
      case NPU_OP_FOLD:
      case NPU_OP_SCAN:
        f = &m->folds[m->fold_count++];
        *f =
            (fold){.in = in, .id = (uint16_t)i, .segment = segment, .kind = fold_kind(in), .members = fold_members(in)};
        for (int k = 0; k < f->members; k++) f->type[k] = fold_member_type(m->instrs, in, k);
        break;
      default: break;
    }
  }
}

/* Room for what a fold keeps of every element of a row. */
static npu_status get_rows(machine* m) {
  for (int i = 0; i < m->fold_count; i++) {
    fold* f = &m->folds[i];
    const int is_scan = f->in->op == NPU_OP_SCAN;
    const int is_two_sums = !is_scan && f->kind == NPU_FOLD_WELFORD && f->in->b == NPU_NO_VALUE;
    const int kept = is_scan ? f->members : is_two_sums ? 1 : 0;
    int got = 1;
    for (int k = 0; k < kept; k++) got &= (f->kept[k] = malloc((size_t)m->elements * 8 + 8)) != NULL;
    if (is_two_sums) got &= (f->present = malloc((size_t)m->elements + 1)) != NULL;
    if (!got) return job_fail(m->job, NPU_ERROR_MEMORY, "expected host memory for a row, got none");
  }
  return NPU_OK;
}

npu_status machine_open(machine* m, job* job, int first) {
  const npu_command* command = &job->command;
  *m =
      (machine){.job = job, .code = job->code, .instrs = job->code->desc.instrs, .rank = command->rank, .first = first};
  memcpy(m->size, command->size, sizeof m->size);
  m->elements = count_points(command->size, first, command->rank);
  npu_status status = get_memory(m);
  if (status != NPU_OK) return status;
  prepare(m);
  status = get_rows(m);
  if (status != NPU_OK) machine_close(m);
  return status;
}

void machine_close(machine* m) {
  for (int i = 0; i < m->fold_count; i++) {
    for (int k = 0; k < NPU_MAX_TUPLE; k++) free(m->folds[i].kept[k]);
    free(m->folds[i].present);
  }
  free(m->values);
}

void machine_moved(machine* m) { memset(m->placed, 0, m->job->command.operand_count); }

places* machine_places(machine* m, uint32_t operand, int n) {
  if (!m->placed[operand]) {
    find_places(&m->places[operand], m->views[operand].stride, m->size, m->rank, m->point, n);
    m->placed[operand] = 1;
  }
  return &m->places[operand];
}

/* A coordinate is an offset too: that of an operand with stride 1 in one dimension. */
static void coordinates(machine* m, const npu_instr* in, int n, lanes* out) {
  int64_t stride[NPU_MAX_RANK] = {0};
  places at;
  stride[in->imm] = 1;
  find_places(&at, stride, m->size, m->rank, m->point, n);
  list_places(&at, n);
  for (int i = 0; i < n; i++)
    if (in->dtype == NPU_I64)
      out->i64[i] = at.list[i];
    else
      out->i32[i] = (int32_t)at.list[i];
}

static fold* fold_of(machine* m, const npu_instr* in) {
  for (int i = 0; i < m->fold_count; i++)
    if (m->folds[i].in == in) return &m->folds[i];
  return NULL;
}

static npu_status execute(machine* m, const npu_instr* in, int n) {
  lanes* out = &m->values[in - m->instrs];
  switch (in->op) {
    case NPU_OP_CONST:
    case NPU_OP_PARAM:
    case NPU_OP_SIZE:
    case NPU_OP_GET:
    case NPU_OP_ACC: return NPU_OK; /* there already */
    case NPU_OP_INDEX: coordinates(m, in, n, out); return NPU_OK;
    case NPU_OP_LOAD:
    case NPU_OP_LOAD_AT:
    case NPU_OP_STORE:
    case NPU_OP_STORE_AT:
    case NPU_OP_CHECK_INDEX: return access_memory(m, in, n, out);
    case NPU_OP_FOLD:
    case NPU_OP_SCAN: return fold_block(m, fold_of(m, in), n);
    case NPU_OP_ARG: lane_put(out, 0, in->dtype, m->arguments[in->imm]); return NPU_OK;
    case NPU_OP_YIELD: m->results[in->imm] = lane_get(&m->values[in->a], 0, m->instrs[in->a].dtype); return NPU_OK;
    default: break;
  }
  const uint16_t ids[] = {in->a, in->b, in->c};
  const lanes* arguments[3];
  for (int k = 0; k < 3; k++) arguments[k] = ids[k] == NPU_NO_VALUE ? NULL : &m->values[ids[k]];
  const int type = m->instrs[in->op == NPU_OP_WHERE ? in->b : in->a].dtype;
  compute(in, type, n, out, arguments[0], arguments[1], arguments[2]);
  return NPU_OK;
}

npu_status machine_segment(machine* m, const segment* s, int n) {
  for (uint16_t id = s->first; id < s->end; id++) {
    const npu_status status = execute(m, &m->instrs[id], n);
    if (status != NPU_OK) return status;
  }
  return NPU_OK;
}

npu_status machine_block(machine* m, int n) {
  npu_status status = job_step(m->job);
  machine_moved(m);
  if (status == NPU_OK) status = machine_segment(m, &m->code->segments[0], n);
  advance(m->point, m->size, 0, m->rank, n);
  return status;
}
