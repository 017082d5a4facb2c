#include "support/legalise/planner.h"

#include <algorithm>

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
  Search(const std::vector<uint32_t>& aliases, const Ask& ask, Price most)
      : aliases_(aliases), ask_(ask), most_(most) {}

  bool serve(const Draft& draft, const std::string& path) {
    if (npu_program* program = nullptr; taken(draft, &program)) {
      recipe.steps.push_back({draft, program, path});
      return true;
    }
    if (draft.plain) return false;
    // A chip that has nearly nothing has many dead ends; each costs microseconds, once per signature.
    constexpr int kMostQuestions = 4000;
    if (questions_ > kMostQuestions) return false;
    for (size_t k = 0; k < rules().size(); ++k) {
      const Rule& rule = rules()[k];
      const uint64_t bit = uint64_t{1} << k;
      if (rule.price > most_) break;
      if (!(rule.kinds >> draft.command.kind & 1) || (!rule.repeats && draft.tried & bit)) continue;
      if (follow(rule, bit, draft, path)) return true;
    }
    return false;
  }

  Recipe recipe;

 private:
  bool follow(const Rule& rule, uint64_t bit, const Draft& draft, const std::string& path) {
    const size_t steps = recipe.steps.size(), scratch = recipe.scratch.size();
    Script script(recipe.scratch, aliases_);
    bool served = rule.make(draft, script);
    for (Draft& made : script.drafts) {
      if (!served) break;
      made.tried = draft.tried | bit;
      made.command.label = draft.command.label;
      served = serve(made, path.empty() ? rule.name : path + "; " + rule.name);
    }
    if (!served) {
      recipe.steps.resize(steps);
      recipe.scratch.resize(scratch);
    }
    return served;
  }

  bool taken(const Draft& draft, npu_program** program) {
    ++questions_;
    if (ask_.refused(draft_key(draft))) return false;
    npu_command command = draft.command;
    std::vector<npu_operand> operands;
    for (const Operand& operand : draft.operands) operands.push_back(operand.form);
    command.operands = operands.data();
    command.operand_count = static_cast<uint32_t>(operands.size());
    command.param_count = static_cast<uint32_t>(draft.params.size());
    npu_program_desc desc{};
    if (draft.program) {
      desc = draft.program->desc();
      if (!validate(desc).empty()) return false;  // too long, too many values alive: another rule's work
    }
    if (!validate_command(command, draft.program ? &desc : nullptr).empty()) return false;
    if (draft.program) {
      *program = ask_.program(*draft.program);
      if (!*program) return false;
      command.program = *program;
    }
    return ask_.supports(command);
  }

  const std::vector<uint32_t>& aliases_;
  const Ask& ask_;
  const Price most_;
  int questions_ = 0;
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
  for (const Step& step : recipe.steps)
    if (std::find(recipe.rules.begin(), recipe.rules.end(), step.rules) == recipe.rules.end())
      recipe.rules.push_back(step.rules);
}

}  // namespace

std::shared_ptr<const Recipe> plan(const Draft& refused, const std::vector<uint32_t>& aliases, const Ask& ask) {
  // A dear rule is not used where cheaper ones suffice, in whatever order.
  for (const Price most : {Price::kCalls, Price::kPass, Price::kPasses, Price::kLast}) {
    Search search(aliases, ask, most);
    if (!search.serve(refused, "")) continue;
    find_lives(search.recipe);
    name_rules(search.recipe);
    return std::make_shared<const Recipe>(std::move(search.recipe));
  }
  return nullptr;
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
