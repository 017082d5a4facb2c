#include "support/legalise/describe.h"

#include "support/legalise/legaliser.h"

namespace npu::legalise {
namespace {

std::string joined(const int64_t* numbers, int count, const char* between) {
  std::string text;
  for (int k = 0; k < count; ++k) text += (k ? between : "") + std::to_string(numbers[k]);
  return text;
}

}  // namespace

std::string describe(const Draft& draft) {
  const npu_command& command = draft.command;
  std::string text = command_name(command.kind);
  if (command.label) text += std::string(" ") + command.label;
  text += " " + (command.rank ? joined(command.size, command.rank, "x") : std::string("one point"));
  if (command.inner_rank) text += " inner " + std::to_string(command.inner_rank);
  if (command.kind == NPU_MATMUL) text += " k=" + std::to_string(command.u.matmul.k);
  text += ":";
  for (const Operand& operand : draft.operands) {
    text += std::string(" ") + dtype_name(operand.form.dtype);
    text += operand.immediate() ? "=" : "(" + joined(operand.form.stride, command.rank, ",") + ")";
  }
  if (draft.program) {
    text += ", program " + draft.program->name;
    text += " of " + std::to_string(draft.program->instrs.size());
  }
  return text;
}

std::vector<std::string> describe(const Recipe& recipe) {
  std::vector<std::string> lines;
  std::string last;
  size_t times = 0;
  const auto flush = [&] {
    if (times) lines.push_back((times > 1 ? std::to_string(times) + "x " : std::string()) + last);
  };
  for (const Step& step : recipe.steps) {
    std::string line = describe(step.draft);
    if (times && line == last) {
      ++times;
      continue;
    }
    flush();
    last = std::move(line);
    times = 1;
  }
  flush();
  return lines;
}

}  // namespace npu::legalise
