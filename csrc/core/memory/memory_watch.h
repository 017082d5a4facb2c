// Who wants to hear of allocations and frees, in one word: an allocation that nobody listens to pays for one load.
#pragma once
#include <atomic>
#include <cstdint>

namespace torch_npu {

enum MemoryWatch : uint32_t { kWatchHistory = 1, kWatchSanitizer = 2 };
extern std::atomic<uint32_t> g_memory_watch;

inline uint32_t memory_watch() noexcept {
  return g_memory_watch.load(std::memory_order_relaxed);
}
// True if it was on before.
inline bool watch_memory(MemoryWatch who, bool on) noexcept {
  return (on ? g_memory_watch.fetch_or(who) : g_memory_watch.fetch_and(~who)) & who;
}

}  // namespace torch_npu
