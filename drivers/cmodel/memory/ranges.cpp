// Address ranges that grow: reserved addresses whose parts get and lose memory. They live in a window of their own
// behind the regions, because together they may be much larger than the memory.
#include <algorithm>

#include "drivers/cmodel/memory/memory.h"
#include "support/driver/address_text.h"

namespace cmodel {

using npu::driver::hex;
using npu::driver::interval;
namespace {

constexpr uint64_t kWindowPerByte = 16;
constexpr uint64_t kMaxWindow = uint64_t{1} << 43;
constexpr uint64_t kWindowAlign = uint64_t{1} << 32;

uint64_t round_up(uint64_t value, uint64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

// Readers look at begin, then end. The extent is empty while it changes, and a reader that sees a mixture and refuses
// looks again under the lock.
void Memory::Range::show() {
  uint64_t from = begin, to = begin;
  for (const auto& [b, e] : mapped)
    if (e - b > to - from) from = b, to = e;
  if (from != extent->begin.load(std::memory_order_relaxed)) {
    extent->end.store(0, std::memory_order_relaxed);
    extent->begin.store(from, std::memory_order_relaxed);
  }
  extent->end.store(to, std::memory_order_release);
}

bool Memory::find_in_range(const Region& region, npu_addr addr, uint64_t size, Span* out) const {
  std::lock_guard<std::mutex> lock(mutex_);
  auto it = ranges_.upper_bound(addr);
  if (it == ranges_.begin()) return false;
  const Range& range = (--it)->second;
  auto part = range.mapped.upper_bound(addr);
  if (part == range.mapped.begin()) return false;
  --part;
  if (addr >= part->second || size > part->second - addr) return false;
  char* ptr = region.host.data() + (addr - region.base);
  *out = {ptr, ptr - (addr - part->first), ptr + (part->second - addr)};
  return true;
}

Region* Memory::window() {
  if (regions_.size() > plain_regions_) return regions_.back().get();
  uint64_t high = 0;
  for (const auto& region : regions_) high = std::max(high, region->base + region->size);
  // The host may limit addresses (ulimit -v): a smaller window still serves.
  for (uint64_t times = kWindowPerByte; times >= 1; times /= 2) {
    auto region = std::make_unique<Region>();
    region->name = "ranges";
    region->base = round_up(high, kWindowAlign);
    region->size = std::min(round_up(total_, kHugePage) * times, kMaxWindow);
    if (!region->reserve()) continue;
    region->free.give(0, region->size / kGranule);
    regions_.push_back(std::move(region));
    region_count_.store(static_cast<uint32_t>(regions_.size()), std::memory_order_release);
    return regions_.back().get();
  }
  return nullptr;
}

npu_status Memory::range_reserve(uint64_t size, npu_addr* out, std::string* error) {
  if (size == 0) {
    *error = "expected a range of at least 1 byte, got 0";
    return NPU_ERROR_INVALID;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  Region* region = window();
  uint64_t addr = 0;
  if (!region || size > region->size || !take(*region, size, &addr)) {
    *error = "expected a range that fits the addresses left on device " + std::to_string(device_) + ", got " +
             std::to_string(size) + " bytes; release other ranges first";
    return NPU_ERROR_MEMORY;
  }
  Range& range = ranges_[addr];
  range.begin = addr;
  range.end = addr + size;
  range.extent = place(*region, addr, size, addr, true);
  *out = addr;
  return NPU_OK;
}

// The range that holds all of [addr, addr + size), checked for alignment.
Memory::Range* Memory::range_of(npu_addr addr, uint64_t size, std::string* error) {
  if (addr % kAlignment || size % kAlignment || size == 0) {
    *error = "expected address and size of a part of a range to be multiples of " + std::to_string(kAlignment) +
             ", got " + hex(addr) + " and " + std::to_string(size);
    return nullptr;
  }
  auto it = ranges_.upper_bound(addr);
  if (it != ranges_.begin()) {
    Range& range = std::prev(it)->second;
    // The end of a reservation counts as rounded up: its last part has to be whole.
    const uint64_t end = round_up(range.end, kAlignment);
    if (addr < end && size <= end - addr) return &range;
  }
  *error = "expected a part of a reserved range, got " + interval(addr, addr + size);
  return nullptr;
}

npu_status Memory::range_map(npu_addr addr, uint64_t size, std::string* error) {
  std::lock_guard<std::mutex> lock(mutex_);
  Range* range = range_of(addr, size, error);
  if (!range) return NPU_ERROR_INVALID;
  auto next = range->mapped.lower_bound(addr);
  if ((next != range->mapped.end() && next->first < addr + size) ||
      (next != range->mapped.begin() && std::prev(next)->second > addr)) {
    *error = "expected a part of a range without memory, got " + interval(addr, addr + size) + " partly mapped";
    return NPU_ERROR_INVALID;
  }
  Region& region = *regions_.back();
  if (size > total_ - used_ || !region.host.open(addr - region.base, addr - region.base + size)) {
    *error = no_room(size);
    return NPU_ERROR_MEMORY;
  }
  used_ += size;
  uint64_t begin = addr, end = addr + size;
  if (next != range->mapped.end() && next->first == end) {
    end = next->second;
    next = range->mapped.erase(next);
  }
  if (next != range->mapped.begin() && std::prev(next)->second == begin) {
    --next;
    begin = next->first;
    range->mapped.erase(next);
  }
  range->mapped[begin] = end;
  range->show();
  return NPU_OK;
}

npu_status Memory::range_unmap(npu_addr addr, uint64_t size, std::string* error) {
  std::lock_guard<std::mutex> lock(mutex_);
  Range* range = range_of(addr, size, error);
  if (!range) return NPU_ERROR_INVALID;
  auto part = range->mapped.upper_bound(addr);
  if (part == range->mapped.begin() || std::prev(part)->second < addr + size) {
    *error = "expected a part of a range with memory, got " + interval(addr, addr + size) + " not all mapped";
    return NPU_ERROR_INVALID;
  }
  --part;
  const uint64_t begin = part->first, end = part->second;
  range->mapped.erase(part);
  if (begin < addr) range->mapped[begin] = addr;
  if (addr + size < end) range->mapped[addr + size] = end;
  range->show();
  // Whole pages only: a neighbour may live on the first and the last.
  Region& region = *regions_.back();
  const uint64_t page = 4096, first = round_up(addr - region.base, page),
                 last = (addr - region.base + size) / page * page;
  if (first < last) region.host.close(first, last);
  used_ -= size;
  return NPU_OK;
}

npu_status Memory::range_release(npu_addr addr, std::string* error) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = ranges_.find(addr);
  if (it == ranges_.end()) {
    *error = "expected the address of a reserved range, got " + hex(addr);
    return NPU_ERROR_ADDRESS;
  }
  if (!it->second.mapped.empty()) {
    *error = "expected a range with all of its memory unmapped, got one with memory at " +
             hex(it->second.mapped.begin()->first);
    return NPU_ERROR_INVALID;
  }
  remove(*regions_.back(), addr, it->second.end - addr, it->second.extent);
  ranges_.erase(it);
  return NPU_OK;
}

}  // namespace cmodel
