/* How a command walks one operand, and which memory is behind it. */
#ifndef COMMANDS_VIEW_H
#define COMMANDS_VIEW_H

#include "commands/job.h"
#include "program/convert.h"

typedef struct view {
  uint32_t number; /* of the operand */
  npu_addr addr;
  int64_t limit;
  int64_t stride[NPU_MAX_RANK];
  int dtype, width, is_immediate;
  uint64_t bits; /* of an immediate */
  /* Offsets low .. high (elements from addr) are known to be live; zero is where the host finds offset 0. */
  int64_t low, high;
  char* zero;
  int is_whole; /* all points lie in there, so that none needs a check */
} view;

/* Looks up the memory that the points of this space touch. Never fails: what is not found is looked for when it is
 * touched, because a mask may leave it out. */
void view_open(view* v, job* job, uint32_t operand, const int64_t* size, int rank);
/* Where one element lies. NULL: it is in no live memory, and the job has failed. */
char* view_at(view* v, job* job, int64_t offset);

/* -- points in row-major order -- */

/* The offsets of a block of points. */
typedef struct places {
  int is_contiguous; /* base, base + 1, ...; the list is empty */
  int64_t base;
  int64_t list[BLOCK];
} places;

void find_places(places* out, const int64_t* stride, const int64_t* size, int rank, const int64_t* point, int n);
/* Fills the list of contiguous places too. */
void list_places(places* p, int n);
/* Moves a point `n` points on; dimensions below `first` stay. */
void advance(int64_t* point, const int64_t* size, int first, int rank, int64_t n);
int64_t count_points(const int64_t* size, int first, int rank);
int64_t offset_of(const int64_t* point, const int64_t* stride, int rank);

/* Joins dimensions that all views walk as one, so that blocks are long. Returns the new rank. */
int collapse(view* const* views, int count, int64_t* size, int rank);

/* -- elements, without a check -- */

static inline char* place_start(const view* v, const places* p) {
  return p->is_contiguous ? v->zero + p->base * v->width : v->zero;
}
static inline const int64_t* place_list(const places* p) { return p->is_contiguous ? NULL : p->list; }

/* Elements at any offsets, checked; `mask` NULL: all of them. Where it is 0 nothing is touched, and 0 loaded. */
npu_status load_listed(job* job, view* v, int n, const int64_t* list, const uint8_t* mask, int type, lanes* out);
npu_status store_listed(job* job, view* v, int n, const int64_t* list, const uint8_t* mask, int type, const lanes* in);

#endif
