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
  std::function<bool(const std::string&)> refused;  // a draft_key that submit is known to refuse
};

// Null: no rule leads to commands that the driver takes.
std::shared_ptr<const Recipe> plan(const Draft& refused, const std::vector<uint32_t>& aliases, const Ask& ask);

// What a recipe depends on: all but addresses and the values of immediates and of parameters that are not known.
std::string signature(const Draft& draft, const std::vector<uint32_t>& aliases);
// The same of a command in a recipe: whether a driver takes it depends on that.
std::string draft_key(const Draft& draft);
std::string content_key(const Program& program);

// Has one of the first `steps` steps stored to an operand of `refused` that it also reads?
bool overwrites_input(const Draft& refused, const Recipe& recipe, size_t steps, const std::vector<uint32_t>& aliases);

}  // namespace npu::legalise
