// What goes into and comes out of the memory cache. No file of this folder knows PyTorch, so that the cache can be
// tested alone, under sanitizers.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "npu/runtime.h"

namespace torch_npu::caching {

// The keys of PYTORCH_ALLOC_CONF that the cache follows.
struct Config {
  uint64_t max_split_size = std::numeric_limits<uint64_t>::max();
  uint64_t max_non_split_rounding = 20u << 20;
  uint64_t large_segment = 20u << 20;
  double garbage_collection_threshold = 0;  // 0: never
  bool expandable_segments = false;         // ignored where the driver has no range functions
};

// Names a private pool, as c10::MempoolId_t does.
using PoolId = std::pair<uint64_t, uint64_t>;

struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};

// [0] all, [1] small pool, [2] large pool: the order of c10's StatType.
struct StatGroup {
  Stat of[3];
};

struct Stats {
  StatGroup allocation, segment, active, inactive_split;
  StatGroup allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  Stat oversize_allocations, oversize_segments;
  int64_t num_alloc_retries = 0;
  int64_t num_ooms = 0;
  int64_t num_sync_all_streams = 0;
  int64_t num_device_alloc = 0;
  int64_t num_device_free = 0;
};

struct BlockInfo {
  npu_addr addr = 0;
  uint64_t size = 0;
  uint64_t requested = 0;
  bool allocated = false;  // in use by a tensor
  bool active = false;     // allocated, or freed but still awaited by a stream
};

struct SegmentInfo {
  npu_addr addr = 0;
  uint64_t size = 0;
  uint64_t requested = 0;
  uint64_t allocated = 0;
  uint64_t active = 0;
  npu_stream* stream = nullptr;
  bool large = false;
  bool expandable = false;
  bool is_private = false;  // of a private pool
  PoolId pool{};            // its name
  std::vector<BlockInfo> blocks;
};

// Why an allocation failed. Numbers are of the moment of failure.
struct OutOfMemory {
  uint64_t requested = 0;
  uint64_t device_free = 0, device_total = 0;
  uint64_t allocated = 0;
  uint64_t reserved = 0;
  uint64_t largest_free_block = 0;
  uint64_t limit = 0;       // 0: none was set
  bool over_limit = false;  // the limit refused, not the driver
  npu_status status = NPU_ERROR_MEMORY;
  std::string driver_text;
};

}  // namespace torch_npu::caching
