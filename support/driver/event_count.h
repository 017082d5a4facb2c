// Waiting without lost wake-ups, and without a system call where nobody waits. A waiter counts itself in, looks at its
// condition once more, and sleeps on a number that every notification changes. Both sides touch `waiters_` with a
// read-modify-write, so either the notifier sees the waiter or the waiter sees what the notifier published.
#pragma once
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>

namespace npu::driver {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Spins for about `ns`, giving the core away now and then; true as soon as ready() is.
template <class Ready>
bool spin_until(int64_t ns, Ready&& ready) {
  for (int i = 0; i < 64; ++i) {
    if (ready()) return true;
    pause_cpu();
  }
  const int64_t end = now_ns() + ns;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      pause_cpu();
    }
    sched_yield();
  } while (now_ns() < end);
  return ready();
}

// How long a thread spins that waits again and again. A host that waits for each of its steps is back soon, and finds a
// sleeping thread late; so a short wait is followed by a longer spin, and a wait that outlasts it by a short one.
class Patience {
 public:
  static constexpr int64_t kShortNs = 50'000, kLongNs = 200'000;
  int64_t spin_ns() const { return spin_ns_; }
  void waited(int64_t ns) { spin_ns_ = ns < kLongNs ? kLongNs : kShortNs; }

 private:
  int64_t spin_ns_ = kShortNs;
};

class EventCount {
 public:
  // Returns when ready() is true. Whoever makes it true calls notify() afterwards.
  template <class Ready>
  void wait(int64_t spin_ns, Ready&& ready) {
    if (spin_until(spin_ns, ready)) return;
    for (;;) {
      waiters_.fetch_add(1, std::memory_order_acq_rel);
      const uint32_t seen = epoch_.load(std::memory_order_acquire);
      const bool done = ready();
      if (!done) syscall(SYS_futex, &epoch_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
      waiters_.fetch_sub(1, std::memory_order_acq_rel);
      if (done || ready()) return;
    }
  }

  // Whether somebody waits, or is about to. Sees all that such a waiter's notifiers published before.
  bool has_waiters() { return waiters_.fetch_add(0, std::memory_order_acq_rel) != 0; }

  void notify(int count = INT_MAX) {
    if (!has_waiters()) return;
    epoch_.fetch_add(1, std::memory_order_acq_rel);
    syscall(SYS_futex, &epoch_, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
  }

 private:
  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> waiters_{0};
};

}  // namespace npu::driver
