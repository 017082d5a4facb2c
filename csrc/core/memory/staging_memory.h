// Host memory for what the CPU computes in the device's place.
#pragma once
#include <c10/core/Allocator.h>

namespace torch_npu {

// Keeps memory for the next op, up to 256 MB.
c10::Allocator* staging_allocator();

}  // namespace torch_npu
