// What the tests of the memory cache share.
#pragma once
#include <vector>

#include "csrc/core/memory/caching/core.h"
#include "tests/cpp/allocator/fake_driver.h"
#include "tests/cpp/harness/harness.h"

using namespace torch_npu::caching;

constexpr uint64_t kMiB = 1 << 20;
inline Config g_config;
inline Config config() {
  return g_config;
}

// Facts that one snapshot shows at any moment, also while other threads work.
inline void check_snapshot(const std::vector<SegmentInfo>& segments) {
  for (const auto& segment : segments) {
    npu_addr next = segment.addr;
    for (const auto& block : segment.blocks) {
      CHECK(block.addr == next);
      CHECK(block.size % 512 == 0 && block.size > 0);
      CHECK(block.requested <= block.size);
      next += block.size;
    }
    CHECK(next == segment.addr + segment.size);
  }
}

// Facts that hold while nobody else uses the cache.
inline void check_consistent(CachingCore& core) {
  const auto segments = core.snapshot();
  check_snapshot(segments);
  uint64_t reserved = 0, allocated = 0, active = 0, requested = 0;
  int64_t blocks_allocated = 0;
  for (const auto& segment : segments) {
    for (const auto& block : segment.blocks) {
      reserved += block.size;
      if (block.allocated) {
        allocated += block.size;
        requested += block.requested;
        ++blocks_allocated;
      }
      if (block.active) active += block.size;
    }
  }
  const Stats stats = core.stats();
  CHECK(stats.reserved_bytes.of[0].current == static_cast<int64_t>(reserved));
  CHECK(stats.allocated_bytes.of[0].current == static_cast<int64_t>(allocated));
  CHECK(stats.requested_bytes.of[0].current == static_cast<int64_t>(requested));
  CHECK(stats.active_bytes.of[0].current == static_cast<int64_t>(active));
  CHECK(stats.allocation.of[0].current == blocks_allocated);
  CHECK(stats.inactive_split_bytes.of[0].current <= static_cast<int64_t>(reserved - active));
  for (const StatGroup* group : {&stats.allocation, &stats.allocated_bytes, &stats.reserved_bytes, &stats.active,
                                 &stats.inactive_split, &stats.inactive_split_bytes, &stats.segment}) {
    for (const Stat& stat : group->of) {
      CHECK(stat.current >= 0 && stat.peak >= stat.current);
      CHECK(stat.allocated - stat.freed == stat.current);
    }
  }
}

inline void expect_empty(CachingCore& core) {
  const Stats stats = core.stats();
  for (const StatGroup* group :
       {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes,
        &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes}) {
    for (const Stat& stat : group->of) CHECK(stat.current == 0);
  }
  CHECK(core.snapshot().empty());
}
