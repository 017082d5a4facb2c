#include "drivers/cmodel/job/job.h"

namespace cmodel {

bool is_contiguous(const npu_command& command, const Operand& operand) {
  int64_t expected = 1;
  for (int d = command.rank - 1; d >= 0; --d) {
    if (command.size[d] == 1) continue;
    if (operand.stride[d] != expected) return false;
    expected *= command.size[d];
  }
  return true;
}

bool is_one_value(const npu_command& command, const Operand& operand) {
  if (operand.immediate) return true;
  for (int d = 0; d < command.rank; ++d)
    if (command.size[d] > 1 && operand.stride[d] != 0) return false;
  return true;
}

int64_t points_of(const npu_command& command) {
  int64_t points = 1;
  for (int d = 0; d < command.rank; ++d) points *= command.size[d];
  return points;
}

std::string describe(const npu_command& command) {
  std::string text = npu::command_name(command.kind);
  if (command.label) text += std::string(" (") + command.label + ")";
  return text;
}

}  // namespace cmodel
