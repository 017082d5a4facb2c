/* Folds and scans: docs/isa.md, "Folds" and "Order of accumulation". CHIP: the reduction unit. */
#include <string.h>

#include "commands/machine.h"
#include "program/arithmetic.h"

static int is_simple(const fold* f) { return f->kind <= NPU_FOLD_XOR; }
static int is_scan(const fold* f) { return f->in->op == NPU_OP_SCAN; }
/* A welford fold of plain values takes two sums over the row: the mean, then the squares of what is left. */
static int is_two_sums(const fold* f) { return f->present != NULL; }

void fold_begin(fold* f) {
  const value identity = fold_identity(f->kind, f->type[0]);
  f->has_any = 0;
  for (int j = 0; j < FOLD_LANES; j++) lane_put(&f->lane, j, f->type[0], identity);
  for (int k = 0; k < NPU_MAX_TUPLE; k++) f->state[k] = (value){.u64 = 0};
  if (f->kind <= NPU_FOLD_XOR || f->kind == NPU_FOLD_ARGMAX || f->kind == NPU_FOLD_ARGMIN) f->state[0] = identity;
  if (f->kind == NPU_FOLD_ARGMAX || f->kind == NPU_FOLD_ARGMIN) f->state[1].i64 = -1;
}

/* Is (a, i) a better extreme than what is held? A NaN beats every number; of equals the lower index. */
#define BEATS(LANE)                                                                   \
  do {                                                                                \
    const int new_nan = next->LANE != next->LANE, old_nan = held->LANE != held->LANE; \
    if (new_nan != old_nan) return new_nan;                                           \
    if (next->LANE > held->LANE) return f->kind == NPU_FOLD_ARGMAX;                   \
    if (next->LANE < held->LANE) return f->kind == NPU_FOLD_ARGMIN;                   \
    return next[1].i64 < held[1].i64;                                                 \
  } while (0)

static int beats(const fold* f, const value* next) {
  const value* held = f->state;
  switch (f->type[0]) {
    case NPU_BOOL: BEATS(b);
    case NPU_I32: BEATS(i32);
    case NPU_I64: BEATS(i64);
    case NPU_U64: BEATS(u64);
    case NPU_F32: BEATS(f32);
    default: BEATS(f64);
  }
}

/* One value, or another (mean, m2, count), joins the state. */
#define WELFORD(REAL, LANE)                                                                           \
  static void welford_##LANE(value* state, const value* next, int is_triple) {                        \
    const REAL mean = state[0].LANE, m2 = state[1].LANE, count = state[2].LANE;                       \
    const REAL m22 = is_triple ? next[1].LANE : 0, n2 = is_triple ? next[2].LANE : 1, n = count + n2; \
    if (is_triple && n == 0) return;                                                                  \
    const REAL d = next[0].LANE - mean;                                                               \
    if (is_triple) {                                                                                  \
      const REAL w = n2 / n;                                                                          \
      state[0].LANE = mean + d * w;                                                                   \
      state[1].LANE = (m2 + m22) + ((d * d) * count) * w;                                             \
    } else {                                                                                          \
      state[0].LANE = mean + d / n;                                                                   \
      state[1].LANE = m2 + d * (next[0].LANE - state[0].LANE);                                        \
    }                                                                                                 \
    state[2].LANE = n;                                                                                \
  }
WELFORD(float, f32)
WELFORD(double, f64)

static npu_status combine(machine* m, fold* f, const value* next) {
  memcpy(m->arguments, f->state, (size_t)f->members * sizeof(value));
  memcpy(m->arguments + f->members, next, (size_t)f->members * sizeof(value));
  const npu_status status = machine_segment(m, &m->code->combines[fold_combine(f->in)], 1);
  memcpy(f->state, m->results, (size_t)f->members * sizeof(value));
  return status;
}

/* One element of a fold that is not simple. */
static npu_status join(machine* m, fold* f, const value* next) {
  const int is_first = !f->has_any;
  f->has_any = 1;
  if (f->kind == NPU_FOLD_WELFORD) {
    const int is_triple = f->in->b != NPU_NO_VALUE;
    if (f->type[0] == NPU_F32)
      welford_f32(f->state, next, is_triple);
    else
      welford_f64(f->state, next, is_triple);
  } else if (is_first || (f->kind != NPU_FOLD_CUSTOM && beats(f, next))) {
    memcpy(f->state, next, (size_t)f->members * sizeof(value));
  } else if (f->kind == NPU_FOLD_CUSTOM) {
    return combine(m, f, next);
  }
  return NPU_OK;
}

static void keep(fold* f, int k, int64_t element, int n, const lanes* values) {
  const int width = lane_width(f->type[k]);
  memcpy(f->kept[k] + element * width, values, (size_t)(n * width));
}

