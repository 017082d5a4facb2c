#include "drivers/rtl/device/memory.h"

namespace rtl {

npu_addr Memory::alloc(uint64_t size) {
  if (size > end_ - first_) return 0;
  size = (size + kAlignment - 1) / kAlignment * kAlignment;
  std::lock_guard<std::mutex> lock(mutex_);
  uint64_t start = first_;
  for (const auto& [at, length] : blocks_) {
    if (at - start >= size) break;
    start = at + length;
  }
  if (end_ - start < size) return 0;
  blocks_[start] = size;
  return window_ + start;
}

bool Memory::free(npu_addr addr) {
  std::lock_guard<std::mutex> lock(mutex_);
  return blocks_.erase(addr - window_) != 0;
}

void Memory::info(uint64_t* free_bytes, uint64_t* total_bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  *free_bytes = *total_bytes = end_ - first_;
  for (const auto& [at, length] : blocks_) *free_bytes -= length;
}

std::vector<Memory::Extent> Memory::around(npu_addr low, npu_addr high) {
  std::vector<Extent> out;
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [at, length] : blocks_) {
    const npu_addr first = window_ + at;
    if (first > high || first + length <= low) continue;
    if (!out.empty() && out.back().start + out.back().size == first)
      out.back().size += length;
    else
      out.push_back({first, length});
  }
  return out;
}

bool Memory::find(npu_addr addr, uint64_t size, uint64_t* out) {
  const uint64_t at = addr - window_;
  std::lock_guard<std::mutex> lock(mutex_);
  auto block = blocks_.upper_bound(at);
  if (block == blocks_.begin()) return false;
  --block;
  const uint64_t inside = at - block->first;
  if (inside >= block->second || size > block->second - inside) return false;
  *out = at;
  return true;
}

}  // namespace rtl
