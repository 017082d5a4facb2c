// A thread that looks after those which wait for a driver: after the time limit, or after a second Ctrl-C, it resets
// the device, so that the wait ends; where even that does not help, it ends the process and says why.
#pragma once
#include <atomic>

namespace npu::guard {

extern std::atomic<bool> g_watchdog_sleeps;
void start_or_wake_watchdog();

// Somebody has called a driver: one load, where the watchdog is awake.
inline void wake_watchdog() {
  if (g_watchdog_sleeps.load(std::memory_order_relaxed)) [[unlikely]]
    start_or_wake_watchdog();
}

}  // namespace npu::guard
