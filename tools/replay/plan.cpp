#include "tools/replay/plan.h"

#include <map>

#include "support/cost/chip.h"
#include "support/cost/command_cost.h"
#include "support/driver/json_text.h"
#include "support/verify/element.h"

namespace replay {

using namespace npu;

namespace {

std::string list(const std::vector<std::string>& texts) {
  std::string out = "[";
  for (size_t k = 0; k < texts.size(); ++k) out += (k ? ", " : "") + json_text(texts[k]);
  return out + "]";
}

std::string numbers(const int64_t* from, int count) {
  std::string out = "[";
  for (int k = 0; k < count; ++k) out += (k ? ", " : "") + std::to_string(from[k]);
  return out + "]";
}

// What an engineer asks first: does it lie as it is walked?
const char* stride_class(const npu_command& command, uint32_t operand) {
  const npu_operand& of = command.operands[operand];
  if (of.flags & NPU_OPERAND_IMMEDIATE) return "immediate";
  int64_t size[NPU_MAX_RANK];
  operand_shape(command, operand, size);
  bool dense = true, broadcast = false, backwards = false, neighbours = false;
  int64_t step = 1;
  for (int d = command.rank; d-- > 0; step *= size[d]) {
    if (size[d] == 1) continue;
    dense &= of.stride[d] == step;
    broadcast |= of.stride[d] == 0;
    backwards |= of.stride[d] < 0;
    neighbours |= of.stride[d] == 1;
  }
  return dense ? "dense" : backwards ? "backwards" : broadcast ? "broadcast" : neighbours ? "strided" : "apart";
}

std::string operands_json(const npu_command& command) {
  std::string out = "[";
  for (uint32_t k = 0; k < command.operand_count; ++k)
    out += std::string(k ? ", " : "") + "{\"type\": \"" + dtype_name(command.operands[k].dtype) + "\", \"lies\": \"" +
           stride_class(command, k) + "\", \"strides\": " + numbers(command.operands[k].stride, command.rank) + "}";
  return out + "]";
}

// What of a program takes time on any chip.
std::string work_json(const npu_command& command, const npu_program_desc* program) {
  const Work work = work_of(command, program);
  std::string out = ", \"bytes\": " + std::to_string(bytes_of(command)) +
                    ", \"multiply_adds\": " + std::to_string(multiply_adds_of(command)) +
                    ", \"operations\": " + std::to_string(work.ops) + ", \"functions\": {";
  for (bool first = true; const auto& [op, count] : work.functions) {
    out += std::string(first ? "" : ", ") + "\"" + op_name(op) + "\": " + std::to_string(count);
    first = false;
  }
  return out + "}";
}

std::string answer_json(const Answer& answer, const std::string& difference) {
  static constexpr const char* kNames[] = {"native", "legalised", "refused"};
  char time[32];
  std::snprintf(time, sizeof time, "%.6g", answer.milliseconds);
  std::string out = std::string(", \"answer\": \"") + (difference.empty() ? kNames[answer.kind] : "wrong") +
                    "\", \"words\": " + json_text(answer.words) + ", \"milliseconds\": " + time +
                    ", \"rules\": " + list(answer.decision.rules) + ", \"steps\": " + list(answer.decision.steps);
  if (!difference.empty()) out += ", \"difference\": " + json_text(difference);
  return out;
}

}  // namespace

std::string plan_json(const Trace& trace, const std::string& driver, uint32_t device,
                      const std::function<void(const TraceEntry&)>& each) {
  Player player(trace, driver, device, Budget{.exact = Exact::kNo});
  player.legalise();
  std::map<uint64_t, const Program*> programs;
  std::string out = "{\"driver\": " + json_text(driver) + ", \"commands\": [";
  for (bool first = true; const TraceEntry& entry : trace.entries) {
    if (entry.kind == Entry::kProgram) programs[entry.number] = &entry.program;
    if (entry.kind == Entry::kCommand) each(entry);
    const std::string difference = player.step(entry);
    if (entry.kind != Entry::kCommand) continue;
    const npu_command command = entry.command.borrow();
    const Program* program = entry.command.program ? programs.at(entry.command.program) : nullptr;
    npu_program_desc desc{};
    if (program) desc = program->desc();
    out += std::string(first ? "\n" : ",\n") + " {\"number\": " + std::to_string(entry.command.number) +
           ", \"op\": " + json_text(entry.command.label) + ", \"kind\": \"" + command_name(command.kind) +
           "\", \"what\": " + json_text(command_text(command)) + ", \"size\": " + numbers(command.size, command.rank) +
           ", \"inner_rank\": " + std::to_string(command.inner_rank) + ", \"operands\": " + operands_json(command) +
           ", \"program\": " + json_text(program ? to_text(desc) : "") + work_json(command, program ? &desc : nullptr) +
           answer_json(player.answer(), difference) + "}";
    first = false;
  }
  return out + "\n]}\n";
}

}  // namespace replay
