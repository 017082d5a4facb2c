/* The instructions that touch memory or may fail: load, load_at, store, store_at, check_index. CHIP: the load and store
 * units. Where a mask is false no address is formed, checked or touched. */
#include "commands/machine.h"
#include "program/arithmetic.h"

static const uint8_t* mask_of(const machine* m, const npu_instr* in) {
  return in->mask == NPU_NO_VALUE ? NULL : m->values[in->mask].b;
}

static void load_immediate(const view* v, int n, const uint8_t* mask, int type, lanes* out) {
  load_lanes(1, out, type, v->dtype, (const char*)&v->bits, NULL);
  lane_spread(out, n, type);
  for (int i = 0; mask && i < n; i++)
    if (!mask[i]) lane_put(out, i, type, (value){.u64 = 0});
}

static npu_status load(machine* m, const npu_instr* in, int n, lanes* out) {
  view* v = &m->views[in->imm];
  const uint8_t* mask = mask_of(m, in);
  if (v->is_immediate) {
    load_immediate(v, n, mask, in->dtype, out);
    return NPU_OK;
  }
  places* p = machine_places(m, in->imm, n);
  if (v->is_whole && !mask) {
    load_lanes(n, out, in->dtype, v->dtype, place_start(v, p), place_list(p));
    return NPU_OK;
  }
  list_places(p, n);
  return load_listed(m->job, v, n, p->list, mask, in->dtype, out);
}

static npu_status store(machine* m, const npu_instr* in, int n) {
  view* v = &m->views[in->imm];
  const uint8_t* mask = mask_of(m, in);
  const int type = m->instrs[in->a].dtype;
  places* p = machine_places(m, in->imm, n);
  if (v->is_whole && !mask) {
    store_lanes(n, &m->values[in->a], type, v->dtype, place_start(v, p), place_list(p));
    return NPU_OK;
  }
  list_places(p, n);
  return store_listed(m->job, v, n, p->list, mask, type, &m->values[in->a]);
}

/* The offsets of load_at and store_at: the point's and the computed one, inside the operand's limit. */
static npu_status computed_places(machine* m, const npu_instr* in, uint16_t offset, int n, int64_t* out) {
  const view* v = &m->views[in->imm];
  const uint8_t* mask = mask_of(m, in);
  places* p = machine_places(m, in->imm, n);
  list_places(p, n);
  for (int i = 0; i < n; i++) {
    out[i] = (int64_t)((uint64_t)p->list[i] + m->values[offset].u64[i]);
    if (v->limit && (out[i] < 0 || out[i] >= v->limit) && (!mask || mask[i]))
      return job_fail(m->job, NPU_ERROR_ADDRESS,
                      "expected an offset of 0 to %" PRId64 " in operand %u at 0x%" PRIx64 ", got %" PRId64,
                      v->limit - 1, in->imm, v->addr, out[i]);
  }
  return NPU_OK;
}

static npu_status load_at(machine* m, const npu_instr* in, int n, lanes* out) {
  int64_t list[BLOCK];
  const npu_status status = computed_places(m, in, in->a, n, list);
  if (status != NPU_OK) return status;
  return load_listed(m->job, &m->views[in->imm], n, list, mask_of(m, in), in->dtype, out);
}

/* Point after point, because several may store to one element. */
static npu_status store_at(machine* m, const npu_instr* in, int n) {
  static const uint8_t op[] = {0, NPU_OP_ADD, NPU_OP_MUL, NPU_OP_MAX, NPU_OP_MIN};
  view* v = &m->views[in->imm];
  const uint8_t* mask = mask_of(m, in);
  const int type = m->instrs[in->a].dtype;
  int64_t list[BLOCK];
  const npu_status status = computed_places(m, in, in->b, n, list);
  if (status != NPU_OK) return status;
  if (in->flags == NPU_STORE_SET) return store_listed(m->job, v, n, list, mask, type, &m->values[in->a]);
  const npu_instr combine = {.op = op[in->flags], .dtype = (uint8_t)type};
  for (int i = 0; i < n; i++) {
    if (mask && !mask[i]) continue;
    char* at = view_at(v, m->job, list[i]);
    if (!at) return NPU_ERROR_ADDRESS;
    lanes have, next, both;
    load_lanes(1, &have, type, v->dtype, at, NULL);
    lane_put(&next, 0, type, lane_get(&m->values[in->a], i, type));
    compute(&combine, type, 1, &both, &have, &next, NULL);
    store_lanes(1, &both, type, v->dtype, at, NULL);
  }
  return NPU_OK;
}

static int64_t integer_at(const machine* m, uint16_t id, int i) {
  return m->instrs[id].dtype == NPU_I32 ? m->values[id].i32[i] : m->values[id].i64[i];
}

static npu_status check_index(machine* m, const npu_instr* in, int n, lanes* out) {
  const uint8_t* mask = mask_of(m, in);
  for (int i = 0; i < n; i++) {
    const int64_t given = integer_at(m, in->a, i), size = integer_at(m, in->b, i);
    const int counts = !mask || mask[i];
    int64_t index = given;
    if (counts && (in->flags & NPU_INDEX_WRAP) && given < 0) index = (int64_t)((uint64_t)given + (uint64_t)size);
    if (in->dtype == NPU_I32) index = (int32_t)index;
    if (counts && (in->flags & NPU_INDEX_CHECK) && (index < 0 || index >= size))
      return job_fail(m->job, NPU_ERROR_INDEX, "index %" PRId64 " is out of bounds for dimension with size %" PRId64,
                      given, size);
    lane_put(out, i, in->dtype, (value){.i64 = index});
  }
  return NPU_OK;
}

npu_status access_memory(machine* m, const npu_instr* in, int n, lanes* out) {
  switch (in->op) {
    case NPU_OP_LOAD: return load(m, in, n, out);
    case NPU_OP_LOAD_AT: return load_at(m, in, n, out);
    case NPU_OP_STORE: return store(m, in, n);
    case NPU_OP_STORE_AT: return store_at(m, in, n);
    default: return check_index(m, in, n, out);
  }
}
