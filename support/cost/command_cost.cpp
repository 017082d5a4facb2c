#include "support/cost/command_cost.h"

#include <algorithm>
#include <cstdlib>

#include "support/program/operand_shape.h"
#include "support/program/program.h"

namespace npu {

Reach reach_of(const npu_command& command, uint32_t operand) {
  const npu_operand& o = command.operands[operand];
  if (o.flags & NPU_OPERAND_IMMEDIATE || o.addr == 0) return {};
  int64_t size[NPU_MAX_RANK];
  operand_shape(command, operand, size);
  int64_t elements = 1, interval = 1;
  bool neighbours = false;
  for (int d = 0; d < command.rank; ++d) {
    if (size[d] == 0) return {};
    if (o.stride[d] != 0) elements *= size[d];
    neighbours |= size[d] > 1 && std::abs(o.stride[d]) == 1;
    interval += (size[d] - 1) * std::abs(o.stride[d]);
  }
  elements = std::min(elements, interval);
  return {elements, elements * dtype_size(o.dtype), elements > 1 && !neighbours};
}

int64_t bytes_of(const npu_command& command) {
  int64_t bytes = 0;
  for (uint32_t k = 0; k < command.operand_count; ++k) bytes += reach_of(command, k).bytes;
  return bytes;
}

int64_t multiply_adds_of(const npu_command& command) {
  if (command.kind == NPU_MATMUL) {
    int64_t points = 1;
    for (int d = 0; d < command.rank; ++d) points *= command.size[d];
    return points * command.u.matmul.k;
  }
  if (command.kind != NPU_CONV) return 0;
  const npu_conv& conv = command.u.conv;
  int64_t products = conv.batch * conv.out_channels * (conv.in_channels / std::max<int64_t>(conv.groups, 1));
  for (uint32_t d = 0; d < conv.spatial_rank; ++d) products *= conv.out_size[d] * conv.kernel[d];
  return products;
}

}  // namespace npu
