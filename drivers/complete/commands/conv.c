/* CONV: forward and both gradients, plane after plane. CHIP: the matrix engine, with its address generator. */
#include <stdlib.h>
#include <string.h>

#include "commands/result.h"
#include "commands/units.h"

/* The convolution with three spatial dimensions, those that it lacks in front and of size 1. */
typedef struct shape {
  int64_t batch, in_channels, out_channels, inputs, outputs; /* inputs, outputs: channels of a group */
  int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
  int64_t in_points, out_points, taps, result_points;
} shape;

static shape shape_of(const npu_conv* c) {
  shape s = {.batch = c->batch, .in_channels = c->in_channels, .out_channels = c->out_channels};
  s.inputs = c->in_channels / c->groups;
  s.outputs = c->out_channels / c->groups;
  const int missing = 3 - (int)c->spatial_rank;
  for (int d = 0; d < 3; d++) {
    const int k = d - missing, has = k >= 0;
    s.in[d] = has ? c->in_size[k] : 1;
    s.out[d] = has ? c->out_size[k] : 1;
    s.kernel[d] = has ? c->kernel[k] : 1;
    s.stride[d] = has ? c->stride[k] : 1;
    s.padding[d] = has ? c->padding[k] : 0;
    s.dilation[d] = has ? c->dilation[k] : 1;
  }
  s.in_points = s.in[0] * s.in[1] * s.in[2];
  s.out_points = s.out[0] * s.out[1] * s.out[2];
  s.taps = s.kernel[0] * s.kernel[1] * s.kernel[2];
  s.result_points = c->mode == NPU_CONV_FORWARD ? s.out_points : c->mode == NPU_CONV_GRAD_INPUT ? s.in_points : s.taps;
  return s;
}

/* The output positions of one line whose kernel position `tap` meets an input position: n of them from `out` on, the
 * first at `in`; the next meets the input stride[2] further on. Positions are counted in elements of a plane. */
typedef struct line {
  int is_valid;
  int64_t n, in, out;
  int64_t y[2];            /* output coordinates of the line */
  int64_t low[3], high[3]; /* output coordinates that meet the input, by dimension: low .. high - 1 */
  int64_t shift[3];        /* input coordinate of output coordinate 0 */
} line;

static void place_line(const shape* s, line* l) {
  const int64_t at0 = l->y[0] * s->stride[0] + l->shift[0], at1 = l->y[1] * s->stride[1] + l->shift[1];
  l->out = (l->y[0] * s->out[1] + l->y[1]) * s->out[2] + l->low[2];
  l->in = (at0 * s->in[1] + at1) * s->in[2] + l->low[2] * s->stride[2] + l->shift[2];
}

static line first_line(const shape* s, int64_t tap) {
  const int64_t taps[3] = {tap / (s->kernel[1] * s->kernel[2]), tap / s->kernel[2] % s->kernel[1], tap % s->kernel[2]};
  line l = {.is_valid = 1};
  for (int d = 0; d < 3; d++) {
    /* 0 <= o * stride + shift < in */
    l.shift[d] = taps[d] * s->dilation[d] - s->padding[d];
    l.low[d] = l.shift[d] < 0 ? (-l.shift[d] + s->stride[d] - 1) / s->stride[d] : 0;
    const int64_t room = s->in[d] - l.shift[d];
    l.high[d] = room > 0 ? (room - 1) / s->stride[d] + 1 : 0;
    if (l.high[d] > s->out[d]) l.high[d] = s->out[d];
    l.is_valid &= l.low[d] < l.high[d];
  }
  l.n = l.high[2] - l.low[2];
  l.y[0] = l.low[0];
  l.y[1] = l.low[1];
  place_line(s, &l);
  return l;
}

static void next_line(const shape* s, line* l) {
  if (++l->y[1] == l->high[1]) {
    l->y[1] = l->low[1];
    l->is_valid = ++l->y[0] < l->high[0];
  }
  place_line(s, l);
}

#define T float
#define U float
#define NAME(x) f32_##x
#include "commands/conv.inc"
#undef T
#undef U
#undef NAME

#define T double
#define U double
#define NAME(x) f64_##x
#include "commands/conv.inc"
#undef T
#undef U
#undef NAME

#define T int32_t
#define U uint32_t
#define NAME(x) i32_##x
#include "commands/conv.inc"
#undef T
#undef U
#undef NAME

#define T int64_t
#define U uint64_t
#define NAME(x) i64_##x
#include "commands/conv.inc"

static npu_status run_planes(job* job, const shape* s, result* out, const void* first, const void* second) {
  void* plane = malloc((size_t)s->result_points * 8 + 8);
  if (!plane) return job_fail(job, NPU_ERROR_MEMORY, "expected host memory for a plane, got none");
  npu_status status;
  switch (job->command.u.conv.acc_dtype) {
    case NPU_F32: status = f32_planes(job, s, out, first, second, plane); break;
    case NPU_F64: status = f64_planes(job, s, out, first, second, plane); break;
    case NPU_I32: status = i32_planes(job, s, out, first, second, plane); break;
    default: status = i64_planes(job, s, out, first, second, plane);
  }
  free(plane);
  return status;
}

/* The shape of an input: [batch, channels, positions] or [out channels, channels of a group, kernel]. */
static void* read_input(job* job, uint32_t operand) {
  const npu_conv* c = &job->command.u.conv;
  const int is_weight = operand == 1 && c->mode != NPU_CONV_GRAD_WEIGHT;
  const int is_input = operand == (c->mode == NPU_CONV_GRAD_WEIGHT) && c->mode != NPU_CONV_GRAD_INPUT;
  int64_t size[5] = {is_weight ? c->out_channels : c->batch, is_weight  ? c->in_channels / c->groups
                                                             : is_input ? c->in_channels
                                                                        : c->out_channels};
  for (uint32_t d = 0; d < c->spatial_rank; d++)
    size[2 + d] = is_weight ? c->kernel[d] : is_input ? c->in_size[d] : c->out_size[d];
  return dense_operand(job, operand, size, job->command.rank, c->acc_dtype);
}

npu_status run_conv(job* job) {
  if (count_points(job->command.size, 0, job->command.rank) == 0) return NPU_OK;
  const shape s = shape_of(&job->command.u.conv);
  result out;
  void* first = read_input(job, 0);
  void* second = first ? read_input(job, 1) : NULL;
  npu_status status = second ? result_open(&out, job) : job->failure;
  if (status == NPU_OK) status = result_close(&out, run_planes(job, &s, &out, first, second));
  free(first);
  free(second);
  return status;
}
