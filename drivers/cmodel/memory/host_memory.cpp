// Host pages behind the simulated memory.
#include <sys/mman.h>

#include <algorithm>

#include "drivers/cmodel/memory/memory.h"

namespace cmodel {
namespace {

constexpr uint64_t kGiveBack = 256 << 10;  // smaller pieces stay with the process: the call costs more than they

void* map_addresses(uint64_t size, int protection) {
  void* at = mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : at;
}

}  // namespace

void FreeSpans::give(uint64_t begin, uint64_t count) {
  auto next = by_begin_.lower_bound(begin);
  if (next != by_begin_.end() && next->first == begin + count) {
    count += next->second;
    by_size_.erase({next->second, next->first});
    next = by_begin_.erase(next);
  }
  if (next != by_begin_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      count += before->second;
      by_size_.erase({before->second, before->first});
      by_begin_.erase(before);
    }
  }
  by_begin_[begin] = count;
  by_size_.insert({count, begin});
}

bool FreeSpans::take(uint64_t count, uint64_t align, uint64_t* begin) {
  for (auto it = by_size_.lower_bound({count, 0}); it != by_size_.end(); ++it) {
    const auto [have, from] = *it;
    const uint64_t at = (from + align - 1) / align * align;
    if (at - from + count > have) continue;
    by_size_.erase(it);
    by_begin_.erase(from);
    if (at > from) give(from, at - from);
    if (at + count < from + have) give(at + count, from + have - at - count);
    *begin = at;
    return true;
  }
  return false;
}

bool HostReservation::reserve(uint64_t size) {
  mapped_ = size + 2 * kHugePage;
  mapping_ = map_addresses(mapped_, PROT_NONE);
  if (!mapping_) return false;
  const uint64_t at = reinterpret_cast<uint64_t>(mapping_);
  data_ = static_cast<char*>(mapping_) + ((at + kHugePage - 1) / kHugePage * kHugePage - at);
  open_.assign((size + kHugePage - 1) / kHugePage, false);
  return true;
}

HostReservation::~HostReservation() {
  if (mapping_) munmap(mapping_, mapped_);
}

bool HostReservation::open(uint64_t begin, uint64_t end) {
  for (uint64_t page = begin / kHugePage, last = (end - 1) / kHugePage; page <= last;) {
    if (open_[page]) {
      ++page;
      continue;
    }
    uint64_t stop = page;
    while (stop <= last && !open_[stop]) ++stop;
    if (mprotect(data_ + page * kHugePage, (stop - page) * kHugePage, PROT_READ | PROT_WRITE) != 0) return false;
    std::fill(open_.begin() + static_cast<int64_t>(page), open_.begin() + static_cast<int64_t>(stop), true);
    page = stop;
  }
  const uint64_t first = (begin + kHugePage - 1) / kHugePage, last = end / kHugePage;
  if (first < last) madvise(data_ + first * kHugePage, (last - first) * kHugePage, MADV_HUGEPAGE);
  return true;
}

void HostReservation::close(uint64_t begin, uint64_t end) {
  end = (end + 4095) / 4096 * 4096;  // an allocation owns the rest of its last page
  if (end - begin >= kGiveBack) madvise(data_ + begin, end - begin, MADV_DONTNEED);
  const uint64_t first = (begin + kHugePage - 1) / kHugePage, last = end / kHugePage;
  if (first >= last) return;
  // Fails only where the kernel has no room for another mapping; the pages are then merely not protected.
  if (mprotect(data_ + first * kHugePage, (last - first) * kHugePage, PROT_NONE) != 0) return;
  std::fill(open_.begin() + static_cast<int64_t>(first), open_.begin() + static_cast<int64_t>(last), false);
}

Region::~Region() {
  if (table) munmap(static_cast<void*>(table), size / kGranule * sizeof *table);
}

bool Region::reserve() {
  if (!host.reserve(size)) return false;
  // Zero pages are null pointers; only the parts in use cost memory.
  table = static_cast<std::atomic<Extent*>*>(map_addresses(size / kGranule * sizeof *table, PROT_READ | PROT_WRITE));
  return table != nullptr;
}

}  // namespace cmodel
