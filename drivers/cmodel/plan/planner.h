// How a plan is made: passes over the instructions of a program, each of which fills in its part of the Plan. A pass is
// a member function; they share the tables at the end of the class and run in the order of run().
#pragma once
#include <algorithm>
#include <vector>

#include "drivers/cmodel/plan/plan.h"

namespace cmodel {

// Rough cost of one instruction per element in picoseconds, one core, data in the first cache.
int cost_of(const npu_instr& in);

class Planner {
 public:
  Planner(const std::vector<npu_instr>& instrs, const std::vector<uint64_t>& consts, Plan& plan)
      : in_(instrs), plan_(plan) {
    plan_.consts = consts;
  }

  void run();

 private:
  // plan/decode.cpp: segments, instructions, folds, and where values that cross a segment come from.
  void cut();
  void decode(int i);
  void note(int i);
  int view(View view);
  FoldPlan make_fold(int i) const;
  void place_loops();
  void find_row_values(Segment& segment);

  // plan/fuse.cpp: neighbours that one kernel computes together.
  void fuse(const Segment& segment);
  void fuse_pairs(const Segment& segment, const std::vector<int>& uses);
  void fuse_gelu(const Segment& segment, const std::vector<int>& uses);
  void fuse_normalize(const Segment& segment, const std::vector<int>& uses);
  void pair_philox(const Segment& segment);

  // plan/memory.cpp: who reads and writes memory when, and which slot a value stands in.
  void find_addresses(const Segment& segment);
  void find_hazards(Segment& segment);
  void hold_loads(const Segment& segment);
  void assign_slots(const Segment& segment);
  void find_last_loads();
  void find_row_operand();

  // plan/special.cpp: programs that are simpler than they look.
  void find_plain_fold(Segment& segment) const;
  void find_one_instruction();
  void find_invariants();

  bool defines(int i) const { return in_[i].dtype != NPU_DTYPE_NONE; }
  bool has_loop(const Segment& segment) const {
    return std::any_of(plan_.loops.begin(), plan_.loops.end(),
                       [&](const CompiledLoop& loop) { return loop.at() >= segment.begin && loop.at() < segment.end; });
  }
  int defined_at(int i) const { return loop_of_[i] == kNone ? i : plan_.loops[loop_of_[i]].at(); }
  static bool is_constant(int op) { return op == NPU_OP_CONST || op == NPU_OP_PARAM || op == NPU_OP_SIZE; }

  template <class F>
  static void each_argument(const npu_instr& in, F f) {
    for (uint16_t id : {in.a, in.b, in.c, in.mask})
      if (id != NPU_NO_VALUE) f(id);
  }

  const std::vector<npu_instr>& in_;
  Plan& plan_;
  std::vector<int> last_;        // by instruction: where its value is read last
  std::vector<int> segment_of_;  // by instruction
  std::vector<int> loop_of_;     // by instruction: the compiled loop that computes it, or kNone
  std::vector<int> free_slots_;
};

}  // namespace cmodel
