// What REDUCE and SCAN of usual sizes become on chips that have less: how many commands, how much scratch, how many
// cycles. That they come out right is what npu-driver-test finds out.
#include <algorithm>
#include <set>

#include "support/cost/chip.h"
#include "support/legalise/planner.h"
#include "support/program/op_info.h"
#include "tests/cpp/support/command.h"

namespace {

using namespace npu::legalise;
using npu::Program;

struct Poor {
  std::set<int> kinds = {NPU_COPY, NPU_MAP, NPU_REDUCE, NPU_SCAN};
  std::set<int> folds;  // empty: all
  int segments = 100, inner = NPU_MAX_RANK;
  bool many_folds = true;
};

bool has_folds(const Poor& poor, const Program& program) {
  int each = 0, folds = 0;
  for (const npu_instr& instr : program.instrs) {
    if (instr.op == NPU_OP_SEGMENT) each += instr.imm == NPU_SEGMENT_EACH, folds = 0;
    if (instr.op != NPU_OP_FOLD && instr.op != NPU_OP_SCAN) continue;
    if (++folds > 1 && !poor.many_folds) return false;
    if (!poor.folds.empty() && !poor.folds.count(npu::fold_kind(instr))) return false;
  }
  return each <= poor.segments + 1;
}

bool takes(const Poor& poor, const npu_command& command) {
  if (!poor.kinds.count(command.kind) || command.inner_rank > poor.inner) return false;
  if (command.kind != NPU_REDUCE) return true;
  const auto& instrs = reinterpret_cast<const Program*>(command.program)->instrs;
  return std::count_if(instrs.begin(), instrs.end(), [](const npu_instr& instr) {
           return instr.op == NPU_OP_SEGMENT && instr.imm == NPU_SEGMENT_EACH;
         }) <= poor.segments;
}

std::shared_ptr<const Recipe> planned(const Poor& poor, const Draft& draft, int* questions = nullptr) {
  std::vector<uint32_t> aliases;
  for (uint32_t k = 0; k < draft.operands.size(); ++k) aliases.push_back(k);
  std::vector<std::shared_ptr<Program>> programs;
  const Ask ask{
      .program = [&](const Program& program) -> npu_program* {
        if (!has_folds(poor, program)) return nullptr;
        programs.push_back(std::make_shared<Program>(program));
        return reinterpret_cast<npu_program*>(programs.back().get());
      },
      .supports = [&](const npu_command& command) { return takes(poor, command); },
      .refused =
          [questions](const Draft&) {
            if (questions) ++*questions;
            return false;
          },
  };
  return plan(draft, aliases, ask).recipe;
}

Draft usual(npu_command_kind kind, const std::string& program, const std::vector<int64_t>& size, int inner_rank,
            const std::vector<std::vector<int64_t>>& strides, const std::vector<int>& dtypes = {}) {
  Draft draft(kind, size, inner_rank);
  draft.program = std::make_shared<const Program>(harness::isa_program(program));
  for (uint32_t k = 0; k < strides.size(); ++k) {
    Operand& operand = draft.operands.emplace_back();
    operand.form.dtype = static_cast<uint8_t>(k < dtypes.size() ? dtypes[k] : int{NPU_F32});
    operand.place = {Place::kOperand, k, 0};
    set_strides(operand.form, strides[k]);
  }
  for (uint32_t k = 0; k < draft.program->param_count; ++k) draft.params.push_back({static_cast<int>(k), {}});
  return draft;
}

const std::vector<std::pair<std::string, Draft>>& usual_commands() {
  static const std::vector<std::pair<std::string, Draft>> all = {
      {"softmax", usual(NPU_REDUCE, "softmax", {1024, 1000}, 1, {{1000, 1}, {1000, 1}})},
      {"layer norm",
       usual(NPU_REDUCE, "layer_norm", {512, 768}, 1, {{768, 1}, {0, 1}, {0, 1}, {768, 1}, {1, 0}, {1, 0}})},
      {"batch norm", usual(NPU_REDUCE, "layer_norm", {64, 32, 196}, 2,
                           {{196, 64 * 196, 1}, {1, 0, 0}, {1, 0, 0}, {196, 64 * 196, 1}, {1, 0, 0}, {1, 0, 0}})},
      {"argmax", usual(NPU_REDUCE, "argmax", {64, 32000}, 1, {{32000, 1}, {1, 0}}, {NPU_F32, NPU_I64})},
      {"variance", usual(NPU_REDUCE, "variance", {512, 768}, 1, {{768, 1}, {1, 0}})},
      {"cumsum", usual(NPU_SCAN, "cumsum", {64, 1000}, 1, {{1000, 1}, {1000, 1}})},
      {"logcumsumexp", usual(NPU_SCAN, "logcumsumexp", {64, 1000}, 1, {{1000, 1}, {1000, 1}})},
  };
  return all;
}

double cycles(const Draft& draft) {
  npu_command command = draft.command;
  std::vector<npu_operand> operands;
  for (const Operand& operand : draft.operands) operands.push_back(operand.form);
  command.operands = operands.data();
  command.operand_count = static_cast<uint32_t>(operands.size());
  command.param_count = static_cast<uint32_t>(draft.params.size());
  npu_program_desc desc{};
  if (draft.program) desc = draft.program->desc();
  return npu::predict(npu::Chip{}, npu::work_of(command, draft.program ? &desc : nullptr)).total;
}

const std::set<int> kNoReduce = {NPU_COPY, NPU_MAP}, kProducts = {NPU_COPY, NPU_MAP, NPU_MATMUL};
const std::set<int> kSumAndMax = {NPU_FOLD_SUM, NPU_FOLD_MAX};

struct Chip {
  const char* name;  // as options of the poor driver of tests/drivers
  Poor poor;
  std::vector<size_t> commands;  // that each usual command takes, in their order
  double cycles;                 // times those of the command itself, at most
};

Poor poor_in(int segments, bool many_folds, int inner, std::set<int> folds) {
  Poor poor;
  poor.segments = segments;
  poor.many_folds = many_folds;
  poor.inner = inner;
  poor.folds = std::move(folds);
  return poor;
}

Poor only(std::set<int> kinds) {
  Poor poor;
  poor.kinds = std::move(kinds);
  return poor;
}

// Moments count as one instruction for a chip that has them, so sums that replace them look dear.
const std::vector<Chip>& chips() {
  static const std::vector<Chip> all = {
      {"segments=1", poor_in(1, true, 8, {}), {3, 2, 2, 1, 1, 1, 1}, 1.1},
      {"segments=1:manyfolds=0", poor_in(1, false, 8, {}), {3, 2, 2, 1, 1, 1, 1}, 1.1},
      {"inner=1", poor_in(100, true, 1, {}), {1, 1, 4, 1, 1, 1, 1}, 1.1},
      {"folds=sum+max", poor_in(100, true, 8, kSumAndMax), {1, 3, 3, 2, 2, 1, 5}, 4},
      {"segments=1:manyfolds=0:folds=sum+max:inner=1", poor_in(1, false, 1, kSumAndMax), {3, 4, 8, 2, 3, 1, 5}, 4},
      {"commands=COPY+MAP+MATMUL", only(kProducts), {5, 4, 6, 4, 3, 5, 5}, 4.4},
      {"commands=COPY+MAP", only(kNoReduce), {5, 4, 6, 4, 3, 5, 5}, 4.4},
  };
  return all;
}

uint64_t bytes_of(const Draft& draft) {
  uint64_t bytes = 0;
  for (const Operand& operand : draft.operands)
    bytes += static_cast<uint64_t>(draft.points() * npu::dtype_size(operand.form.dtype));
  return bytes;
}

}  // namespace

