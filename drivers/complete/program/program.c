#include "program/program.h"

#include <stdlib.h>
#include <string.h>

void code_ref(code* code) {
  if (code) atomic_fetch_add(&code->refs, 1);
}

void code_unref(code* code) {
  if (!code || atomic_fetch_sub(&code->refs, 1) != 1) return;
  if (code->kernels) code->free_kernels(code->kernels);
  free(code);
}

/* Cuts the copy into segments. */
static void find_segments(code* made) {
  segment* open = NULL;
  for (uint32_t i = 0; i < made->desc.instr_count; i++) {
    const npu_instr* in = &made->desc.instrs[i];
    made->uses_index |= in->op == NPU_OP_INDEX;
    if (in->op != NPU_OP_SEGMENT) {
      open->end = (uint16_t)(i + 1);
      continue;
    }
    const int combine = in->imm == NPU_SEGMENT_COMBINE;
    open = combine ? &made->combines[made->combine_count++] : &made->segments[made->segment_count++];
    *open = (segment){.kind = (int)in->imm, .first = (uint16_t)(i + 1), .end = (uint16_t)(i + 1)};
  }
}

/* One piece of memory holds the struct and all it points to. */
static code* copy_of(const npu_program_desc* desc) {
  const char* name = desc->name ? desc->name : "";
  const size_t instrs = desc->instr_count * sizeof(npu_instr), consts = desc->const_count * sizeof(uint64_t);
  const size_t segments = desc->instr_count * sizeof(segment);
  code* made = calloc(1, sizeof *made + consts + instrs + 2 * segments + strlen(name) + 1);
  if (!made) return NULL;
  char* at = (char*)(made + 1);
  atomic_init(&made->refs, 1);
  made->desc = *desc;
  made->desc.consts = consts ? memcpy(at, desc->consts, consts) : NULL;
  made->desc.instrs = memcpy(at + consts, desc->instrs, instrs);
  made->segments = (segment*)(at + consts + instrs);
  made->combines = made->segments + desc->instr_count;
  made->desc.name = strcpy((char*)(made->combines + desc->instr_count), name);
  find_segments(made);
  return made;
}

static void destroy(object* object) { program_destroy((npu_program*)object); }

/* CHIP: compile it, or translate it to microcode, here: a program is made once and used many times. */
npu_status program_create(npu_device* device, const npu_program_desc* desc, npu_program** out) {
  const npu_status status = program_check(desc);
  if (status != NPU_OK) return status;
  code* code = copy_of(desc);
  npu_program* made = code ? object_make(device, sizeof *made, destroy) : NULL;
  if (!made) {
    code_unref(code);
    return fail(NPU_ERROR_MEMORY, "program '%s': expected host memory, got none", desc->name ? desc->name : "");
  }
  made->code = code;
  *out = made;
  return NPU_OK;
}

void program_destroy(npu_program* program) {
  if (!program) return;
  code_unref(program->code);
  object_free(&program->object);
}
