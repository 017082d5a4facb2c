// What the tests of the memory cache share.
#pragma once
#include <atomic>
#include <cstdio>
#include <vector>

#include "csrc/core/memory/caching/core.h"
#include "fake_driver.h"

using namespace torch_npu::caching;

inline std::atomic<int> failures{0};

#define EXPECT(condition)                                                  \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::printf("%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                          \
    }                                                                      \
  } while (0)

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
      EXPECT(block.addr == next);
      EXPECT(block.size % 512 == 0 && block.size > 0);
      EXPECT(block.requested <= block.size);
      next += block.size;
    }
    EXPECT(next == segment.addr + segment.size);
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
  EXPECT(stats.reserved_bytes.of[0].current == static_cast<int64_t>(reserved));
  EXPECT(stats.allocated_bytes.of[0].current == static_cast<int64_t>(allocated));
  EXPECT(stats.requested_bytes.of[0].current == static_cast<int64_t>(requested));
  EXPECT(stats.active_bytes.of[0].current == static_cast<int64_t>(active));
  EXPECT(stats.allocation.of[0].current == blocks_allocated);
  EXPECT(stats.inactive_split_bytes.of[0].current <= static_cast<int64_t>(reserved - active));
  for (const StatGroup* group : {&stats.allocation, &stats.allocated_bytes, &stats.reserved_bytes, &stats.active,
                                 &stats.inactive_split, &stats.inactive_split_bytes, &stats.segment}) {
    for (const Stat& stat : group->of) {
      EXPECT(stat.current >= 0 && stat.peak >= stat.current);
      EXPECT(stat.allocated - stat.freed == stat.current);
    }
  }
}

inline void expect_empty(CachingCore& core) {
  const Stats stats = core.stats();
  for (const StatGroup* group :
       {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes,
        &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes}) {
    for (const Stat& stat : group->of) EXPECT(stat.current == 0);
  }
  EXPECT(core.snapshot().empty());
}

// random_test.cpp
void random_sequences_lose_nothing(bool expandable);
void random_sequences_on(const char* path);
