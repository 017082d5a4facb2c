// Every rule of the table by itself, and rules on what rules have made: random commands, made from others by the rules'
// `make` alone, run by the reference and compared with what the reference makes of the command.
#include <cstdio>
#include <set>
#include <string>

#include "support/legalise/describe.h"
#include "support/legalise/rules/rule.h"
#include "tests/cpp/harness/harness.h"
#include "tests/cpp/legalise/trial.h"

using namespace legalise_test;
using npu::legalise::Draft;
using npu::legalise::Rule;
using npu::legalise::rules;
using npu::legalise::Script;

namespace {

constexpr int kEnough = 60;  // commands that a rule is tried with
constexpr int kLeast = 10;   // commands that a rule must fit, or the makers have nothing for it

// What rules have made of a command, by chance: each draft is left as it is, or given to a rule that fits it.
class Walk {
 public:
  explicit Walk(uint64_t seed) : seed_(seed) {}

  bool make(const Draft& refused, Script& script) {
    Script out(script);
    steps_ = 0;
    if (!apply(refused, script, out, kDepth)) return false;
    script.drafts = std::move(out.drafts);
    return true;
  }
  std::set<std::string> pairs;  // "first, second": rules of which one had its turn behind the other

 private:
  static constexpr int kDepth = 3;     // rules behind each other
  static constexpr int kSteps = 3000;  // drafts of one command, at most: each is run by the reference

  bool apply(const Draft& draft, Script& memory, Script& out, int depth, const char* before = nullptr) {
    const size_t first = below(rules().size(), &seed_);
    for (size_t k = 0; k < rules().size(); ++k) {
      const Rule& rule = rules()[(first + k) % rules().size()];
      if (!(rule.kinds >> draft.command.kind & 1)) continue;
      Script made(memory);
      made.drafts.clear();
      if (!rule.make(draft, made) || steps_ + made.drafts.size() > kSteps) continue;
      steps_ += made.drafts.size();
      if (before) pairs.insert(std::string(before) + " > " + rule.name);
      for (const Draft& part : made.drafts)
        if (depth == 1 || below(4, &seed_) == 0 || !apply(part, memory, out, depth - 1, rule.name)) out.add(part);
      return true;
    }
    return false;
  }

  uint64_t seed_;
  size_t steps_ = 0;
};

}  // namespace

TEST(each_rule_alone_makes_what_the_reference_makes) {
  for (const Rule& rule : rules()) {
    const Tally tally = try_commands(rule.make, rule.kinds, harness::work(kEnough), harness::seed());
    std::printf("  %-60s fitted %d of %d commands\n", rule.name, tally.fitted, tally.commands);
    if (!tally.failure.empty()) harness::fail(std::string(rule.name) + ": " + tally.failure);
    if (tally.failure.empty() && tally.fitted < kLeast)
      harness::fail(std::string(rule.name) + ": expected at least " + std::to_string(kLeast) +
                    " random commands that it fits, got " + std::to_string(tally.fitted));
  }
}

TEST(rules_make_right_commands_of_what_rules_have_made) {
  Walk walk(harness::seed());
  const Make make = [&](const Draft& refused, Script& script) { return walk.make(refused, script); };
  for (int kind = 0; kind < NPU_COMMAND_COUNT; ++kind) {
    const Tally tally = try_commands(make, 1u << kind, harness::work(kEnough), harness::seed());
    if (!tally.failure.empty()) harness::fail(tally.failure);
  }
  std::printf("  %zu pairs of rules\n", walk.pairs.size());
}

// The trial is worth something only if it finds a rule that is wrong.
TEST(a_wrong_rule_is_found) {
  const Make forgets_the_last_row = [](const Draft& refused, Script& script) {
    if (refused.command.rank < 1) return false;
    Draft less = refused;
    less.command.size[0] -= less.command.size[0] > 1;
    script.add(less);
    return true;
  };
  for (int kind = 0; kind < NPU_COMMAND_COUNT; ++kind) {
    if (kind == NPU_CONV) continue;  // its sizes are said twice, so that no such draft is a command
    const Tally tally = try_commands(forgets_the_last_row, 1u << kind, kEnough, harness::seed());
    CHECK_NOTE(!tally.failure.empty(), std::string("expected a difference in ") + npu::command_name(kind));
  }
}