TEST(usual_folds_take_few_commands_and_cycles_on_poor_chips) {
  for (const Chip& chip : chips())
    for (size_t k = 0; k < usual_commands().size(); ++k) {
      const auto& [name, draft] = usual_commands()[k];
      const std::string what = std::string(name) + " with " + chip.name;
      const auto recipe = planned(chip.poor, draft);
      CHECK_NOTE(recipe, "expected a way for " + what);
      if (!recipe) continue;
      double made = 0;
      for (const Step& step : recipe->steps) made += cycles(step.draft);
      EQUAL_NOTE(recipe->steps.size(), chip.commands[k], what);
      CHECK_NOTE(made <= chip.cycles * cycles(draft),
                 "expected less than " + std::to_string(made / cycles(draft)) + " times the cycles of " + what);
    }
}

TEST(scratch_of_folds_stays_in_proportion_to_operands) {
  for (const Chip& chip : chips())
    for (const auto& [name, draft] : usual_commands()) {
      const auto recipe = planned(chip.poor, draft);
      uint64_t scratch = 0;
      for (const uint64_t bytes : recipe->scratch) scratch += bytes;
      CHECK_NOTE(scratch <= bytes_of(draft) / 4,
                 "expected less scratch than " + std::to_string(scratch) + " bytes for " + name + " with " + chip.name);
    }
}

TEST(planning_a_fold_asks_few_questions) {
  constexpr int kMost = 1500;  // each takes some microseconds, once per signature
  for (const Chip& chip : chips())
    for (const auto& [name, draft] : usual_commands()) {
      int questions = 0;
      planned(chip.poor, draft, &questions);
      CHECK_NOTE(questions <= kMost, "expected at most " + std::to_string(kMost) + " questions, got " +
                                         std::to_string(questions) + " for " + name + " with " + chip.name);
    }
}

TEST(a_sum_is_a_product_with_ones_where_there_are_products) {
  const Draft sum = usual(NPU_REDUCE, "variance", {512, 768}, 1, {{768, 1}, {1, 0}});
  Draft draft = sum;
  draft.program = std::make_shared<const Program>(
      npu::parse("program sum(x, out)\neach:\n%x = load x : f32\n%s = fold sum %x\nrow:\nstore out, %s\n"));
  draft.params.clear();
  const auto recipe = planned(only(kProducts), draft);
  CHECK(recipe && recipe->steps.size() == 2);
  EQUAL(int{recipe->steps[1].draft.command.kind}, int{NPU_MATMUL});
  EQUAL(recipe->scratch[0], uint64_t{768 * 4});  // the ones
  // Where there are none, two rounds of programs.
  EQUAL(planned(only(kNoReduce), draft)->steps.size(), size_t{2});
}

TEST(a_map_is_a_reduce_where_there_is_no_map) {
  Draft draft(NPU_MAP, {8, 8});
  draft.program = std::make_shared<const Program>(harness::isa_program("add"));
  draft.operands = usual(NPU_MAP, "add", {8, 8}, 0, {{8, 1}, {0, 1}, {8, 1}}).operands;
  draft.params.push_back({0, {}});
  const auto recipe = planned(only({NPU_COPY, NPU_REDUCE}), draft);
  CHECK(recipe && recipe->steps.size() == 1);
  EQUAL(int{recipe->steps[0].draft.command.kind}, int{NPU_REDUCE});
}
