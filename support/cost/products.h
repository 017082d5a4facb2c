#pragma once
#include <algorithm>
#include <cstdint>

#include "npu/command.h"

namespace npu {

// Multiply-adds of MATMUL and CONV, whose gradients have as many as the forward pass; 0 of other commands.
inline int64_t multiply_adds(const npu_command& command) {
  int64_t count = 1;
  if (command.kind == NPU_MATMUL) {
    for (int d = 0; d < command.rank; ++d) count *= command.size[d];
    return count * command.u.matmul.k;
  }
  if (command.kind != NPU_CONV) return 0;
  const npu_conv& conv = command.u.conv;
  count = conv.batch * conv.out_channels * (conv.in_channels / std::max<int64_t>(conv.groups, 1));
  for (uint32_t d = 0; d < conv.spatial_rank; ++d) count *= conv.out_size[d] * conv.kernel[d];
  return count;
}

}  // namespace npu
