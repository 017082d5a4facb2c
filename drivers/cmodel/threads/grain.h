// How much of a command one thread takes at a time.
#pragma once
#include <algorithm>
#include <cstdint>

#include "drivers/cmodel/threads/pool.h"

namespace cmodel {

// What a chunk of parallel_for is worth: waking a helper and claiming a chunk cost a few microseconds
// (npu-engine-bench add, with 2 threads and more).
constexpr int64_t kChunkPicoseconds = 10'000'000;

// Items of a chunk, at least one, if an item is `work` and a chunk is to hold `chunk` of the same unit.
inline int64_t grain_for(int64_t work, int64_t chunk = kChunkPicoseconds) {
  return std::max<int64_t>(1, chunk / std::max<int64_t>(1, work));
}

// Items of a piece so that each thread has one, in whole vectors of sixteen; `least` and `most` of them.
inline int64_t split_for_threads(int64_t items, int64_t least, int64_t most) {
  const int64_t share = (items + pool_threads() - 1) / pool_threads();
  return std::clamp<int64_t>((share + 15) / 16 * 16, least, most);
}

}  // namespace cmodel
