/* MAP and SCATTER: the program at every point. CHIP: the vector unit, or the compiler for it. */
#include "commands/machine.h"
#include "commands/units.h"

static void join_dimensions(machine* m) {
  view* used[NPU_MAX_OPERANDS];
  uint8_t seen[NPU_MAX_OPERANDS] = {0};
  int count = 0;
  if (m->code->uses_index) return;
  for (uint32_t i = 0; i < m->code->desc.instr_count; i++) {
    const npu_instr* in = &m->instrs[i];
    const int touches =
        in->op == NPU_OP_LOAD || in->op == NPU_OP_LOAD_AT || in->op == NPU_OP_STORE || in->op == NPU_OP_STORE_AT;
    if (!touches || seen[in->imm]) continue;
    seen[in->imm] = 1;
    used[count++] = &m->views[in->imm];
  }
  m->rank = collapse(used, count, m->size, m->rank);
}

static npu_status run_blocks(job* job, int most) {
  machine m;
  const int64_t total = count_points(job->command.size, 0, job->command.rank);
  if (total == 0) return NPU_OK;
  npu_status status = machine_open(&m, job, 0);
  if (status != NPU_OK) return status;
  join_dimensions(&m);
  for (int64_t left = total; left > 0 && status == NPU_OK; left -= most)
    status = machine_block(&m, left < most ? (int)left : most);
  machine_close(&m);
  return status;
}

npu_status run_map(job* job) { return run_blocks(job, BLOCK); }

/* Whether instructions of one point may meet those of another in memory other than by one store_at: then the order of
 * points can be seen, and they run one after the other. */
static int points_meet(const job* job) {
  const npu_program_desc* program = &job->code->desc;
  const npu_operand* operands = job->command.operands;
  int sinks = 0;
  for (uint32_t i = 0; i < program->instr_count; i++) {
    const npu_instr* in = &program->instrs[i];
    sinks += in->op == NPU_OP_STORE || in->op == NPU_OP_STORE_AT;
    if (in->op != NPU_OP_STORE_AT) continue;
    for (uint32_t k = 0; k < program->instr_count; k++) {
      const npu_instr* other = &program->instrs[k];
      const int loads = other->op == NPU_OP_LOAD || other->op == NPU_OP_LOAD_AT;
      if (loads && operands[other->imm].addr == operands[in->imm].addr) return 1;
    }
  }
  return sinks > 1;
}

npu_status run_scatter(job* job) { return run_blocks(job, points_meet(job) ? 1 : BLOCK); }
