/* Runs the program of a command, a block of points at a time. */
#ifndef COMMANDS_MACHINE_H
#define COMMANDS_MACHINE_H

#include "commands/view.h"

/* What a fold or a scan holds while its row runs. */
typedef struct fold {
  const npu_instr* in;
  uint16_t id;
  int segment, kind, members;
  int type[NPU_MAX_TUPLE];
  lanes lane;                 /* simple folds: 16 of them */
  value state[NPU_MAX_TUPLE]; /* scans and tuples */
  int has_any;                /* an element was seen */
  char* kept[NPU_MAX_TUPLE];  /* of every element of the row: scans the running values, welford the elements */
  uint8_t* present;           /* welford: which elements are not masked off */
} fold;

typedef struct machine {
  job* job;
  const code* code;
  const npu_instr* instrs;
  int rank, first;             /* dimensions from `first` on are a row */
  int64_t size[NPU_MAX_RANK];  /* may be collapsed; the program's `size` is the command's */
  int64_t point[NPU_MAX_RANK]; /* of the block's first point */
  int64_t elements, element;   /* of a row; of the block's first point in it */
  lanes* values;               /* of each instruction */
  view* views;                 /* of each operand */
  places* places;              /* of each operand in this block */
  uint8_t* placed;             /* whether they were found yet */
  fold* folds;                 /* in order of appearance */
  int fold_count;
  value arguments[2 * NPU_MAX_TUPLE], results[NPU_MAX_TUPLE]; /* of a combine segment */
} machine;

/* `first`: how many dimensions stand in front of a row. On failure nothing is left to close. */
npu_status machine_open(machine* m, job* job, int first);
void machine_close(machine* m);

/* The program's only segment at `n` points from m->point on, and m->point behind them. */
npu_status machine_block(machine* m, int n);
/* One segment at a block. */
npu_status machine_segment(machine* m, const segment* s, int n);
/* Where the points of the block lie in an operand. */
places* machine_places(machine* m, uint32_t operand, int n);
/* A new block: nothing is known of it. */
void machine_moved(machine* m);

/* Loads, stores and checks. */
npu_status access_memory(machine* m, const npu_instr* in, int n, lanes* out);

/* Folds: at the start of a row, for a block, at its end. */
void fold_begin(fold* f);
npu_status fold_block(machine* m, fold* f, int n);
void fold_end(machine* m, fold* f);
/* What scans of earlier segments have at this block. */
void scans_recall(machine* m, int segment, int n);

#endif
