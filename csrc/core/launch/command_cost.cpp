#include "csrc/core/launch/command_cost.h"

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
  if (command.kind == NPU_MATMUL) {
    int64_t points = 1;
    for (int d = 0; d < command.rank; ++d) points *= command.size[d];
    return 2 * points * command.u.matmul.k;
  }
  if (command.kind != NPU_CONV) return 0;
  // Every gradient of a convolution has the products of the forward pass.
  const npu_conv& conv = command.u.conv;
  int64_t products = conv.batch * conv.out_channels * (conv.in_channels / conv.groups);
  for (uint32_t d = 0; d < conv.spatial_rank; ++d) products *= conv.out_size[d] * conv.kernel[d];
  return 2 * products;
}

}  // namespace torch_npu
