#include "support/legalise/planner.h"

#include <algorithm>
#include <unordered_map>

#include "support/program/accesses.h"
#include "support/program/validate.h"

namespace npu::legalise {
namespace {

template <class T>
void put(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

class Search {
 public:
  Search(const std::vector<uint32_t>& aliases, const Ask& ask, Price most, size_t depth)
      : aliases_(aliases), ask_(ask), most_(most), depth_(depth) {}

  bool serve(const Draft& draft, const std::string& path) {
    npu_program* program = nullptr;
    const Answer answer = ask(draft, &program);
    if (answer == Answer::kTaken) {
      recipe.steps.push_back({draft, program, path});
      return true;
    }
    if (recipe.steps.size() >= kMostSteps || (questions_ += answer != Answer::kTaken) > kMostQuestions) return false;
    if ((draft.program && draft.program->instrs.size() > kLongest) || is_dead(draft)) return false;
    const bool placed = answer == Answer::kRefusedAtSubmit;
    if (draft.plain && !placed) return false;
    if ((placed && follow_any(draft, path, true)) || follow_any(draft, path, false)) return true;
    dead_[form(draft)].push_back(draft.tried);
    return false;
  }

  Recipe recipe;
  bool by_address = false;
  bool deeper = false;  // more rules behind each other might lead somewhere

 private:
  // A chip that has nearly nothing has many dead ends; each costs some ten microseconds, once per signature and depth.
  static constexpr int kMostQuestions = 700;  // drafts that were refused
  static constexpr size_t kMostSteps = 1 << 14;
  static constexpr size_t kLongest = 4 * NPU_MAX_INSTRS;  // instructions of a program that is still to be cut

  enum class Answer : uint8_t { kTaken, kRefused, kRefusedAtSubmit };

  bool follow_any(const Draft& draft, const std::string& path, bool placement) {
    for (size_t k = 0; k < rules().size(); ++k) {
      const Rule& rule = rules()[k];
      // Of a draft that submit refuses, what moves it has its turn at any price: other rules only look like help.
      if (rule.price > most_ && !placement) break;
      if (rule.placement != placement || !(rule.kinds >> draft.command.kind & 1)) continue;
      if (!rule.repeats && draft.tried[k]) continue;
      RuleSet tried = draft.tried;
      if (tried.set(k).count() > depth_)
        deeper = true;
      else if (follow(rule, tried, draft, path))
        return true;
    }
    return false;
  }

  bool follow(const Rule& rule, const RuleSet& tried, const Draft& draft, const std::string& path) {
    const size_t steps = recipe.steps.size(), scratch = recipe.scratch.size();
    Script script(recipe.scratch, aliases_);
    bool served = rule.make(draft, script);
    by_address |= script.by_address;
    for (Draft& made : script.drafts) {
      if (!served) break;
      made.tried = tried;
      made.command.label = draft.command.label;
      served = serve(made, path.empty() ? rule.name : path + "; " + rule.name);
    }
    if (!served) {
      recipe.steps.resize(steps);
      recipe.scratch.resize(scratch);
    }
    return served;
  }

  // All that rules look at.
  std::string form(const Draft& draft) const {
    std::string key = draft_key(draft) + skews(draft);
    for (const Operand& operand : draft.operands)
      for (size_t other = 0; other < draft.operands.size(); ++other)
        if (same_place(operand, draft.operands[other])) {
          put(key, other);
          break;
        }
    return key;
  }
  bool same_place(const Operand& a, const Operand& b) const {
    if (a.place.kind != b.place.kind) return false;
    if (a.place.kind != Place::kOperand) return a.place.number == b.place.number;
    return aliases_[a.place.number] == aliases_[b.place.number];
  }
  // It led nowhere before, with no more rules out of its reach.
  bool is_dead(const Draft& draft) const {
    const auto known = dead_.find(form(draft));
    if (known == dead_.end()) return false;
    return std::any_of(known->second.begin(), known->second.end(),
                       [&](const RuleSet& tried) { return (tried & ~draft.tried).none(); });
  }

  Answer ask(const Draft& draft, npu_program** program) {
    if (ask_.refused(draft)) return Answer::kRefusedAtSubmit;
    npu_command command = draft.command;
    std::vector<npu_operand> operands;
    for (const Operand& operand : draft.operands) operands.push_back(operand.form);
    command.operands = operands.data();
    command.operand_count = static_cast<uint32_t>(operands.size());
    command.param_count = static_cast<uint32_t>(draft.params.size());
    npu_program_desc desc{};
    if (draft.program) {
      desc = draft.program->desc();
      if (!validate(desc).empty()) return Answer::kRefused;  // too long, too many values alive: another rule's work
    }
    if (!validate_command(command, draft.program ? &desc : nullptr).empty()) return Answer::kRefused;
    if (draft.program) {
      *program = ask_.program(*draft.program);
      if (!*program) return Answer::kRefused;
      command.program = *program;
    }
    return ask_.supports(command) ? Answer::kTaken : Answer::kRefused;
  }

  const std::vector<uint32_t>& aliases_;
  const Ask& ask_;
  const Price most_;
  const size_t depth_;  // so many rules behind each other, at most
  int questions_ = 0;
  std::unordered_map<std::string, std::vector<RuleSet>> dead_;  // forms, and the rules behind which they led nowhere
};

void find_lives(Recipe& recipe) {
  recipe.life.assign(recipe.scratch.size(), {recipe.steps.size(), 0});
  for (size_t step = 0; step < recipe.steps.size(); ++step)
    for (const Operand& operand : recipe.steps[step].draft.operands)
      if (operand.place.kind == Place::kScratch) {
        auto& [first, last] = recipe.life[operand.place.number];
        first = std::min(first, step);
        last = std::max(last, step);
      }
}

void name_rules(Recipe& recipe) {
  recipe.rules.clear();
  for (const Step& step : recipe.steps)
    if (std::find(recipe.rules.begin(), recipe.rules.end(), step.rules) == recipe.rules.end())
      recipe.rules.push_back(step.rules);
}

// `recipe` with the steps of another one in the place of one of its own.
std::shared_ptr<const Recipe> spliced(Recipe recipe, size_t step, Recipe steps) {
  recipe.scratch = std::move(steps.scratch);
  const auto at = recipe.steps.erase(recipe.steps.begin() + static_cast<std::ptrdiff_t>(step));
  recipe.steps.insert(at, steps.steps.begin(), steps.steps.end());
  find_lives(recipe);
  name_rules(recipe);
  return std::make_shared<const Recipe>(std::move(recipe));
}

}  // namespace

Plan plan(const Draft& refused, const std::vector<uint32_t>& aliases, const Ask& ask) {
  Recipe whole;
  whole.steps.push_back({refused, nullptr, ""});
  return replan(whole, 0, aliases, ask);
}

Plan replan(const Recipe& recipe, size_t step, const std::vector<uint32_t>& aliases, const Ask& ask) {
  Plan plan;
  const Step& refused = recipe.steps[step];
  const size_t before = refused.draft.tried.count();
  // A dear rule is not used where cheaper ones suffice, in whatever order; and no rule where fewer do.
  constexpr size_t kDeepest = 7;  // rules behind each other
  for (const Price most : {Price::kCalls, Price::kPass, Price::kPasses, Price::kLast}) {
    bool deeper = true;
    for (size_t depth = 1; depth <= kDeepest && deeper; ++depth) {
      Search search(aliases, ask, most, before + depth);
      search.recipe.scratch = recipe.scratch;
      const bool served = search.serve(refused.draft, refused.rules);
      plan.by_address |= search.by_address;
      deeper = search.deeper;
      if (!served) continue;
      plan.recipe = spliced(recipe, step, std::move(search.recipe));
      return plan;
    }
  }
  return plan;
}

std::string content_key(const Program& program) {
  std::string key;
  put(key, program.operand_count);
  put(key, program.param_count);
  key.append(reinterpret_cast<const char*>(program.instrs.data()), program.instrs.size() * sizeof(npu_instr));
  key.append(reinterpret_cast<const char*>(program.consts.data()), program.consts.size() * sizeof(uint64_t));
  return key;
}

std::string draft_key(const Draft& draft) {
  std::string key;
  npu_command command = draft.command;
  command.operands = nullptr;
  command.params = nullptr;
  command.program = nullptr;
  command.label = nullptr;
  put(key, command);
  for (const Operand& operand : draft.operands) {
    npu_operand form = operand.form;
    form.addr = 0;
    put(key, form);
  }
  if (draft.program) key += content_key(*draft.program);
  return key;
}

std::string skews(const Draft& draft) {
  std::string key;
  for (const Operand& operand : draft.operands) put(key, operand.skew);
  return key;
}

std::string signature(const Draft& draft, const std::vector<uint32_t>& aliases) {
  std::string key = draft_key(draft);
  for (const uint32_t alias : aliases) put(key, alias);
  for (const Param& param : draft.params)
    if (param.known) put(key, param.value);
  return key;
}

bool overwrites_input(const Draft& refused, const Recipe& recipe, size_t steps, const std::vector<uint32_t>& aliases) {
  std::vector<bool> read(refused.operands.size(), false);
  npu_program_desc desc{};
  if (refused.program) desc = refused.program->desc();
  npu_command command = refused.command;
  command.operand_count = static_cast<uint32_t>(refused.operands.size());
  for (const Access& access : accesses_of(command, refused.program ? &desc : nullptr))
    if (!access.write || access.meets) read[aliases[access.operand]] = true;
  for (size_t step = 0; step < steps; ++step) {
    const Draft& draft = recipe.steps[step].draft;
    if (draft.program) desc = draft.program->desc();
    command = draft.command;
    command.operand_count = static_cast<uint32_t>(draft.operands.size());
    for (const Access& access : accesses_of(command, draft.program ? &desc : nullptr)) {
      const Place& place = draft.operands[access.operand].place;
      if (access.write && place.kind == Place::kOperand && read[aliases[place.number]]) return true;
    }
  }
  return false;
}

}  // namespace npu::legalise
