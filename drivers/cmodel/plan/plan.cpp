#include "drivers/cmodel/plan/plan.h"

#include <algorithm>

#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/plan/channels.h"
#include "drivers/cmodel/plan/lifted.h"
#include "drivers/cmodel/plan/loops.h"
#include "drivers/cmodel/plan/planner.h"
#include "drivers/cmodel/plan/tuning.h"

namespace cmodel {

void Planner::run() {
  plan_.ops.resize(in_.size());
  last_.assign(in_.size(), 0);
  segment_of_.assign(in_.size(), 0);
  loop_of_.assign(in_.size(), kNone);
  cut();
  for (size_t i = 0; i < in_.size(); ++i) decode(static_cast<int>(i));
  place_loops();
  for (Segment& segment : plan_.segments) {
    find_row_values(segment);
    if (segment.kind == NPU_SEGMENT_EACH) {
      if (!has_loop(segment)) fuse(segment);
      find_addresses(segment);
      pair_philox(segment);
      find_hazards(segment);
    } else {
      hold_loads(segment);
    }
    assign_slots(segment);
    find_plain_fold(segment);
  }
  find_last_loads();
  find_row_operand();
  find_one_instruction();
  if (plan_.segments.size() == 1 && plan_.one_instruction.kind == OneInstruction::kNot) find_invariants();
  for (size_t i = in_.size(), next = i; i-- > 0;) {
    plan_.ops[i].next = static_cast<uint16_t>(next);
    if (plan_.ops[i].step != Step::kNothing) next = i;
  }
}

// Passes over a tile.
static int passes(const Plan& plan) {
  return static_cast<int>(std::count_if(plan.ops.begin(), plan.ops.end(), [](const Op& op) {
    return op.step == Step::kCompute || op.step == Step::kNormalize || op.step == Step::kLoop || op.step == Step::kFold;
  }));
}

// What a norm takes per row (rsqrt of a variance) is cheap outside a loop and costly in it.
static bool takes_roots(const std::vector<npu_instr>& in, const Plan& plan) {
  return std::any_of(plan.loops.begin(), plan.loops.end(), [&](const CompiledLoop& loop) {
    return std::any_of(loop.members.begin(), loop.members.end(), [&](int i) {
      return in[i].op == NPU_OP_RSQRT || in[i].op == NPU_OP_SQRT || in[i].op == NPU_OP_DIV;
    });
  });
}

static std::shared_ptr<Plan> best_plan(const npu::Program& program) {
  auto plan = std::make_shared<Plan>();
  const std::vector<npu_instr> instrs = folds_apart(program.instrs);
  Planner(instrs, program.consts, *plan).run();
  const std::vector<npu_instr> ordered = sinks_last(instrs);
  auto compiled = std::make_shared<Plan>();
  compiled->loops = find_loops(ordered);
  if (compiled->loops.empty()) return plan;
  Planner(ordered, program.consts, *compiled).run();
  compiled->lifted = Lifted::find(ordered, *compiled);
  const int before = passes(*plan), gain = before - passes(*compiled);
  const bool norm =
      std::any_of(plan->ops.begin(), plan->ops.end(), [](const Op& op) { return op.step == Step::kNormalize; });
  if (before > 1 && gain > (norm ? kNormPasses : 0)) return compiled;
  plan->dense_loops = before > 1 && gain > 0 && !takes_roots(ordered, *compiled);
  // bf16 and f16 have to be converted anyway, which a loop does on the way.
  plan->narrow = std::make_shared<const Program>(Program{npu::Program{}, std::move(compiled)});
  return plan;
}

std::shared_ptr<const Plan> make_plan(const npu::Program& program) {
  auto plan = best_plan(program);
  const bool epilogue = std::any_of(program.instrs.begin(), program.instrs.end(),
                                    [](const npu_instr& in) { return in.op == NPU_OP_ACC; });
  if (epilogue) plan->by_channel = std::make_shared<const ByChannel>(program);
  return plan;
}

// The plan for operands of these types and strides.
static const Program* typed(const Job& job) {
  const Plan& plan = *job.program->plan;
  if (!plan.narrow) return job.program;
  bool dense = plan.dense_loops;
  for (const View& view : plan.views) {
    if (view.kind != View::kOperand) continue;
    const int dtype = job.operands[view.number].dtype;
    if (dtype == NPU_BF16 || dtype == NPU_F16) return plan.narrow.get();
    const int64_t stride = job.operands[view.number].stride[job.command.rank - 1];
    dense &= stride == 0 || stride == 1;
  }
  return dense ? plan.narrow.get() : job.program;
}

const Job& with_plan(const Job& job, Job& own) {
  const Program* program = typed(job);
  if (program->plan->lifted)
    if (const Program* lifted = program->plan->lifted->plan_for(job)) program = lifted;
  if (program == job.program) return job;
  own = job;
  own.program = program;
  return own;
}

}  // namespace cmodel
