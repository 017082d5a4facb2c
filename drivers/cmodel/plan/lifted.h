// Plans for commands with operands of one value.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "drivers/cmodel/plan/plan.h"
#include "drivers/cmodel/plan/tuning.h"

namespace cmodel {

// Members of compiled loops that are the same for the whole command if certain operands are one value, as a learning
// rate is. For such commands there are plans in which they stand outside of the loops and are computed once.
class Lifted {
 public:
  // `in`: the instructions of the plan, which has one segment. Null: there is no such member.
  static std::shared_ptr<const Lifted> find(const std::vector<npu_instr>& in, const Plan& plan);
  // The plan for a command, or null: its own.
  const Program* plan_for(const Job& job) const;

 private:
  struct Member {
    int at, cost;       // cost in picoseconds per point, in a loop
    uint64_t operands;  // by bit: those that have to be one value
  };
  struct Made {
    uint64_t operands;
    std::unique_ptr<const Program> program;  // null: loops without them do not exist
  };
  std::unique_ptr<const Program> make(uint64_t operands) const;

  std::vector<npu_instr> in_;
  std::vector<uint64_t> consts_;
  std::vector<Member> members_;
  uint64_t operands_ = 0;  // all of the members'
  mutable std::mutex making_;
  mutable Made made_[kMostPlans];
  mutable std::atomic<size_t> count_{0};
};

}  // namespace cmodel
