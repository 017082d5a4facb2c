// What is known of a job before it runs: values that are the same for all of it, and about how long it will take.
#include <algorithm>

#include "drivers/cmodel/plan/plan.h"
#include "drivers/cmodel/plan/tuning.h"
#include "support/cost/command_cost.h"

namespace cmodel {

int find_fixed(const Job& job, bool* fixed) {
  const Plan& plan = *job.program->plan;
  std::fill_n(fixed, plan.ops.size(), false);
  for (int i : plan.constants) fixed[i] = true;
  int cost = 0;
  for (int i : plan.invariants) {
    const Op& op = plan.ops[i];
    bool same = op.step != Step::kLoad || is_one_value(job.command, job.operands[op.imm]);
    const uint16_t ids[3] = {op.a, op.b, op.c};
    for (int k = 0; k < 3; ++k) same &= !(op.used >> k & 1) || fixed[ids[k]];
    fixed[i] = same;
    if (same) cost += op.cost;
  }
  return cost;
}

int64_t estimate_ns(const Job& job) {
  const npu_command& command = job.command;
  const int64_t points = points_of(command);
  const int64_t program_cost = job.program ? job.program->plan->each_cost : 0;  // picoseconds per point
  switch (command.kind) {
    case NPU_MATMUL:
      return kCommandNs + std::max(npu::multiply_adds_of(command), points) / kProductsPerNs + points * program_cost / 1000;
    case NPU_CONV:
      return kConvNs + npu::multiply_adds_of(command) / kConvProductsPerNs + points * program_cost / 1000;
    case NPU_SORT: {
      int64_t steps = 1;
      for (int64_t n = command.rank ? command.size[command.rank - 1] : 1; n > 1; n /= 2) ++steps;
      return kCommandNs + points * steps;
    }
    case NPU_COPY:
      return kCommandNs + points / kCopiedPerNs;
    default: {
      const int64_t estimate = kCommandNs + points * std::max(program_cost, kLeastPoint) / 1000;
      if (estimate < kLongNs || !job.program || job.program->plan->invariants.empty()) return estimate;
      bool fixed[NPU_MAX_INSTRS];
      const int64_t rest = program_cost - find_fixed(job, fixed);
      return kCommandNs + points * std::max(rest, kLeastPoint) / 1000;
    }
  }
}

}  // namespace cmodel
