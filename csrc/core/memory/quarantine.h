// Freed memory that waits before it can have a new owner, so that the sanitizer sees who still uses it. Only while the
// sanitizer is on.
#pragma once
#include <c10/core/Device.h>

#include <vector>

#include "csrc/core/memory/caching/block.h"

namespace torch_npu {

// Takes the block and gives those that have waited long enough. None of a graph's pool: that has its own rules.
std::vector<caching::Block*> quarantine(caching::Block* block);
// All of it goes to the cache.
void empty_quarantine();

// Is the address in memory that the cache has obtained from the driver?
bool is_cached_memory(c10::DeviceIndex device, npu_addr addr) noexcept;

}  // namespace torch_npu
