#include "drivers/cmodel/memory/memory.h"

#include <algorithm>
#include <stdexcept>

#include "support/driver/address_text.h"

namespace cmodel {

using npu::driver::hex;
using npu::driver::interval;
namespace {

uint64_t round_up(uint64_t value, uint64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

Memory::Memory(const std::vector<RegionOptions>& regions, uint32_t device, uint64_t address_offset) : device_(device) {
  regions_.reserve(regions.size() + 1);  // readers hold no lock: the array never moves
  for (const RegionOptions& options : regions) {
    auto region = std::make_unique<Region>();
    region->name = options.name;
    region->base = options.base + address_offset;
    region->size = options.size / kGranule * kGranule;
    if (!region->reserve())
      throw std::runtime_error("expected the host to reserve " + std::to_string(options.size) +
                               " bytes of addresses for region " + options.name +
                               ", got a refusal; lower memory= or regions= in the driver's options");
    region->free.give(0, region->size / kGranule);
    total_ += region->size;
    regions_.push_back(std::move(region));
  }
  plain_regions_ = static_cast<uint32_t>(regions_.size());
  region_count_.store(plain_regions_, std::memory_order_release);
}

std::string Memory::no_room(uint64_t size) const {
  return "expected a request that fits device " + std::to_string(device_) + " (" + std::to_string(total_ - used_) +
         " of " + std::to_string(total_) + " bytes free), got " + std::to_string(size) +
         " bytes; free memory, or raise memory= in the driver's options";
}

// Large allocations begin at huge pages where there is room for it.
bool Memory::take(Region& region, uint64_t size, uint64_t* addr) {
  const uint64_t count = round_up(size, kGranule) / kGranule;
  uint64_t begin = 0;
  if (!(size >= kHugePage && region.free.take(count, kHugePage / kGranule, &begin)) &&
      !region.free.take(count, 1, &begin))
    return false;
  *addr = region.base + begin * kGranule;
  return true;
}

Extent* Memory::place(Region& region, uint64_t addr, uint64_t size, uint64_t end, bool range) {
  Extent* extent;
  if (spare_.empty()) {
    extent = &extents_.emplace_back();
  } else {
    extent = spare_.back();
    spare_.pop_back();
  }
  extent->begin.store(addr, std::memory_order_relaxed);
  extent->end.store(end, std::memory_order_relaxed);
  extent->range.store(range, std::memory_order_relaxed);
  const uint64_t first = (addr - region.base) / kGranule, count = round_up(size, kGranule) / kGranule;
  for (uint64_t i = 0; i < count; ++i) region.table[first + i].store(extent, std::memory_order_release);
  return extent;
}

void Memory::remove(Region& region, uint64_t addr, uint64_t size, Extent* extent) {
  const uint64_t first = (addr - region.base) / kGranule, count = round_up(size, kGranule) / kGranule;
  for (uint64_t i = 0; i < count; ++i) region.table[first + i].store(nullptr, std::memory_order_relaxed);
  extent->end.store(extent->begin.load(std::memory_order_relaxed), std::memory_order_relaxed);
  spare_.push_back(extent);
  region.free.give(first, count);
}

npu_status Memory::alloc(uint64_t size, npu_addr* out, std::string* error) {
  if (size == 0) {
    *error = "expected an allocation of at least 1 byte, got 0";
    return NPU_ERROR_INVALID;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (size <= total_ && round_up(size, kGranule) <= total_ - used_) {
    for (uint32_t i = 0; i < plain_regions_; ++i) {
      Region& region = *regions_[i];
      uint64_t addr = 0;
      if (!take(region, size, &addr)) continue;
      const uint64_t offset = addr - region.base;
      if (!region.host.open(offset, offset + size)) {
        region.free.give(offset / kGranule, round_up(size, kGranule) / kGranule);
        break;
      }
      live_[addr] = {&region, place(region, addr, size, addr + size, false)};
      used_ += round_up(size, kGranule);
      *out = addr;
      return NPU_OK;
    }
  }
  *error = no_room(size);
  return NPU_ERROR_MEMORY;
}

npu_status Memory::free(npu_addr addr, std::string* error) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = live_.find(addr);
  if (it == live_.end()) {
    *error = "expected the address of a live allocation, got " + hex(addr);
    return NPU_ERROR_ADDRESS;
  }
  const auto [region, extent] = it->second;
  const uint64_t size = extent->end.load(std::memory_order_relaxed) - addr;
  live_.erase(it);
  remove(*region, addr, size, extent);
  region->host.close(addr - region->base, addr - region->base + size);
  used_ -= round_up(size, kGranule);
  return NPU_OK;
}

void Memory::info(uint64_t* free_bytes, uint64_t* total_bytes) const {
  std::lock_guard<std::mutex> lock(mutex_);
  *free_bytes = total_ - used_;
  *total_bytes = total_;
}

bool Memory::live(const char* begin, const char* end) const {
  const uint32_t count = region_count_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    const Region& region = *regions_[i];
    const uint64_t offset = static_cast<uint64_t>(begin - region.host.data());
    if (offset >= region.size) continue;
    Span span;
    return find(region.base + offset, static_cast<uint64_t>(end - begin), &span);
  }
  return false;
}

bool Memory::region_at(npu_addr addr, Span* out) const {
  const uint32_t count = region_count_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    const Region& region = *regions_[i];
    if (addr - region.base >= region.size) continue;
    *out = {region.host.data() + (addr - region.base), region.host.data(), region.host.data() + region.size};
    return true;
  }
  return false;
}

bool Memory::first_live(npu_addr begin, npu_addr end, npu_addr* found) const {
  std::lock_guard<std::mutex> lock(mutex_);
  bool any = false;
  const auto consider = [&](uint64_t from, uint64_t to) {
    if (from >= end || to <= begin) return;
    const uint64_t at = std::max(from, begin);
    if (!any || at < *found) *found = at;
    any = true;
  };
  for (const auto& [addr, where] : live_) consider(addr, where.second->end.load(std::memory_order_relaxed));
  for (const auto& [addr, range] : ranges_)
    for (const auto& [from, to] : range.mapped) consider(from, to);
  return any;
}

std::string Memory::why_not(npu_addr begin, npu_addr end) const {
  npu_addr live;
  Span span;
  if (begin >= end || !first_live(begin, end, &live) || !find(live, 1, &span))
    return interval(begin, end) + " outside any live allocation";
  const npu_addr from = live - static_cast<uint64_t>(span.ptr - span.begin);
  const npu_addr to = live + static_cast<uint64_t>(span.end - span.ptr);
  if (end > to) return interval(begin, end) + " past the end of the live allocation " + interval(from, to);
  return interval(begin, end) + " before the begin of the live allocation " + interval(from, to);
}

}  // namespace cmodel
