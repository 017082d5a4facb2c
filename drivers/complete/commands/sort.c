/* SORT: each row by a stable merge sort of numbers that order as its keys do. CHIP: the sorting network. */
#include <stdlib.h>
#include <string.h>

#include "commands/units.h"
#include "commands/view.h"

typedef struct entry {
  uint64_t rank;      /* orders as the key does */
  value key, payload; /* held, because results may lie where the keys lie */
} entry;

/* IEEE bits order as integers once negative numbers are turned around. The zeros are equal; a NaN is above all. */
static uint64_t float_rank(double key) {
  uint64_t bits;
  if (key != key) return UINT64_MAX;
  if (key == 0) key = 0;
  memcpy(&bits, &key, sizeof bits);
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}

static uint64_t key_rank(value key, int type) {
  switch (type) {
    case NPU_BOOL: return key.b;
    case NPU_I32: return (uint64_t)(int64_t)key.i32 ^ 1ull << 63;
    case NPU_I64: return key.u64 ^ 1ull << 63;
    case NPU_U64: return key.u64;
    case NPU_F32: return float_rank(key.f32);
    default: return float_rank(key.f64);
  }
}

/* Runs of `width` entries become runs of twice as many. */
static void merge_runs(const entry* from, entry* to, int64_t n, int64_t width) {
  for (int64_t start = 0; start < n; start += 2 * width) {
    int64_t a = start, b = start + width < n ? start + width : n;
    const int64_t middle = b, end = b + width < n ? b + width : n;
    for (int64_t out = start; out < end; out++)
      to[out] = a < middle && (b == end || from[a].rank <= from[b].rank) ? from[a++] : from[b++];
  }
}

/* Returns the one of the two that holds the sorted entries. */
static entry* merge_sort(entry* entries, entry* other, int64_t n) {
  for (int64_t width = 1; width < n; width *= 2) {
    merge_runs(entries, other, n, width);
    entry* swapped = entries;
    entries = other;
    other = swapped;
  }
  return entries;
}

/* One row: where it begins in each operand. */
typedef struct row {
  job* job;
  view v[4];
  int64_t base[4], step[4];
} row;

/* Element i of operand `operand`, in its compute type. Returns whether it is there. */
static int read_element(row* r, int operand, int64_t i, value* out) {
  view* v = &r->v[operand];
  lanes one;
  const char* at =
      v->is_immediate ? (const char*)&v->bits : view_at(v, r->job, r->base[operand] + i * r->step[operand]);
  if (!at) return 0;
  widen(1, &one, v->dtype, at, NULL);
  *out = lane_get(&one, 0, compute_dtype(v->dtype));
  return 1;
}

static int write_element(row* r, int operand, int64_t i, value from, int type) {
  view* v = &r->v[operand];
  lanes one;
  char* at = view_at(v, r->job, r->base[operand] + i * r->step[operand]);
  if (!at) return 0;
  lane_put(&one, 0, type, from);
  store_lanes(1, &one, type, v->dtype, at, NULL);
  return 1;
}

static npu_status sort_row(row* r, entry* entries, entry* other, int64_t n, int64_t count) {
  const int counted = r->v[1].is_immediate, type = compute_dtype(r->v[0].dtype);
  const int payload = counted ? NPU_I64 : compute_dtype(r->v[1].dtype);
  for (int64_t i = 0; i < n; i++) {
    entry* e = &entries[i];
    e->payload.i64 = i;
    if (!read_element(r, 0, i, &e->key) || (!counted && !read_element(r, 1, i, &e->payload))) return r->job->failure;
    e->rank = key_rank(e->key, type);
    if (r->job->command.u.sort.descending) e->rank = ~e->rank; /* equal keys keep their order both ways */
  }
  const entry* sorted = merge_sort(entries, other, n);
  for (int64_t i = 0; i < count; i++)
    if (!write_element(r, 2, i, sorted[i].key, type) || !write_element(r, 3, i, sorted[i].payload, payload))
      return r->job->failure;
  return job_step(r->job);
}

npu_status run_sort(job* job) {
  const npu_command* c = &job->command;
  const int last = c->rank - 1;
  const int64_t n = c->size[last], count = c->u.sort.count, rows = count_points(c->size, 0, last);
  int64_t point[NPU_MAX_RANK] = {0}, written[NPU_MAX_RANK];
  if (rows == 0 || n == 0) return NPU_OK;
  memcpy(written, c->size, sizeof written);
  written[last] = count;
  row r = {.job = job};
  for (uint32_t i = 0; i < 4; i++) view_open(&r.v[i], job, i, i < 2 ? c->size : written, c->rank);
  entry* memory = malloc((size_t)n * 2 * sizeof *memory);
  if (!memory) return job_fail(job, NPU_ERROR_MEMORY, "expected host memory for a row, got none");
  npu_status status = NPU_OK;
  for (int64_t k = 0; k < rows && status == NPU_OK; k++) {
    for (int i = 0; i < 4; i++) {
      r.base[i] = offset_of(point, r.v[i].stride, last);
      r.step[i] = r.v[i].stride[last];
    }
    status = sort_row(&r, memory, memory + n, n, count);
    advance(point, c->size, 0, last, 1);
  }
  free(memory);
  return status;
}
