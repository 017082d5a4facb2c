// The engine's own thread pool. The caller always takes part; helpers claim chunks if they arrive in time, and nobody
// waits for a helper that has not started, so an oversubscribed machine costs nothing.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace cmodel {

// Threads that may work on one command, caller included. From option threads=N, else OMP_NUM_THREADS, else the cores
// this process may use.
int pool_threads();
void set_pool_threads(int threads);
// For the calling thread, while it lives: parallel_for takes no more threads than this (0: all), and pool_threads()
// says so.
class ThreadLimit {
 public:
  explicit ThreadLimit(int threads);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int before_;
};
// For the calling thread: helpers prefer its regions if negative. Streams of high priority set it.
void set_pool_priority(int priority);
// Joins the helpers, when the library goes.
void stop_pool();

using Chunk = void (*)(void* context, int64_t begin, int64_t end);
void parallel_run(int64_t count, int64_t grain, void* context, Chunk chunk);

// body(begin, end) over [0, count) in chunks of whole grains (the last may be shorter), in no order. Runs on the caller
// alone when one chunk is enough, or when called from inside another parallel_for. `body` must not throw.
template <class F>
void parallel_for(int64_t count, int64_t grain, F&& body) {
  parallel_run(count, grain, const_cast<std::remove_const_t<std::remove_reference_t<F>>*>(&body),
               [](void* f, int64_t begin, int64_t end) { (*static_cast<std::remove_reference_t<F>*>(f))(begin, end); });
}

// What a chunk of a parallel_for is worth, where its cost is known: waking a helper and claiming a chunk take a few
// microseconds (npu-engine-bench add, with two threads and more).
constexpr int64_t kChunkPicoseconds = 10'000'000;

// Items of `each` work that make a task of at least `least`: the grain of a parallel_for. At least one.
inline int64_t grain_for(int64_t each, int64_t least = kChunkPicoseconds) {
  return std::max<int64_t>(1, least / std::max<int64_t>(1, each));
}

// Into how many parts (a power of two) each of `tasks` is cut so that there are at least `wanted`, while a part has
// `least` of its `items`.
inline int64_t parts_for(int64_t tasks, int64_t wanted, int64_t items, int64_t least) {
  int64_t parts = 1;
  while (tasks * parts < wanted && items / parts >= least) parts *= 2;
  return parts;
}

// Items of a piece so that each thread has one, in whole vectors of sixteen; `least` and `most` of them.
inline int64_t split_for_threads(int64_t items, int64_t least, int64_t most) {
  const int64_t share = (items + pool_threads() - 1) / pool_threads();
  return std::clamp<int64_t>((share + 15) / 16 * 16, least, most);
}

}  // namespace cmodel
