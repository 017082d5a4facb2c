// The parts of the memory cache. A segment is memory obtained from the driver for one stream, cut into blocks that lie
// side by side; a block is what a tensor gets.
#pragma once
#include <bit>
#include <cstdint>
#include <set>
#include <vector>

#include "csrc/core/memory/caching/types.h"
#include "npu/runtime.h"

namespace torch_npu::caching {

class CachingCore;
struct Segment;
struct StreamPool;

// Allocations up to this size share small segments and have size classes.
constexpr uint64_t kSmallLimit = 1u << 20;
constexpr uint64_t kSmallSegment = 2u << 20;
constexpr uint64_t kLargeRound = 2u << 20;
// From here on an allocation has a segment of its own.
constexpr uint64_t kOwnSegment = 10u << 20;
constexpr uint64_t kUnit = 512;

enum class State : uint8_t {
  kFree,    // in its pool's set, merged with free neighbours
  kBinned,  // free, whole, in the bin of its size class: the next request of that class gets it
  kAllocated,
  kPending,   // freed, but streams that used it have not passed that point
  kUnmapped,  // addresses of an expandable segment without memory
};

// A stream that used a block, possibly of another device.
struct StreamUse {
  const npu_driver* api;
  npu_device* device;
  npu_stream* stream;
};

struct Block {
  npu_addr addr = 0;
  uint64_t size = 0;
  uint64_t requested = 0;
  StreamPool* pool = nullptr;
  Block* next_binned = nullptr;
  State state = State::kFree;
  bool large = false;
  bool counted_split = false;  // is in the inactive_split statistics
  int8_t size_class = -1;      // -1: none, it is merged when freed
  uint32_t pending_events = 0;
  Block* prev = nullptr;  // neighbours within the segment
  Block* next = nullptr;
  Segment* segment = nullptr;
  uint64_t freed_at = 0;  // tick, for garbage collection
  std::vector<StreamUse> uses;
};

struct Segment {
  npu_addr addr = 0;
  uint64_t size = 0;
  StreamPool* pool = nullptr;
  Block* first = nullptr;
  bool large = false;
  bool expandable = false;
};

// Four classes for each power of two, in units: 1 2 3 4 | 5 6 7 8 | 10 12 14 16 | 20 24 28 32 | ...
struct SizeClass {
  static constexpr int kCount = 40;
  int index;
  uint64_t units;

  static SizeClass of(uint64_t units) {
    if (units <= 4) return {static_cast<int>(units) - 1, units};
    const int shift = std::bit_width(units - 1) - 3;
    const uint64_t quarter = (units - 1) >> shift;  // 4 to 7
    return {4 * shift + static_cast<int>(quarter), (quarter + 1) << shift};
  }
};

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : a->addr < b->addr;
  }
};

// The memory of one stream: blocks are reused within it without waiting for anything.
struct StreamPool {
  CachingCore* core = nullptr;
  npu_stream* stream = nullptr;
  bool is_private = false;              // of a private pool
  PoolId id{};                          // its name
  Block* bins[SizeClass::kCount] = {};  // last freed first
  uint64_t binned_bytes = 0;
  std::set<Block*, BySize> free_blocks[2];  // small, large
  std::vector<Segment*> expandable[2];
};

}  // namespace torch_npu::caching
