// Random sequences over several threads and streams.
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>

#include "tests/cpp/allocator/check.h"

namespace {

// Who has what: two live blocks must never overlap.
class Live {
 public:
  void add(npu_addr addr, uint64_t size) {
    std::lock_guard lock(mutex_);
    const auto after = ranges_.lower_bound(addr);
    CHECK(after == ranges_.end() || addr + size <= after->first);
    CHECK(after == ranges_.begin() || std::prev(after)->first + std::prev(after)->second <= addr);
    ranges_[addr] = size;
  }
  void remove(npu_addr addr) {
    std::lock_guard lock(mutex_);
    CHECK(ranges_.erase(addr) == 1);
  }

 private:
  std::mutex mutex_;
  std::map<npu_addr, uint64_t> ranges_;
};

struct Shared {
  const npu_driver* api;
  npu_device* device;
  npu_device* fake;  // null on a real driver
  CachingCore* core;
  std::vector<npu_stream*> streams;
  Live live;
  uint64_t largest;
};

void random_walk(Shared& s, int steps, unsigned seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](uint64_t n) { return random() % n; };
  npu_stream* own = s.streams[seed % s.streams.size()];  // threads have different ones
  const PoolId pool{seed % 2, 9};                        // shared by half of them
  bool capturing = false;
  std::vector<Block*> mine;
  const auto drop = [&](size_t k) {
    Block* block = mine[k];
    mine[k] = mine.back();
    mine.pop_back();
    s.live.remove(block->addr);
    s.core->free(block);
  };
  for (int step = 0; step < steps; ++step) {
    const uint64_t dice = below(1000);
    if (dice < 480) {
      npu_stream* stream = s.streams[below(s.streams.size())];
      const uint64_t size = 1 + below(below(10) == 0 ? s.largest : uint64_t{1} << (1 + below(20)));
      OutOfMemory why;
      Block* block = s.core->allocate(stream, size, &why);
      if (!block) {
        CHECK(why.status == NPU_ERROR_MEMORY);
        while (mine.size() > 4) drop(below(mine.size()));
        continue;
      }
      CHECK(block->size >= size);
      s.live.add(block->addr, block->size);
      mine.push_back(block);
      if (s.fake) {
        CHECK(!s.fake->in_use(block->addr, block->size, stream));
        s.fake->use(block->addr, block->size, stream);
      }
    } else if (dice < 900) {
      if (!mine.empty()) drop(below(mine.size()));
    } else if (dice < 985) {
      if (mine.empty()) continue;
      Block* block = mine[below(mine.size())];
      npu_stream* stream = s.streams[below(s.streams.size())];
      s.core->record_stream(block, {s.api, s.device, stream});
      if (s.fake) s.fake->use(block->addr, block->size, stream);
    } else if (dice < 995) {
      if (!mine.empty()) CHECK(s.core->find(mine[0]->addr + mine[0]->size - 1) == mine[0]);
      check_snapshot(s.core->snapshot());
    } else if (dice < 997) {
      s.core->empty_cache();
    } else if (capturing) {
      s.core->end_pool(own);
      s.core->release_pool(pool);
      capturing = false;
    } else {
      s.core->begin_pool(pool, own);
      capturing = true;
    }
  }
  while (!mine.empty()) drop(mine.size() - 1);
  if (capturing) {
    s.core->end_pool(own);
    s.core->release_pool(pool);
  }
}

void random_sequences(Shared& s, unsigned seed) {
  std::vector<std::thread> threads;
  for (unsigned k = 0; k < 4; ++k)
    threads.emplace_back([&s, seed, k] { random_walk(s, harness::work(2500), seed * 10 + k); });
  for (auto& thread : threads) thread.join();
  check_consistent(*s.core);
  s.core->empty_cache();
  expect_empty(*s.core);
}

void lose_nothing(bool expandable) {
  g_config.expandable_segments = expandable;
  for (uint64_t seed = harness::seed(); seed < harness::seed() + 3; ++seed) {
    npu_device device(192 * kMiB);
    CachingCore core(fake_driver(), &device, 64, 0, &config);
    Shared s{fake_driver(), &device, &device, &core, {}, {}, 24 * kMiB};
    for (int k = 0; k < 5; ++k) s.streams.push_back(device.new_stream());
    random_sequences(s, static_cast<unsigned>(seed));
    CHECK(device.all_returned());
    CHECK(device.violations == 0);
  }
  g_config = {};
}

}  // namespace

TEST(random_sequences_lose_nothing) {
  lose_nothing(false);
}

TEST(random_sequences_in_expandable_segments_lose_nothing) {
  lose_nothing(true);
}

#ifdef NPU_CMODEL_LIBRARY
TEST(random_sequences_on_the_c_model_give_all_back) {
  void* library = dlopen(NPU_CMODEL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  const npu_driver* api = reinterpret_cast<const npu_driver* (*)()>(dlsym(library, "npu_driver_get"))();
  npu_instance* instance = nullptr;
  npu_device* device = nullptr;
  CHECK(api->open("", &instance) == NPU_OK);
  CHECK(api->device_open(instance, 0, &device) == NPU_OK);
  npu_properties properties{};
  properties.struct_size = sizeof(properties);
  CHECK(api->device_properties(device, &properties) == NPU_OK);
  uint64_t free_before = 0, free_after = 0, total = 0;
  CHECK(api->memory_info(device, &free_before, &total) == NPU_OK);
  for (const bool expandable : {false, true}) {
    g_config.expandable_segments = expandable;
    CachingCore core(api, device, properties.alignment, 0, &config);
    Shared s{api, device, nullptr, &core, {}, {}, 24 * kMiB};
    for (int k = 0; k < 5; ++k) CHECK(api->stream_create(device, 0, &s.streams.emplace_back()) == NPU_OK);
    random_sequences(s, 7);
    for (npu_stream* stream : s.streams) api->stream_destroy(stream);
  }
  CHECK(api->memory_info(device, &free_after, &total) == NPU_OK);
  CHECK(free_before == free_after);
  api->device_close(device);
  api->close(instance);
  g_config = {};
}
#endif
