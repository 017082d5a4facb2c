// What a command asks of a device: for counting, profiles and reports.
#pragma once
#include <cstdint>

#include "npu/command.h"

namespace torch_npu {

// Bytes of its operands, each read or written once; broadcast dimensions count once, immediates not at all.
int64_t bytes_of(const npu_command& command);

// Of MATMUL and CONV, a multiply-add as two; 0 for the others, whose programs the driver alone knows.
int64_t flops_of(const npu_command& command);

}  // namespace torch_npu
