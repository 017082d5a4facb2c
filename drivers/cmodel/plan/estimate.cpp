#include <algorithm>

#include "drivers/cmodel/interpreter/interpreter.h"
#include "support/cost/command_cost.h"

namespace cmodel {

int64_t estimate_ns(const Job& job) {
  const npu_command& command = job.command;
  int64_t points = 1;
  for (int d = 0; d < command.rank; ++d) points *= command.size[d];
  const int64_t program_cost = job.program ? job.program->plan->each_cost : 0;  // picoseconds per point
  constexpr int64_t kCommand = 100;                                             // ns for the smallest command
  constexpr int64_t kLong = 5000;  // where a better estimate is worth its time
  switch (command.kind) {
    case NPU_MATMUL:
      // 30 multiply-adds per ns is what one core does in F32; a product has two flops for each.
      return kCommand + points * std::max<int64_t>(command.u.matmul.k, 1) / 30 + points * program_cost / 1000;
    case NPU_CONV:
      return 1000 + npu::multiply_adds_of(command) / 20 + points * program_cost / 1000;
    case NPU_SORT: {
      int64_t steps = 1;
      for (int64_t n = command.rank ? command.size[command.rank - 1] : 1; n > 1; n /= 2) ++steps;
      return kCommand + points * steps;
    }
    case NPU_COPY:
      return kCommand + points / 3;
    default: {
      const int64_t estimate = kCommand + points * std::max<int64_t>(program_cost, 300) / 1000;
      if (estimate < kLong || !job.program || job.program->plan->invariants.empty()) return estimate;
      bool fixed[NPU_MAX_INSTRS];
      const int64_t rest = program_cost - find_fixed(job, fixed);
      return kCommand + points * std::max<int64_t>(rest, 300) / 1000;
    }
  }
}

}  // namespace cmodel
