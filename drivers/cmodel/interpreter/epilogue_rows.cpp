#include "drivers/cmodel/interpreter/epilogue_rows.h"

#include "drivers/cmodel/interpreter/row_loops.h"

namespace cmodel {

bool run_rows(const Job& job, const Block& block) {
  const Plan& plan = *job.program->plan;
  if (plan.segments.size() != 1) return false;
  const int rank = job.command.rank, views = static_cast<int>(plan.views.size());
  RowView view[kMaxViews];
  int64_t step[kMaxViews], offset[kMaxViews] = {};
  for (int v = 0; v < views; ++v) {
    if (plan.views[v].kind == View::kIndex) return false;
    if (plan.views[v].kind == View::kAcc) {
      view[v] = {const_cast<char*>(block.acc), 1, true};
      step[v] = block.ld;
      continue;
    }
    const Operand& operand = job.operands[plan.views[v].number];
    step[v] = operand.stride[rank - 2];
    view[v] = {operand.immediate ? nullptr : block.first_of(job, operand), operand.stride[rank - 1], step[v] != 0};
  }
  FailureSink sink;
  Frame& f = prepare(job, sink);
  f.acc_dtype = block.acc_dtype;
  RowLoops loops(f, view, block.cols, false);
  if (!loops.plan(plan.segments[0])) return false;
  loops.run({offset, step, block.rows, 0, 0});
  return true;
}

}  // namespace cmodel
