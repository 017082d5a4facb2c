#include "support/program/operand_shape.h"

#include <algorithm>

namespace npu {

void operand_shape(const npu_command& command, uint32_t operand, int64_t* size) {
  std::copy_n(command.size, NPU_MAX_RANK, size);
  const int last = command.rank - 1;
  if (command.kind == NPU_SORT && operand >= 2) size[last] = std::min(size[last], command.u.sort.count);
  if (command.kind == NPU_MATMUL && operand < 2) size[last - static_cast<int>(operand)] = command.u.matmul.k;
  if (command.kind == NPU_CONV && operand < 2) {
    const npu_conv& conv = command.u.conv;
    const bool weight = operand == 1 && conv.mode != NPU_CONV_GRAD_WEIGHT;
    const bool input = conv.mode == NPU_CONV_FORWARD ? operand == 0 : conv.mode == NPU_CONV_GRAD_WEIGHT && operand == 1;
    size[0] = weight ? conv.out_channels : conv.batch;
    size[1] = weight  ? conv.in_channels / std::max<int64_t>(conv.groups, 1)
              : input ? conv.in_channels
                      : conv.out_channels;
    for (uint32_t d = 0; d < std::min(conv.spatial_rank, 3u); ++d)
      size[2 + d] = weight ? conv.kernel[d] : input ? conv.in_size[d] : conv.out_size[d];
  }
}

}  // namespace npu
