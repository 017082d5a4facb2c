// A region is one parallel_run. Its caller publishes it in a slot, works through it from the front, closes it and waits
// only for helpers that are inside. Helpers come in from the other end, so each side walks memory in one direction and
// a helper that the scheduler never ran costs nothing.
#include "drivers/cmodel/threads/pool.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

#include "support/driver/after_fork.h"
#include "support/driver/event_count.h"

namespace cmodel {
namespace {

using npu::driver::EventCount;

constexpr int kRegions = 16;  // regions at once; a caller that finds no slot works alone
constexpr int kMaxThreads = 256;
constexpr int kChunksPerThread = 8;  // small enough that a late helper still finds work
constexpr int64_t kHelperSpinNs = 50'000;
constexpr uint32_t kOpen = 1u << 31;

struct alignas(64) Region {
  std::atomic<bool> taken{false};
  std::atomic<uint32_t> gate{0};  // kOpen, and the number of helpers inside
  std::atomic<int> priority{0};   // smaller goes first
  void* context = nullptr;
  Chunk chunk = nullptr;
  int64_t count = 0, step = 0;
  int max_helper = 0;                         // helpers with this number and above stay out
  alignas(64) std::atomic<uint64_t> ends{0};  // chunks not yet claimed: [low half, high half)
  EventCount left;                            // a helper went out of a closed region

