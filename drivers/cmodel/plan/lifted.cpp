#include "drivers/cmodel/plan/lifted.h"

#include <bit>

#include "drivers/cmodel/plan/loops.h"
#include "drivers/cmodel/plan/planner.h"

namespace cmodel {

std::shared_ptr<const Lifted> Lifted::find(const std::vector<npu_instr>& in, const Plan& plan) {
  if (plan.segments.size() != 1) return nullptr;
  std::vector<bool> varies(in.size()), written(NPU_MAX_OPERANDS), member(in.size());
  for (const npu_instr& i : in)
    if (i.op == NPU_OP_STORE || i.op == NPU_OP_STORE_AT) written[i.imm] = true;
  for (const CompiledLoop& loop : plan.loops)
    for (int i : loop.members) member[static_cast<size_t>(i)] = true;
  std::vector<uint64_t> operands(in.size());
  auto lifted = std::make_shared<Lifted>();
  for (size_t i = 0; i < in.size(); ++i) {
    const Step step = plan.ops[i].step;
    const bool load = step == Step::kLoad && in[i].mask == NPU_NO_VALUE && !written[in[i].imm];
    const bool constant = in[i].op == NPU_OP_CONST || in[i].op == NPU_OP_PARAM || in[i].op == NPU_OP_SIZE;
    varies[i] = !constant && !load && !member[i] && step != Step::kCompute && step != Step::kCast;
    if (load) operands[i] = uint64_t{1} << in[i].imm;
    for (uint16_t id : {in[i].a, in[i].b, in[i].c, in[i].mask}) {
      if (id == NPU_NO_VALUE) continue;
      varies[i] = varies[i] || varies[id];
      operands[i] |= operands[id];
    }
    if (varies[i] || !member[i]) continue;
    lifted->members_.push_back({static_cast<int>(i), cost_of(in[i]) / kLoopShare, operands[i]});
    lifted->operands_ |= operands[i];
  }
  if (lifted->members_.empty()) return nullptr;
  lifted->in_ = in;
  lifted->consts_ = plan.consts;
  return lifted;
}

const Program* Lifted::plan_for(const Job& job) const {
  uint64_t same = 0;
  for (uint64_t left = operands_; left != 0; left &= left - 1) {
    const int k = std::countr_zero(left);
    if (is_one_value(job.command, job.operands[k])) same |= uint64_t{1} << k;
  }
  int64_t cost = 0, count = 0;
  for (const Member& member : members_) {
    if ((member.operands & ~same) != 0) continue;
    cost += member.cost;
    ++count;
  }
  if (count == 0) return nullptr;
  if (points_of(job.command) * cost < count * kLiftedOnce) return nullptr;
  const auto look = [&](size_t count) -> const Made* {
    for (size_t k = 0; k < count; ++k)
      if (made_[k].operands == same) return &made_[k];
    return nullptr;
  };
  const Made* made = look(count_.load(std::memory_order_acquire));
  if (!made) {
    std::lock_guard lock(making_);
    const size_t used = count_.load(std::memory_order_relaxed);
    made = look(used);
    if (!made && used < kMostPlans) {
      made_[used] = {same, make(same)};
      count_.store(used + 1, std::memory_order_release);
      made = &made_[used];
    }
  }
  return made ? made->program.get() : nullptr;
}

std::unique_ptr<const Program> Lifted::make(uint64_t operands) const {
  std::vector<bool> outside(in_.size());
  for (const Member& member : members_) outside[static_cast<size_t>(member.at)] = (member.operands & ~operands) == 0;
  auto plan = std::make_shared<Plan>();
  plan->loops = find_loops(in_, outside);
  if (plan->loops.empty()) return nullptr;
  Planner(in_, consts_, *plan).run();
  return std::make_unique<const Program>(Program{npu::Program{}, std::move(plan)});
}

}  // namespace cmodel
