#include "commands/view.h"

#include <string.h>

/* Remembers live memory around the operand, as offsets in elements. */
static void set_window(view* v, const extent* e) {
  const __int128 width = v->width, below = (__int128)e->addr - v->addr, above = below + e->size - width;
  const __int128 low = below >= 0 ? (below + width - 1) / width : -(-below / width);
  const __int128 high = above >= 0 ? above / width : -((-above + width - 1) / width);
  if (low > high || low < INT64_MIN / 16 || high > INT64_MAX / 16) return;
  v->low = (int64_t)low;
  v->high = (int64_t)high;
  v->zero = (char*)((uintptr_t)e->host + (uintptr_t)(v->addr - e->addr));
}

/* The lowest and the highest offset of a space. Returns 0 if one is beyond 64 bits. */
static int reach(const view* v, const int64_t* size, int rank, int64_t* low, int64_t* high) {
  *low = *high = 0;
  for (int d = 0; d < rank; d++) {
    int64_t far;
    if (__builtin_mul_overflow(size[d] > 0 ? size[d] - 1 : 0, v->stride[d], &far)) return 0;
    int64_t* end = far < 0 ? low : high;
    if (__builtin_add_overflow(*end, far, end)) return 0;
  }
  return *low > INT64_MIN / 16 && *high < INT64_MAX / 16;
}

void view_open(view* v, job* job, uint32_t operand, const int64_t* size, int rank) {
  const npu_operand* o = &job->command.operands[operand];
  *v = (view){.number = operand, .addr = o->addr, .limit = o->limit, .dtype = o->dtype, .low = 0, .high = -1};
  v->width = dtype_width(o->dtype);
  v->is_immediate = (o->flags & NPU_OPERAND_IMMEDIATE) != 0;
  v->bits = o->addr;
  memcpy(v->stride, o->stride, sizeof v->stride);
  int64_t low, high;
  extent found;
  if (v->is_immediate || !reach(v, size, rank, &low, &high)) return;
  const uint64_t bytes = (uint64_t)(high - low + 1) * (uint64_t)v->width;
  if (!memory_find(job->device, o->addr + (uint64_t)low * (uint64_t)v->width, bytes, &found)) return;
  set_window(v, &found);
  v->is_whole = low >= v->low && high <= v->high;
}

char* view_at(view* v, job* job, int64_t offset) {
  if (offset >= v->low && offset <= v->high) return v->zero + offset * v->width;
  const npu_addr addr = v->addr + (uint64_t)offset * (uint64_t)v->width;
  extent found;
  if (memory_find(job->device, addr, (uint64_t)v->width, &found)) {
    set_window(v, &found);
    return found.host + (addr - found.addr);
  }
  job_fail(job, NPU_ERROR_ADDRESS,
           "expected live memory at 0x%" PRIx64 " (%d bytes, operand %u at 0x%" PRIx64 "), got none", addr, v->width,
           v->number, v->addr);
  return NULL;
}

/* Wild strides wrap, and are refused as addresses then. */
int64_t offset_of(const int64_t* point, const int64_t* stride, int rank) {
  uint64_t offset = 0;
  for (int d = 0; d < rank; d++) offset += (uint64_t)point[d] * (uint64_t)stride[d];
  return (int64_t)offset;
}

int64_t count_points(const int64_t* size, int first, int rank) {
  int64_t n = 1;
  for (int d = first; d < rank; d++) n *= size[d];
  return n;
}

void advance(int64_t* point, const int64_t* size, int first, int rank, int64_t n) {
  for (int d = rank - 1; d >= first && n > 0; d--) {
    n += point[d];
    point[d] = n % size[d];
    n /= size[d];
  }
}

void find_places(places* out, const int64_t* stride, const int64_t* size, int rank, const int64_t* point, int n) {
  out->base = offset_of(point, stride, rank);
  const int last = rank - 1;
  const int64_t step = rank ? stride[last] : 1;
  out->is_contiguous = n == 1 || (step == 1 && n <= size[last] - point[last]);
  if (out->is_contiguous) return;
  int64_t at[NPU_MAX_RANK];
  memcpy(at, point, (size_t)rank * sizeof *at);
  for (int i = 0; i < n;) {
    const int64_t left = size[last] - at[last];
    const int run = left < n - i ? (int)left : n - i;
    const uint64_t base = (uint64_t)offset_of(at, stride, rank);
    for (int j = 0; j < run; j++) out->list[i + j] = (int64_t)(base + (uint64_t)j * (uint64_t)step);
    advance(at, size, 0, rank, run);
    i += run;
  }
}