  bool claim(bool front, uint32_t* index) {
    uint64_t now = ends.load(std::memory_order_relaxed);
    for (;;) {
      const uint32_t lo = static_cast<uint32_t>(now), hi = static_cast<uint32_t>(now >> 32);
      if (lo >= hi) return false;
      const uint64_t next = front ? now + 1 : now - (uint64_t{1} << 32);
      if (ends.compare_exchange_weak(now, next, std::memory_order_relaxed)) {
        *index = front ? lo : hi - 1;
        return true;
      }
    }
  }
  void run(uint32_t index) const {
    const int64_t begin = index * step;
    chunk(context, begin, std::min(count, begin + step));
  }
};

thread_local bool t_inside = false;
thread_local int t_priority = 0;
thread_local int t_limit = 0;  // of threads; 0: none

int default_threads() {
  if (const char* text = std::getenv("OMP_NUM_THREADS")) {
    const int n = std::atoi(text);
    if (n > 0) return std::min(n, kMaxThreads);
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return std::min(CPU_COUNT(&set), kMaxThreads);
  return 1;
}

class Pool {
 public:
  // Never destroyed: threads of other libraries may still call while this one is being unloaded.
  static Pool& get() {
    static Pool* pool = new Pool;
    return *pool;
  }

  Pool() {
    pthread_atfork(nullptr, nullptr, [] { Pool::get().after_fork(); });
  }

  std::atomic<int> threads{default_threads()};

  void run(int64_t count, int64_t step, void* context, Chunk chunk) {
    Region* region = take();
    if (!region) {
      alone(count, context, chunk);
      return;
    }
    const int wanted = pool_threads() - 1;
    if (started_.load(std::memory_order_acquire) < wanted) start(wanted);
    region->context = context;
    region->chunk = chunk;
    region->count = count;
    region->step = step;
    region->max_helper = wanted;
    region->priority.store(t_priority, std::memory_order_relaxed);
    const uint64_t chunks = static_cast<uint64_t>((count + step - 1) / step);
    region->ends.store(chunks << 32, std::memory_order_relaxed);
    region->gate.store(kOpen, std::memory_order_release);
    open_.fetch_add(1, std::memory_order_release);
    if (t_priority < 0) urgent_.fetch_add(1, std::memory_order_relaxed);
    work_.notify(static_cast<int>(std::min<uint64_t>(chunks - 1, static_cast<uint64_t>(wanted))));

    t_inside = true;
    for (uint32_t index; region->claim(true, &index);) region->run(index);
    t_inside = false;

    if (t_priority < 0) urgent_.fetch_sub(1, std::memory_order_relaxed);
    open_.fetch_sub(1, std::memory_order_relaxed);
    if (region->gate.fetch_and(~kOpen, std::memory_order_acq_rel) != kOpen)
      region->left.wait(20'000, [&] { return region->gate.load(std::memory_order_acquire) == 0; });
    region->taken.store(false, std::memory_order_release);
  }

  static void alone(int64_t count, void* context, Chunk chunk) {
    const bool outer = t_inside;
    t_inside = true;
    chunk(context, 0, count);
    t_inside = outer;
  }

  // Ends the helpers; whoever still calls works alone, or starts new ones.
  void stop() {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_.store(true, std::memory_order_release);
    work_.notify();
    for (std::thread& helper : helpers_) helper.join();
    helpers_.clear();
  }

 private:
  Region* take() {
    for (Region& region : regions_) {
      bool expected = false;
      if (!region.taken.load(std::memory_order_relaxed) &&
          region.taken.compare_exchange_strong(expected, true, std::memory_order_acquire))
        return &region;
    }
    return nullptr;
  }

  void start(int wanted) {
    std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
    if (!lock || stopping_.load(std::memory_order_relaxed)) return;  // another caller starts them; work alone till then
    for (int i = started_.load(std::memory_order_relaxed); i < wanted; ++i) {
      try {
        helpers_.emplace_back([this, i] { help(i); });
      } catch (const std::exception&) {
        return;  // the system has no thread to give: fewer helpers, same result
      }
      started_.store(i + 1, std::memory_order_release);
    }
  }

  // The open region of highest priority that wants helper `number`, entered; or nullptr.
  Region* enter(int number) {
    if (open_.load(std::memory_order_acquire) == 0) return nullptr;
    Region* best = nullptr;
    for (Region& region : regions_) {
      if (!(region.gate.load(std::memory_order_acquire) & kOpen)) continue;
      const uint64_t ends = region.ends.load(std::memory_order_relaxed);
      if (static_cast<uint32_t>(ends) >= static_cast<uint32_t>(ends >> 32)) continue;
      if (!best || region.priority.load(std::memory_order_relaxed) < best->priority.load(std::memory_order_relaxed))
        best = &region;
    }
    if (!best) return nullptr;
    uint32_t gate = best->gate.load(std::memory_order_relaxed);
    do {
      if (!(gate & kOpen)) return nullptr;
    } while (!best->gate.compare_exchange_weak(gate, gate + 1, std::memory_order_acq_rel));
    if (number >= best->max_helper) {
      leave(best);
      return nullptr;
    }
    return best;
  }

  void leave(Region* region) {
    if (region->gate.fetch_sub(1, std::memory_order_acq_rel) == 1) region->left.notify();
  }

  void help(int number) {
    t_inside = true;
    while (!stopping_.load(std::memory_order_acquire)) {
      Region* region = nullptr;
      // A helper above the present number of threads sleeps without asking for work it would not get.
      work_.wait(kHelperSpinNs, [&] {
        return stopping_.load(std::memory_order_acquire) ||
               (number < threads.load(std::memory_order_relaxed) - 1 && (region = enter(number)) != nullptr);
      });
      if (!region) continue;
      const bool yields = region->priority.load(std::memory_order_relaxed) >= 0;
      for (uint32_t index; region->claim(false, &index);) {
        region->run(index);
        if (yields && urgent_.load(std::memory_order_relaxed) > 0) break;
      }
      leave(region);
    }
  }

  // The child has no helpers, and slots of other threads of the parent stay taken for ever.
  void after_fork() {
    for (std::thread& helper : helpers_) npu::driver::abandon(helper);
    helpers_.clear();
    started_.store(0, std::memory_order_relaxed);
    open_.store(0, std::memory_order_relaxed);
    urgent_.store(0, std::memory_order_relaxed);
    for (Region& region : regions_) region.gate.store(0, std::memory_order_relaxed);
  }

  Region regions_[kRegions];
  EventCount work_;
  alignas(64) std::atomic<int> open_{0};
  std::atomic<int> urgent_{0};
  std::atomic<int> started_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::vector<std::thread> helpers_;
};

}  // namespace

int pool_threads() {
  const int threads = Pool::get().threads.load(std::memory_order_relaxed);
  return t_limit > 0 ? std::min(t_limit, threads) : threads;
}

ThreadLimit::ThreadLimit(int threads) : before_(t_limit) {
  t_limit = threads;
}
ThreadLimit::~ThreadLimit() {
  t_limit = before_;
}

void set_pool_threads(int threads) {
  Pool::get().threads.store(std::clamp(threads, 1, kMaxThreads), std::memory_order_relaxed);
}

void set_pool_priority(int priority) {
  t_priority = priority;
}

void stop_pool() {
  Pool::get().stop();
}

void parallel_run(int64_t count, int64_t grain, void* context, Chunk chunk) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  if (count <= grain || t_inside) {
    Pool::alone(count, context, chunk);
    return;
  }
  const int threads = pool_threads();
  if (threads == 1) {
    Pool::alone(count, context, chunk);
    return;
  }
  // Whole grains per chunk, so that chunks begin at multiples of the grain.
  const int64_t grains = (count + grain - 1) / grain;
  const int64_t pieces = static_cast<int64_t>(threads) * kChunksPerThread;
  Pool::get().run(count, (grains + pieces - 1) / pieces * grain, context, chunk);
}

}  // namespace cmodel
