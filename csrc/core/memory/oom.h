// The text of an out-of-memory error: what a person needs in order to act.
#pragma once
#include <string>

#include "csrc/core/device/device.h"
#include "csrc/core/memory/caching/types.h"

namespace torch_npu {

std::string human_bytes(uint64_t size);  // "1.50 MiB"
std::string describe_out_of_memory(const Device& device, const caching::OutOfMemory& why);

}  // namespace torch_npu
