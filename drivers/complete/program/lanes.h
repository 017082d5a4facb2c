/* Values of a program at a block of points. An instruction runs over a whole block, which the compiler turns into
 * vector instructions; that is what makes this interpreter fast enough for models. */
#ifndef PROGRAM_LANES_H
#define PROGRAM_LANES_H

#include <stdint.h>

#include "npu/program.h"

enum {
  BLOCK = 256, /* points: a value of 8 bytes takes 2 KB, so that a short program stays in the first cache */
  FOLD_LANES = 16
};

/* The array in use follows from the compute type of the value. bool is 0 or 1. */
typedef union lanes {
  uint8_t b[BLOCK];
  int32_t i32[BLOCK];
  int64_t i64[BLOCK];
  uint64_t u64[BLOCK];
  float f32[BLOCK];
  double f64[BLOCK];
} lanes;

/* One value of any compute type. */
typedef union value {
  uint8_t b;
  int32_t i32;
  int64_t i64;
  uint64_t u64;
  float f32;
  double f64;
} value;

static inline int lane_width(int compute) {
  return compute == NPU_BOOL ? 1 : compute == NPU_I32 || compute == NPU_F32 ? 4 : 8;
}

value lane_get(const lanes* from, int i, int compute);
void lane_put(lanes* to, int i, int compute, value v);
/* Lanes 1 .. n - 1 become lane 0. */
void lane_spread(lanes* lane, int n, int compute);

#endif
