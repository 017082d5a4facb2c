// What a command asks of a device, whatever the device: for counting, estimates, profiles and reports.
#pragma once
#include <cstdint>

#include "npu/command.h"

namespace npu {

// Different elements of an operand that its strides reach, at most those of the interval they lie in.
struct Reach {
  int64_t elements = 0, bytes = 0;
  bool apart = false;  // no dimension steps to a neighbour
};
Reach reach_of(const npu_command& command, uint32_t operand);

// Bytes of all operands, each read or written once; immediates are none.
int64_t bytes_of(const npu_command& command);

// Multiply-adds of a MATMUL or CONV; 0 for the others. Every gradient of a convolution has those of the forward pass.
int64_t multiply_adds_of(const npu_command& command);

}  // namespace npu
