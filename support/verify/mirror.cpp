#include "support/verify/mirror.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace npu {

void Mirror::Unmap::operator()(std::byte* bytes) const {
  munmap(bytes, size);
}

void Mirror::add(const std::vector<npu_addr>& addr, uint64_t size) {
  // Pages appear when they are first written.
  void* bytes = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (bytes == MAP_FAILED) throw std::bad_alloc();
  Block& block = blocks_[addr[0]];
  block.addr = addr;
  block.size = size;
  block.bytes = {static_cast<std::byte*>(bytes), {size}};
  block.used.assign((size + kChunk - 1) / kChunk, false);
}

bool Mirror::remove(npu_addr addr) {
  return blocks_.erase(addr) > 0;
}

std::vector<npu_addr> Mirror::sides(npu_addr addr) const {
  const auto found = blocks_.find(addr);
  return found == blocks_.end() ? std::vector<npu_addr>() : found->second.addr;
}

std::map<npu_addr, Mirror::Block>::const_iterator Mirror::around(npu_addr addr) const {
  auto next = blocks_.upper_bound(addr);
  if (next == blocks_.begin()) return blocks_.end();
  --next;
  return addr - next->first < next->second.size ? next : blocks_.end();
}

std::byte* Mirror::find(npu_addr addr, uint64_t size) {
  const auto block = around(addr);
  if (block == blocks_.end() || size > block->second.size - (addr - block->first)) return nullptr;
  return block->second.bytes.get() + (addr - block->first);
}

Extent Mirror::allocation(npu_addr addr) const {
  const auto block = around(addr);
  return block == blocks_.end() ? Extent{} : Extent{block->first, block->second.size};
}

std::vector<Extent> Mirror::fresh(npu_addr addr, uint64_t size) {
  std::vector<Extent> out;
  const auto found = around(addr);
  if (found == blocks_.end() || size == 0) return out;
  Block& block = blocks_[found->first];
  const uint64_t begin = addr - found->first, end = std::min(block.size, begin + size);
  for (uint64_t chunk = begin / kChunk; chunk * kChunk < end; ++chunk) {
    if (block.used[chunk]) continue;
    block.used[chunk] = true;
    out.push_back({found->first + chunk * kChunk, std::min(kChunk, block.size - chunk * kChunk)});
  }
  return out;
}

npu_addr Mirror::on(size_t side, npu_addr addr) const {
  const auto block = around(addr);
  return block == blocks_.end() ? addr : block->second.addr[side] + (addr - block->first);
}

}  // namespace npu
