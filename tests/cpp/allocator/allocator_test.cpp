// Tests of the memory cache (csrc/core/memory/caching), without PyTorch.
#include <thread>

#include "tests/cpp/allocator/check.h"

namespace {

struct Fixture {
  npu_device device;
  CachingCore core;
  npu_stream* stream;
  OutOfMemory why;
  explicit Fixture(uint64_t capacity = 256 * kMiB)
      : device(capacity), core(fake_driver(), &device, 64, 0, &config), stream(device.new_stream()) {}
  Block* get(uint64_t size) { return core.allocate(stream, size, &why); }
};

TEST(size_classes_cover_every_size) {
  uint64_t last = 0;
  int index = -1;
  for (uint64_t units = 1; units <= kSmallLimit / kUnit; ++units) {
    const SizeClass c = SizeClass::of(units);
    CHECK(c.units >= units && c.units * 4 <= units * 5 + 4);
    CHECK(c.index >= 0 && c.index < SizeClass::kCount);
    CHECK(c.index == index ? c.units == last : c.index == index + 1 && c.units > last);
    index = c.index;
    last = c.units;
  }
  CHECK(index == SizeClass::kCount - 1);
}

TEST(freed_memory_is_reused_last_in_first_out) {
  Fixture f;
  Block* a = f.get(1000);
  Block* b = f.get(1000);
  CHECK(a->size == 1024 && a->addr != b->addr);
  const npu_addr at_a = a->addr, at_b = b->addr;
  f.core.free(a);
  f.core.free(b);
  CHECK(f.get(900)->addr == at_b);
  CHECK(f.get(1024)->addr == at_a);
  CHECK(f.core.stats().num_device_alloc == 1);
  CHECK(f.core.stats().reserved_bytes.of[1].current == 2 * static_cast<int64_t>(kMiB));
  check_consistent(f.core);
  f.core.free(f.core.find(at_a));
  f.core.free(f.core.find(at_b + 100));
}

TEST(bins_merge_before_more_memory_is_taken) {
  Fixture f;
  std::vector<Block*> blocks;
  for (int k = 0; k < 4096; ++k) blocks.push_back(f.get(512));  // fills 2 MiB
  for (Block* block : blocks) f.core.free(block);
  CHECK(f.core.stats().inactive_split_bytes.of[1].current == 2 * static_cast<int64_t>(kMiB));
  Block* big = f.get(kMiB);
  CHECK(f.core.stats().num_device_alloc == 1);
  check_consistent(f.core);
  f.core.free(big);
}

TEST(large_blocks_are_split_and_merged) {
  Fixture f;
  Block* a = f.get(3 * kMiB);
  Block* b = f.get(5 * kMiB);
  CHECK(f.core.stats().segment.of[2].current == 1 && b->addr == a->addr + 3 * kMiB);
  f.core.free(a);
  f.core.free(b);
  const auto segments = f.core.snapshot();
  CHECK(segments.size() == 1 && segments[0].blocks.size() == 1 && segments[0].size == 20 * kMiB);
  CHECK(f.core.stats().inactive_split.of[0].current == 0);
  f.core.empty_cache();
  expect_empty(f.core);
  CHECK(f.device.all_returned());
}

TEST(a_recorded_stream_delays_reuse) {
  Fixture f;
  npu_stream* other = f.device.new_stream();
  f.device.running = false;
  Block* a = f.get(4096);
  const npu_addr at = a->addr;
  f.device.use(at, 4096, other);
  f.core.record_stream(a, {fake_driver(), &f.device, other});
  f.core.free(a);
  Stats stats = f.core.stats();
  CHECK(stats.allocated_bytes.of[0].current == 0 && stats.active_bytes.of[0].current == 4096);
  Block* b = f.get(4096);
  CHECK(b->addr != at);
  f.device.running = true;
  while (f.device.in_use(at, 4096, nullptr)) std::this_thread::yield();
  Block* c = f.get(4096);
  CHECK(c->addr == at);
  f.core.free(b);
  f.core.free(c);
  check_consistent(f.core);
}

TEST(empty_cache_waits_for_queued_work) {
  Fixture f;
  Block* a = f.get(30 * kMiB);
  for (int k = 0; k < 1000; ++k) f.device.use(a->addr, a->size, f.stream);
  f.core.free(a);
  f.core.empty_cache();
  CHECK(f.device.violations == 0 && f.device.all_returned());
}

TEST(running_out_of_memory_is_reported_and_survived) {
  Fixture f(64 * kMiB);
  npu_stream* other = f.device.new_stream();
  Block* cached = f.core.allocate(other, 40 * kMiB, &f.why);
  f.core.free(cached);  // cached for the other stream: must be given up for this one
  Block* a = f.get(50 * kMiB);
  CHECK(a && f.core.stats().num_alloc_retries == 1);
  CHECK(!f.get(20 * kMiB));
  CHECK(f.why.requested == 20 * kMiB && f.why.device_total == 64 * kMiB && f.why.allocated == 50 * kMiB);
  CHECK(f.why.driver_text == "expected free memory, got a full device" && !f.why.over_limit);
  CHECK(f.core.stats().num_ooms == 1);
  f.core.free(a);
  Block* b = f.get(60 * kMiB);
  CHECK(b);
  // 2 MiB segments no longer fit, but what is asked for does.
  Block* rest = f.get(3 * kMiB);
  CHECK(rest && rest->size == 3 * kMiB);
  f.core.free(b);
  f.core.free(rest);
  check_consistent(f.core);
}

TEST(pending_memory_is_awaited_before_giving_up) {
  Fixture f(64 * kMiB);
  npu_stream* other = f.device.new_stream();
  Block* a = f.get(60 * kMiB);
  for (int k = 0; k < 1000; ++k) f.device.use(a->addr, a->size, other);
  f.core.record_stream(a, {fake_driver(), &f.device, other});
  f.core.free(a);
  Block* b = f.get(60 * kMiB);
  CHECK(b && f.core.stats().num_sync_all_streams == 1);
  CHECK(!f.device.in_use(b->addr, b->size, f.stream));
  f.core.free(b);
}

TEST(the_limit_holds) {
  Fixture f;
  f.core.set_limit(32 * kMiB);
  CHECK(!f.get(40 * kMiB));
  CHECK(f.why.over_limit && f.why.limit == 32 * kMiB && f.why.driver_text.empty());
  Block* a = f.get(32 * kMiB);
  CHECK(a);
  f.core.set_limit(0);
  Block* b = f.get(40 * kMiB);
  CHECK(b);
  f.core.free(a);
  f.core.free(b);
}

TEST(oversize_blocks_stay_whole) {
  g_config.max_split_size = 30 * kMiB;
  Fixture f;
  Block* a = f.get(100 * kMiB);
  f.core.free(a);
  Block* b = f.get(12 * kMiB);  // must not cut the block of 100 MiB
  CHECK(f.core.stats().num_device_alloc == 2 && f.core.stats().oversize_segments.current == 1);
  Block* c = f.get(95 * kMiB);
  CHECK(c->size == 100 * kMiB && f.core.stats().oversize_allocations.current == 1);
  f.core.free(b);
  f.core.free(c);
  CHECK(f.core.stats().oversize_allocations.current == 0);
  g_config = {};
}

TEST(garbage_is_collected_oldest_first) {
  g_config.garbage_collection_threshold = 0.5;
  Fixture f;
  f.core.set_limit(200 * kMiB);
  Block* a = f.get(40 * kMiB);
  Block* b = f.get(40 * kMiB);
  f.core.free(a);
  f.core.free(b);
  const npu_addr kept = b->addr;
  Block* c = f.get(50 * kMiB);  // 80 + 50 MiB is over 100 MiB: a goes, b stays
  CHECK(f.core.stats().num_device_free == 1);
  CHECK(f.get(40 * kMiB)->addr == kept);
  f.core.free(f.core.find(kept));
  f.core.free(c);
  g_config = {};
}

TEST(expandable_segments_grow_in_place) {
  g_config.expandable_segments = true;
  {
    Fixture f;
    Block* a = f.get(18 * kMiB);
    Block* b = f.get(30 * kMiB);
    CHECK(b->addr == a->addr + 18 * kMiB);
    CHECK(f.core.stats().segment.of[2].current == 1);
    f.core.free(a);
    f.core.empty_cache();  // the hole before b is given back
    CHECK(f.device.used() < 50 * kMiB && f.device.used() >= 30 * kMiB);
    check_consistent(f.core);
    Block* c = f.get(16 * kMiB);
    CHECK(c->addr < b->addr);
    Block* d = f.get(100 * kMiB);
    CHECK(d && d->addr > b->addr);
    for (Block* block : {b, c, d}) f.core.free(block);
    check_consistent(f.core);
    CHECK(f.core.snapshot().size() == 1);
    Block* all = f.get(250 * kMiB);  // fits only because nothing is fragmented
    CHECK(all);
    f.core.free(all);
    f.core.empty_cache();
    expect_empty(f.core);
    CHECK(f.device.all_returned() && f.device.violations == 0);
  }
  g_config = {};
}

TEST(statistics_can_be_reset) {
  Fixture f;
  Block* a = f.get(kMiB);
  Block* b = f.get(512);
  f.core.free(a);
  CHECK(f.core.stats().allocated_bytes.of[0].peak == static_cast<int64_t>(kMiB) + 512);
  f.core.reset_peak_stats();
  CHECK(f.core.stats().allocated_bytes.of[0].peak == 512);
  f.core.reset_accumulated_stats();
  CHECK(f.core.stats().allocation.of[0].allocated == 0 && f.core.stats().allocation.of[0].freed == 0);
  f.core.free(b);
  CHECK(f.core.stats().allocation.of[0].freed == 1 && f.core.stats().allocation.of[0].current == 0);
}

TEST(a_private_pool_keeps_its_memory_while_it_is_held) {
  Fixture f;
  const PoolId pool{1, 0};
  f.core.free(f.get(4096));
  f.core.begin_pool(pool, f.stream);
  Block* inside = f.get(4096);
  const npu_addr address = inside->addr;
  CHECK(f.core.stats().num_device_alloc == 2);  // not the memory that was freed outside
  f.core.free(inside);
  inside = f.get(4000);
  CHECK(inside->addr == address);
  f.core.end_pool(f.stream);
  f.core.free(inside);
  Block* outside = f.get(4096);
  CHECK(outside->addr != address);
  f.core.empty_cache();
  CHECK(f.core.stats().segment.of[0].current == 2);  // one in use, one held
  f.core.begin_pool(pool, f.stream);                 // a second graph, the same pool
  CHECK(f.get(4096)->addr == address);
  f.core.end_pool(f.stream);
  f.core.release_pool(pool);
  f.core.empty_cache();
  CHECK(f.core.stats().segment.of[0].current == 2);
  f.core.release_pool(pool);
  f.core.empty_cache();
  CHECK(f.core.stats().segment.of[0].current == 2);  // a tensor still has it
  f.core.free(f.core.find(address));
  f.core.empty_cache();
  CHECK(f.core.stats().segment.of[0].current == 1);
  check_consistent(f.core);
  f.core.free(outside);
}

TEST(a_thread_that_ends_in_a_pool_leaves_it) {
  Fixture f;
  const PoolId pool{1, 0};
  Block* block = nullptr;
  std::thread([&] {
    f.core.begin_thread_pool(pool);
    f.core.begin_thread_pool(pool);
    block = f.get(4096);
  }).join();
  CHECK(block->pool->is_private && f.core.holders(pool) == 0);
  f.core.free(block);
  for (int k = 0; k < 8; ++k) {  // one of them has the first one's number
    std::thread([&] { block = f.get(4096); }).join();
    CHECK(!block->pool->is_private);
    f.core.free(block);
  }
}

TEST(a_use_of_a_pool_can_end_on_another_thread) {
  Fixture f;
  const PoolId here{1, 0}, there{2, 0};
  const uint64_t first = f.core.begin_thread_pool(here);
  std::thread([&] {
    f.core.begin_thread_pool(there);
    f.core.end_thread_pool(first);
    Block* block = f.get(4096);
    CHECK(block->pool->id == there);
    f.core.free(block);
  }).join();
  Block* block = f.get(4096);
  CHECK(!block->pool->is_private && f.core.holders(here) == 0);
  f.core.free(block);
}

TEST(a_core_can_end_before_a_thread_that_used_its_pools) {
  std::thread([] {
    Fixture f;
    f.core.begin_thread_pool({1, 0});
  }).join();
}

}  // namespace
