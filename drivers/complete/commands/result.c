#include "commands/result.h"

#include <stdlib.h>
#include <string.h>

npu_status result_open(result* r, job* job) {
  const npu_command* c = &job->command;
  r->job = job;
  r->type = c->kind == NPU_MATMUL ? c->u.matmul.acc_dtype : c->u.conv.acc_dtype;
  r->count = 0;
  r->has_program = job->code != NULL;
  if (r->has_program) return machine_open(&r->machine, job, 0);
  r->machine = (machine){.job = job, .rank = c->rank};
  memcpy(r->machine.size, c->size, sizeof r->machine.size);
  view_open(&r->to, job, 2, c->size, c->rank);
  return NPU_OK;
}

static npu_status store_sums(result* r) {
  machine* m = &r->machine;
  places at;
  find_places(&at, r->to.stride, m->size, m->rank, m->point, r->count);
  npu_status status = NPU_OK;
  if (r->to.is_whole) {
    store_lanes(r->count, &r->sums, r->type, r->to.dtype, place_start(&r->to, &at), place_list(&at));
  } else {
    list_places(&at, r->count);
    status = store_listed(r->job, &r->to, r->count, at.list, NULL, r->type, &r->sums);
  }
  advance(m->point, m->size, 0, m->rank, r->count);
  return status;
}

/* The program reads the sums with `acc`. */
static npu_status run_epilogue(result* r) {
  machine* m = &r->machine;
  for (uint32_t i = 0; i < m->code->desc.instr_count; i++)
    if (m->instrs[i].op == NPU_OP_ACC) memcpy(&m->values[i], &r->sums, (size_t)(r->count * lane_width(r->type)));
  return machine_block(m, r->count);
}

static npu_status flush(result* r) {
  if (r->count == 0) return NPU_OK;
  const npu_status status = r->has_program ? run_epilogue(r) : store_sums(r);
  r->count = 0;
  return status;
}

npu_status result_put(result* r, const void* sums, int64_t n) {
  const int width = lane_width(r->type);
  const char* at = sums;
  while (n > 0) {
    const int take = n < BLOCK - r->count ? (int)n : BLOCK - r->count;
    memcpy((char*)&r->sums + r->count * width, at, (size_t)(take * width));
    r->count += take;
    at += take * width;
    n -= take;
    const npu_status status = r->count == BLOCK ? flush(r) : NPU_OK;
    if (status != NPU_OK) return status;
  }
  return NPU_OK;
}

npu_status result_close(result* r, npu_status status) {
  if (status == NPU_OK) status = flush(r);
  if (r->has_program) machine_close(&r->machine);
  return status;
}

void* dense_operand(job* job, uint32_t operand, const int64_t* shape, int rank, int type) {
  int64_t size[NPU_MAX_RANK], point[NPU_MAX_RANK] = {0};
  const int64_t total = count_points(shape, 0, rank);
  char* out = malloc((size_t)total * 8 + 8);
  if (!out) {
    job_fail(job, NPU_ERROR_MEMORY, "expected host memory for operand %u, got none", operand);
    return NULL;
  }
  view v;
  memcpy(size, shape, (size_t)rank * sizeof *size);
  view_open(&v, job, operand, size, rank);
  rank = collapse((view*[]){&v}, 1, size, rank);
  for (int64_t done = 0; done < total;) {
    const int n = total - done < BLOCK ? (int)(total - done) : BLOCK;
    places at;
    lanes block;
    npu_status status = NPU_OK;
    find_places(&at, v.stride, size, rank, point, n);
    if (v.is_immediate) {
      load_lanes(1, &block, type, v.dtype, (const char*)&v.bits, NULL);
      lane_spread(&block, n, type);
    } else if (v.is_whole) {
      load_lanes(n, &block, type, v.dtype, place_start(&v, &at), place_list(&at));
    } else {
      list_places(&at, n);
      status = load_listed(job, &v, n, at.list, NULL, type, &block);
    }
    if (status != NPU_OK || job_step(job) != NPU_OK) {
      free(out);
      return NULL;
    }
    memcpy(out + done * lane_width(type), &block, (size_t)(n * lane_width(type)));
    advance(point, size, 0, rank, n);
    done += n;
  }
  return out;
}
