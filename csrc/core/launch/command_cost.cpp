#include "csrc/core/launch/command_cost.h"

#include "support/cost/products.h"
#include "support/program/operand_shape.h"
#include "support/program/program.h"

namespace torch_npu {
namespace {

// Elements that the command touches of an operand: broadcast dimensions count once.
int64_t elements_of(const npu_command& command, uint32_t number) {
  const npu_operand& operand = command.operands[number];
  if (operand.flags & NPU_OPERAND_IMMEDIATE) return 0;
  int64_t size[NPU_MAX_RANK];
  npu::operand_shape(command, number, size);
  int64_t count = 1;
  for (int d = 0; d < command.rank; ++d) count *= operand.stride[d] == 0 ? 1 : size[d];
  return count;
}

}  // namespace

int64_t bytes_of(const npu_command& command) {
  int64_t bytes = 0;
  for (uint32_t k = 0; k < command.operand_count; ++k) {
    bytes += elements_of(command, k) * npu::dtype_size(command.operands[k].dtype);
  }
  return bytes;
}

int64_t flops_of(const npu_command& command) {
  return 2 * npu::multiply_adds(command);
}

}  // namespace torch_npu
