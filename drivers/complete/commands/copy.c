/* COPY: element by element, with conversion. CHIP: the DMA engine. */
#include <string.h>

#include "commands/units.h"
#include "commands/view.h"

/* Between operands of one storage type the bytes are copied as they are. */
static int raw_dtype(int width) { return width == 1 ? NPU_U8 : width == 2 ? NPU_U16 : width == 4 ? NPU_U32 : NPU_U64; }

/* Where every element of the block lies, if it is not known to be in one allocation. */
static npu_status copy_listed(job* job, view* to, view* from, places* at, int n) {
  lanes block;
  const int type = compute_dtype(from->dtype);
  list_places(&at[0], n);
  list_places(&at[1], n);
  npu_status status = NPU_OK;
  if (from->is_immediate) {
    load_lanes(1, &block, type, from->dtype, (const char*)&from->bits, NULL);
    lane_spread(&block, n, type);
  } else {
    status = load_listed(job, from, n, at[1].list, NULL, type, &block);
  }
  return status == NPU_OK ? store_listed(job, to, n, at[0].list, NULL, type, &block) : status;
}

static npu_status copy_block(job* job, view* to, view* from, places* at, int n) {
  if (!to->is_whole || !from->is_whole) return copy_listed(job, to, from, at, n);
  lanes block;
  widen(n, &block, from->dtype, place_start(from, &at[1]), place_list(&at[1]));
  store_lanes(n, &block, compute_dtype(from->dtype), to->dtype, place_start(to, &at[0]), place_list(&at[0]));
  return NPU_OK;
}

npu_status run_copy(job* job) {
  int64_t size[NPU_MAX_RANK], point[NPU_MAX_RANK] = {0};
  view to, from;
  places at[2];
  int rank = job->command.rank;
  memcpy(size, job->command.size, sizeof size);
  int64_t left = count_points(size, 0, rank);
  if (left == 0) return NPU_OK;
  view_open(&to, job, 0, size, rank);
  view_open(&from, job, 1, size, rank);
  if (to.dtype == from.dtype) to.dtype = from.dtype = raw_dtype(to.width);
  rank = collapse((view*[]){&to, &from}, 2, size, rank);
  while (left > 0) {
    const int n = left < BLOCK ? (int)left : BLOCK;
    npu_status status = job_step(job);
    find_places(&at[0], to.stride, size, rank, point, n);
    find_places(&at[1], from.stride, size, rank, point, n);
    if (status == NPU_OK) status = copy_block(job, &to, &from, at, n);
    if (status != NPU_OK) return status;
    advance(point, size, 0, rank, n);
    left -= n;
  }
  return NPU_OK;
}
