// A lock for sections of a few nanoseconds: taking it is one atomic exchange and leaving it a plain store, a third of
// what std::mutex costs. A waiter does not burn a core when the holder is inside a driver call.
#pragma once
#include <sched.h>
#include <time.h>

#include <atomic>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace torch_npu::caching {

class Lock {
 public:
  void lock() noexcept {
    if (!taken_.exchange(true, std::memory_order_acquire)) [[likely]] {
      return;
    }
    wait();
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  void wait() noexcept {
    for (int turn = 0;; ++turn) {
      if (!taken_.load(std::memory_order_relaxed) && !taken_.exchange(true, std::memory_order_acquire)) return;
      if (turn < 64) {
#if defined(__x86_64__)
        _mm_pause();
#endif
      } else if (turn < 96) {
        sched_yield();
      } else {
        const timespec nap{0, 50'000};
        nanosleep(&nap, nullptr);
      }
    }
  }

  std::atomic<bool> taken_{false};
};

}  // namespace torch_npu::caching
