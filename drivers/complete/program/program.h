/* Programs: checked once, kept as a copy, counted, because a program may go while its commands are queued. */
#ifndef PROGRAM_PROGRAM_H
#define PROGRAM_PROGRAM_H

#include <stdatomic.h>

#include "device/driver.h"
#include "program/types.h"

typedef struct segment {
  int kind;
  uint16_t first, end; /* instructions, without the `segment` itself */
} segment;

/* What a command needs of a program. It lives as long as anybody counts it. */
typedef struct code {
  atomic_int refs;
  npu_program_desc desc; /* with copies of instructions and constants behind this struct */
  uint32_t segment_count, combine_count;
  segment* segments;       /* each and row, in order */
  segment* combines;       /* by number */
  struct kernels* kernels; /* what units/ made of it, and how that is given back */
  void (*free_kernels)(struct kernels* kernels);
  int uses_index; /* has an `index`: dimensions keep their numbers */
} code;

struct npu_program {
  object object;
  code* code;
};

/* Every rule of docs/isa.md for a program alone. NPU_OK, or NPU_ERROR_INVALID with its error set. */
npu_status program_check(const npu_program_desc* desc);
/* Parts of it: what a fold asks of its arguments, of combine segments, and how many values live at once. */
npu_status check_fold(const npu_program_desc* desc, const npu_instr* in);
npu_status check_combines(const npu_program_desc* desc);
npu_status check_live(const npu_program_desc* desc);
/* Says which instruction breaks a rule, and how. */
__attribute__((format(printf, 3, 4))) npu_status broken(const npu_program_desc* desc, const npu_instr* in,
                                                        const char* format, ...);

void code_ref(code* code);
void code_unref(code* code);

npu_status program_create(npu_device* device, const npu_program_desc* desc, npu_program** out);
void program_destroy(npu_program* program);

#endif
