// The simulated physical memory of one device. Device addresses are numbers; behind each region lies one reservation
// of host address space, whose pages are given to the process only where there is a live allocation.
//
// Every 64 KB of a region (a granule) belongs to at most one allocation or range, so a table from granule to extent
// answers "which host bytes are these, and are they live" with two loads and no lock.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "drivers/cmodel/memory/region_options.h"
#include "npu/runtime.h"

namespace cmodel {

constexpr uint64_t kGranule = 64 << 10;
constexpr uint64_t kAlignment = 512;  // of ranges; allocations begin at granules
constexpr uint64_t kHugePage = 2 << 20;

// Live bytes [begin, end) of device addresses. Records are reused but never given back, so that a reader which races
// with a free (an error of the host) reads an old record and not somebody else's memory.
struct Extent {
  std::atomic<uint64_t> begin{0}, end{0};
  std::atomic<bool> range{false};
};

// Free granules of a region: best fit, joined with their neighbours.
class FreeSpans {
 public:
  void give(uint64_t begin, uint64_t count);
  bool take(uint64_t count, uint64_t align, uint64_t* begin);

 private:
  std::map<uint64_t, uint64_t> by_begin_;
  std::set<std::pair<uint64_t, uint64_t>> by_size_;
};

// A reservation of host addresses. Pages open and close in pieces of 2 MB.
class HostReservation {
 public:
  ~HostReservation();
  bool reserve(uint64_t size);
  char* data() const { return data_; }
  bool open(uint64_t begin, uint64_t end);   // readable and writable
  void close(uint64_t begin, uint64_t end);  // contents given back; unreadable where whole pieces are free

 private:
  char* data_ = nullptr;
  void* mapping_ = nullptr;
  uint64_t mapped_ = 0;
  std::vector<bool> open_;
};

struct Region {
  std::string name;
  uint64_t base = 0, size = 0;
  HostReservation host;
  std::atomic<Extent*>* table = nullptr;  // one per granule, zero pages until touched
  FreeSpans free;

  ~Region();
  bool reserve();
};

// Where device bytes are. `begin` and `end` bound the live extent.
struct Span {
  char* ptr = nullptr;
  char* begin = nullptr;
  char* end = nullptr;
};

class Memory {
 public:
  // Throws std::runtime_error if the host has no addresses left.
  Memory(const std::vector<RegionOptions>& regions, uint32_t device, uint64_t address_offset);

  // True if all of [addr, addr + size) is live; size > 0. Any thread, no lock.
  bool find(npu_addr addr, uint64_t size, Span* out) const {
    const uint32_t count = region_count_.load(std::memory_order_acquire);
    for (uint32_t i = 0; i < count; ++i) {
      const Region& region = *regions_[i];
      const uint64_t offset = addr - region.base;
      if (offset >= region.size) continue;
      const Extent* extent = region.table[offset / kGranule].load(std::memory_order_acquire);
      if (!extent) return false;
      const uint64_t begin = extent->begin.load(std::memory_order_relaxed);
      const uint64_t end = extent->end.load(std::memory_order_relaxed);
      if (addr >= begin && addr < end && size <= end - addr) {
        char* ptr = region.host.data() + offset;
        *out = {ptr, ptr - (addr - begin), ptr + (end - addr)};
        return true;
      }
      return extent->range.load(std::memory_order_relaxed) && find_in_range(region, addr, size, out);
    }
    return false;
  }

  // The same of host bytes in a region. Any thread, no lock.
  bool live(const char* begin, const char* end) const;
  // Host bounds of the region that holds `addr`.
  bool region_at(npu_addr addr, Span* out) const;
  // First live address in [begin, end).
  bool first_live(npu_addr begin, npu_addr end, npu_addr* found) const;
  // Why find() says no: "[0x..., 0x...) outside any live allocation", or which allocation it leaves.
  std::string why_not(npu_addr begin, npu_addr end) const;

  npu_status alloc(uint64_t size, npu_addr* out, std::string* error);
  npu_status free(npu_addr addr, std::string* error);
  void info(uint64_t* free_bytes, uint64_t* total_bytes) const;
  uint64_t total() const { return total_; }

  npu_status range_reserve(uint64_t size, npu_addr* out, std::string* error);
  npu_status range_map(npu_addr addr, uint64_t size, std::string* error);
  npu_status range_unmap(npu_addr addr, uint64_t size, std::string* error);
  npu_status range_release(npu_addr addr, std::string* error);

 private:
  struct Range {
    uint64_t begin = 0, end = 0;
    std::map<uint64_t, uint64_t> mapped;  // begin -> end, never adjacent
    Extent* extent = nullptr;             // shows the longest mapped part
    void show();
  };

  bool find_in_range(const Region& region, npu_addr addr, uint64_t size, Span* out) const;
  bool take(Region& region, uint64_t size, uint64_t* addr);
  Extent* place(Region& region, uint64_t addr, uint64_t size, uint64_t end, bool range);
  void remove(Region& region, uint64_t addr, uint64_t size, Extent* extent);
  Range* range_of(npu_addr addr, uint64_t size, std::string* error);
  Region* window();
  std::string no_room(uint64_t size) const;

  const uint32_t device_;
  uint64_t total_ = 0;
  // Regions of the options, then (from the first range on) the window that ranges live in.
  std::vector<std::unique_ptr<Region>> regions_;
  std::atomic<uint32_t> region_count_{0};
  uint32_t plain_regions_ = 0;

  mutable std::mutex mutex_;
  uint64_t used_ = 0;
  std::deque<Extent> extents_;
  std::vector<Extent*> spare_;
  std::unordered_map<npu_addr, std::pair<Region*, Extent*>> live_;
  std::map<npu_addr, Range> ranges_;
};

}  // namespace cmodel