void list_places(places* p, int n) {
  for (int i = 0; i < n && p->is_contiguous; i++) p->list[i] = p->base + i;
}

/* Whether dimensions d and d + 1 are one for every view. */
static int joins(view* const* views, int count, const int64_t* size, int d) {
  for (int i = 0; i < count; i++) {
    int64_t whole;
    if (__builtin_mul_overflow(views[i]->stride[d + 1], size[d + 1], &whole) || views[i]->stride[d] != whole) return 0;
  }
  return 1;
}

int collapse(view* const* views, int count, int64_t* size, int rank) {
  for (int d = rank - 1; d >= 0; d--) {
    const int single = size[d] == 1 && rank > 1;
    if (!single && (d + 1 >= rank || !joins(views, count, size, d))) continue;
    if (!single) size[d + 1] *= size[d];
    for (int e = d; e + 1 < rank; e++) size[e] = size[e + 1]; /* dimension d goes */
    for (int i = 0; i < count; i++)
      for (int e = d; e + 1 < rank; e++) views[i]->stride[e] = views[i]->stride[e + 1];
    rank--;
  }
  return rank;
}

/* The range of offsets that count. Returns how many do. */
static int range_of(int n, const int64_t* list, const uint8_t* mask, int64_t* low, int64_t* high) {
  int count = 0;
  *low = INT64_MAX;
  *high = INT64_MIN;
  for (int i = 0; i < n; i++) {
    if (mask && !mask[i]) continue;
    count++;
    if (list[i] < *low) *low = list[i];
    if (list[i] > *high) *high = list[i];
  }
  return count;
}

npu_status load_listed(job* job, view* v, int n, const int64_t* list, const uint8_t* mask, int type, lanes* out) {
  int64_t low, high, safe[BLOCK] = {0};
  const int count = range_of(n, list, mask, &low, &high);
  if (count == n && low >= v->low && high <= v->high) {
    load_lanes(n, out, type, v->dtype, v->zero, list);
    return NPU_OK;
  }
  memset(out, 0, sizeof *out);
  if (count == 0) return NPU_OK;
  if (low >= v->low && high <= v->high) { /* what is masked off reads an element that is not */
    lanes all;
    for (int i = 0; i < n; i++) safe[i] = mask[i] ? list[i] : low;
    load_lanes(n, &all, type, v->dtype, v->zero, safe);
    for (int i = 0; i < n; i++)
      if (mask[i]) lane_put(out, i, type, lane_get(&all, i, type));
    return NPU_OK;
  }
  for (int i = 0; i < n; i++) {
    if (mask && !mask[i]) continue;
    const char* at = view_at(v, job, list[i]);
    if (!at) return NPU_ERROR_ADDRESS;
    lanes one;
    load_lanes(1, &one, type, v->dtype, at, NULL);
    lane_put(out, i, type, lane_get(&one, 0, type));
  }
  return NPU_OK;
}

npu_status store_listed(job* job, view* v, int n, const int64_t* list, const uint8_t* mask, int type, const lanes* in) {
  int64_t low, high;
  const int count = range_of(n, list, mask, &low, &high);
  if (count == 0) return NPU_OK;
  if (count == n && low >= v->low && high <= v->high) {
    store_lanes(n, in, type, v->dtype, v->zero, list);
    return NPU_OK;
  }
  for (int i = 0; i < n; i++) {
    if (mask && !mask[i]) continue;
    char* at = view_at(v, job, list[i]);
    if (!at) return NPU_ERROR_ADDRESS;
    lanes one;
    lane_put(&one, 0, type, lane_get(in, i, type));
    store_lanes(1, &one, type, v->dtype, at, NULL);
  }
  return NPU_OK;
}