static void fold_simple(machine* m, fold* f, int n) {
  const lanes* x = &m->values[f->in->a];
  lanes masked, running;
  if (f->in->mask != NPU_NO_VALUE) { /* what is left out is the identity */
    const value identity = fold_identity(f->kind, f->type[0]);
    memcpy(&masked, x, (size_t)(n * lane_width(f->type[0])));
    for (int i = 0; i < n; i++)
      if (!m->values[f->in->mask].b[i]) lane_put(&masked, i, f->type[0], identity);
    x = &masked;
  }
  if (!is_scan(f)) return fold_values(f->kind, f->type[0], n, &f->lane, x); /* a block begins with lane 0 */
  scan_values(f->kind, f->type[0], n, f->state, x, &running);
  keep(f, 0, m->element, n, &running);
}

npu_status fold_block(machine* m, fold* f, int n) {
  const uint8_t* mask = f->in->mask == NPU_NO_VALUE ? NULL : m->values[f->in->mask].b;
  if (is_simple(f)) {
    fold_simple(m, f, n);
    return NPU_OK;
  }
  if (is_two_sums(f)) {
    keep(f, 0, m->element, n, &m->values[f->in->a]);
    for (int i = 0; i < n; i++) f->present[m->element + i] = !mask || mask[i];
    return NPU_OK;
  }
  const uint16_t ids[] = {f->in->a, f->in->b, f->in->c};
  for (int i = 0; i < n; i++) {
    value next[NPU_MAX_TUPLE] = {{.u64 = 0}};
    for (int k = 0; k < f->members && ids[k] != NPU_NO_VALUE; k++)
      next[k] = lane_get(&m->values[ids[k]], i, f->type[k]);
    const npu_status status = mask && !mask[i] ? NPU_OK : join(m, f, next);
    if (status != NPU_OK) return status;
    for (int k = 0; is_scan(f) && k < f->members; k++)
      memcpy(f->kept[k] + (m->element + i) * lane_width(f->type[k]), &f->state[k], (size_t)lane_width(f->type[k]));
  }
  return NPU_OK;
}

/* Both sums in 16 lanes, in the order of `sum`. */
#define TWO_SUMS(REAL, LANE, TYPE)                               \
  static void two_sums_##LANE(fold* f, int64_t elements) {       \
    const REAL* x = (const REAL*)f->kept[0];                     \
    lanes sums = {.u64 = {0}}, squares = {.u64 = {0}};           \
    int64_t count = 0;                                           \
    for (int64_t i = 0; i < elements; i++) {                     \
      sums.LANE[i % FOLD_LANES] += f->present[i] ? x[i] : 0;     \
      count += f->present[i];                                    \
    }                                                            \
    if (count == 0) return;                                      \
    fold_finish(NPU_FOLD_SUM, TYPE, &sums);                      \
    const REAL mean = sums.LANE[0] / (REAL)count;                \
    for (int64_t i = 0; i < elements; i++) {                     \
      const REAL d = x[i] - mean;                                \
      squares.LANE[i % FOLD_LANES] += f->present[i] ? d * d : 0; \
    }                                                            \
    fold_finish(NPU_FOLD_SUM, TYPE, &squares);                   \
    f->state[0].LANE = mean;                                     \
    f->state[1].LANE = squares.LANE[0];                          \
    f->state[2].LANE = (REAL)count;                              \
  }
TWO_SUMS(float, f32, NPU_F32)
TWO_SUMS(double, f64, NPU_F64)

/* A fold is a plain value behind its segment, and so is each `get` of it. */
static void publish(machine* m, const fold* f) {
  const int width = m->elements < BLOCK ? (m->elements > 0 ? (int)m->elements : 1) : BLOCK;
  for (uint32_t i = f->id; i < m->code->desc.instr_count; i++) {
    const npu_instr* in = &m->instrs[i];
    const int member = i == f->id ? 0 : in->op == NPU_OP_GET && in->a == f->id ? (int)in->imm : -1;
    if (member < 0) continue;
    lane_put(&m->values[i], 0, f->type[member], f->state[member]);
    lane_spread(&m->values[i], width, f->type[member]);
  }
}

void fold_end(machine* m, fold* f) {
  if (is_scan(f)) return; /* its values are per element */
  if (is_simple(f)) {
    fold_finish(f->kind, f->type[0], &f->lane);
    f->state[0] = lane_get(&f->lane, 0, f->type[0]);
  } else if (is_two_sums(f)) {
    if (f->type[0] == NPU_F32)
      two_sums_f32(f, m->elements);
    else
      two_sums_f64(f, m->elements);
  }
  publish(m, f);
}

void scans_recall(machine* m, int segment, int n) {
  for (int s = 0; s < m->fold_count; s++) {
    const fold* f = &m->folds[s];
    if (!is_scan(f) || f->segment >= segment) continue;
    for (uint32_t i = f->id; i < m->code->desc.instr_count; i++) {
      const npu_instr* in = &m->instrs[i];
      const int member = i == f->id ? 0 : in->op == NPU_OP_GET && in->a == f->id ? (int)in->imm : -1;
      if (member < 0) continue;
      const int width = lane_width(f->type[member]);
      memcpy(&m->values[i], f->kept[member] + m->element * width, (size_t)(n * width));
    }
  }
}
