#pragma once
#include <cstdint>

#include "npu/command.h"

namespace npu {

// The extents that an operand's strides belong to: those of the index space, except for the inputs of products and the
// results of SORT.
void operand_shape(const npu_command& command, uint32_t operand, int64_t* size);

}  // namespace npu
