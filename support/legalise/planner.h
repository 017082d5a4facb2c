// Finding the commands that do the work of one that was refused, by trying the rules.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "support/legalise/legaliser.h"
#include "support/legalise/rules/rule.h"

namespace npu::legalise {

// What a planner asks a driver.
struct Ask {
  std::function<npu_program*(const Program&)> program;  // null: it has no such program
  std::function<bool(const npu_command&)> supports;
  std::function<bool(const Draft&)> refused;  // by submit, as it is known
};

// `recipe` is null where no rule leads to commands that the driver takes.
struct Plan {
  std::shared_ptr<const Recipe> recipe;
  bool by_address = false;  // it was made for addresses that are the same modulo kAlignment
};
Plan plan(const Draft& refused, const std::vector<uint32_t>& aliases, const Ask& ask);

// The same recipe with another way for one of its steps, which submit has refused.
Plan replan(const Recipe& recipe, size_t step, const std::vector<uint32_t>& aliases, const Ask& ask);

// What a recipe depends on: all but addresses and the values of immediates and of parameters that are not known.
std::string signature(const Draft& draft, const std::vector<uint32_t>& aliases);
// The same of a command in a recipe: whether a driver takes it depends on that.
std::string draft_key(const Draft& draft);
// What of the addresses a recipe may depend on.
std::string skews(const Draft& draft);
std::string content_key(const Program& program);

// Has one of the first `steps` steps stored to an operand of `refused` that it also reads?
bool overwrites_input(const Draft& refused, const Recipe& recipe, size_t steps, const std::vector<uint32_t>& aliases);

}  // namespace npu::legalise
