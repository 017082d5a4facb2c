// Memory between the cache and the driver: segments, expandable segments, and giving memory back.
#include <algorithm>

#include "csrc/core/memory/caching/core.h"

namespace torch_npu::caching {
namespace {

uint64_t round_up(uint64_t size, uint64_t step) {
  return (size + step - 1) / step * step;
}

}  // namespace

uint64_t CachingCore::segment_size(bool large, uint64_t size) const {
  uint64_t bytes = kSmallSegment;
  if (large) bytes = size < kOwnSegment ? std::max(config_.large_segment, size) : round_up(size, kLargeRound);
  return (bytes + unit_mask_) & ~unit_mask_;
}

// A free block of at least `size` bytes that is in no set, made of memory from the driver. What can be given up is
// given up before the answer is no.
Block* CachingCore::obtain(StreamPool& pool, bool large, uint64_t size, OutOfMemory* why) {
  config_ = config_source_();
  const bool expandable = config_.expandable_segments && api_->range_reserve;
  const uint64_t wanted = segment_size(large, size);
  if (limit_ && config_.garbage_collection_threshold > 0) collect_garbage(wanted);

  const auto attempt = [&]() -> Block* {
    if (expandable) return grow(pool, large, size, why);
    if (Block* block = new_segment(pool, large, wanted, why)) return block;
    return size < wanted ? new_segment(pool, large, size, why) : nullptr;
  };
  if (Block* block = attempt()) return block;
  // Only a lack of memory is worth another try.
  if (why->status != NPU_ERROR_MEMORY) return nullptr;
  ++counters_.num_alloc_retries;
  release_free();
  if (Block* block = attempt()) return block;
  if (pending_blocks_ == 0) return nullptr;
  wait_for_events();
  merge_bins(pool);
  if (Block* block = take_fitting(pool, large, size)) return block;
  release_free();
  return attempt();
}

bool CachingCore::within_limit(uint64_t more, OutOfMemory* why) {
  const auto& reserved = counters_.reserved_bytes.current;
  why->over_limit = limit_ && static_cast<uint64_t>(reserved[0] + reserved[1]) + more > limit_;
  if (why->over_limit) {
    why->status = NPU_ERROR_MEMORY;
    why->driver_text.clear();
  }
  return !why->over_limit;
}

void CachingCore::note_failure(npu_status status, OutOfMemory* why) {
  const char* text = api_->error_text();
  why->status = status;
  why->driver_text = text ? text : "";
}

Block* CachingCore::new_segment(StreamPool& pool, bool large, uint64_t size, OutOfMemory* why) {
  if (!within_limit(size, why)) return nullptr;
  npu_addr addr = 0;
  if (const npu_status status = api_->memory_alloc(device_, size, &addr); status != NPU_OK) {
    note_failure(status, why);
    return nullptr;
  }
  auto* segment = new Segment{addr, size, &pool, nullptr, large, false};
  segments_[addr] = segment;
  segment->first = new_block(pool, segment, addr, size);
  ++counters_.num_device_alloc;
  counters_.segment.add(large, 1);
  counters_.reserved_bytes.add(large, static_cast<int64_t>(size));
  if (size >= config_.max_split_size) counters_.oversize_segments.add(true, 1);
  return segment->first;
}

bool CachingCore::reserve(StreamPool& pool, bool large, uint64_t size) {
  uint64_t free_bytes = 0, total_bytes = 0;
  if (api_->memory_info(device_, &free_bytes, &total_bytes) != NPU_OK) return false;
  // Addresses for all the memory there is, and some for holes.
  const uint64_t bytes = round_up(std::max(total_bytes + total_bytes / 8, size), std::max(kLargeRound, unit_mask_ + 1));
  npu_addr addr = 0;
  if (api_->range_reserve(device_, bytes, &addr) != NPU_OK) return false;
  auto* segment = new Segment{addr, bytes, &pool, nullptr, large, true};
  segments_[addr] = segment;
  segment->first = new_block(pool, segment, addr, bytes);
  segment->first->state = State::kUnmapped;
  pool.expandable[large].push_back(segment);
  counters_.segment.add(large, 1);
  return true;
}

// As new_segment, but next to memory that is already there: a free block before the hole counts towards `size`.
Block* CachingCore::grow(StreamPool& pool, bool large, uint64_t size, OutOfMemory* why) {
  const uint64_t step = large ? config_.large_segment : kSmallSegment;
  for (int round = 0; round < 2; ++round) {
    for (Segment* segment : pool.expandable[large]) {
      for (Block* hole = segment->first; hole; hole = hole->next) {
        if (hole->state != State::kUnmapped) continue;
        const Block* before = hole->prev && hole->prev->state == State::kFree ? hole->prev : nullptr;
        const uint64_t missing = size - (before ? std::min(before->size, size) : 0);
        if (missing == 0 || missing > hole->size) continue;
        uint64_t bytes = std::min(segment_size(large, missing), hole->size);
        bytes = std::max(bytes, std::min(round_up(missing, step), hole->size));
        for (const uint64_t part : {bytes, missing}) {
          if (!within_limit(part, why)) continue;
          const npu_status status = api_->range_map(device_, hole->addr, part);
          if (status == NPU_OK) return map_part(hole, part);
          note_failure(status, why);
        }
        return nullptr;
      }
    }
    if (round == 0 && !reserve(pool, large, size)) {
      note_failure(NPU_ERROR_MEMORY, why);
      return nullptr;
    }
  }
  return nullptr;
}

// The first `size` bytes of a hole now have memory. Returns them, joined with free neighbours, in no set.
Block* CachingCore::map_part(Block* hole, uint64_t size) {
  if (size < hole->size) {
    Block* rest = new_block(*hole->pool, hole->segment, hole->addr + size, hole->size - size);
    rest->state = State::kUnmapped;
    rest->prev = hole;
    rest->next = hole->next;
    if (rest->next) rest->next->prev = rest;
    hole->next = rest;
    hole->size = size;
  }
  ++counters_.num_device_alloc;
  counters_.reserved_bytes.add(hole->large, static_cast<int64_t>(size));
  auto& set = hole->pool->free_blocks[hole->large];
  hole->state = State::kFree;
  if (Block* right = hole->next; right && right->state == State::kFree) {
    set.erase(right);
    leave_inactive(right);
    absorb_next(hole);
  }
  if (Block* left = hole->prev; left && left->state == State::kFree) {
    set.erase(left);
    leave_inactive(left);
    absorb_next(left);
    return left;
  }
  return hole;
}

void CachingCore::empty_cache() {
  std::lock_guard lock(lock_);
  wait_for_events();
  release_free();
}

// Every block that fills its segment, and every free part of an expandable segment.
void CachingCore::release_free() {
  if (pending_blocks_) poll_events();
  for (auto& [stream, pool] : pools_) release_free(*pool);
  // Graphs know the addresses of pools that are held. Of others nothing stays but what tensors still use.
  for (auto pool = private_pools_.begin(); pool != private_pools_.end();) {
    if (pool->second.holders > 0) {
      ++pool;
      continue;
    }
    release_free(pool->second);
    pool = pool->second.of_stream.empty() ? private_pools_.erase(pool) : std::next(pool);
  }
  last_pool_ = nullptr;
}

void CachingCore::release_free(PrivatePool& pool) {
  std::erase_if(pool.of_stream, [&](auto& entry) {
    release_free(*entry.second);
    return std::none_of(segments_.begin(), segments_.end(),
                        [&](const auto& segment) { return segment.second->pool == entry.second.get(); });
  });
}

void CachingCore::empty_pool(PoolId id) {
  std::lock_guard lock(lock_);
  wait_for_events();
  const auto pool = private_pools_.find(id);
  if (pool == private_pools_.end() || pool->second.holders > 0) return;
  release_free(pool->second);
  if (pool->second.of_stream.empty()) private_pools_.erase(pool);
  last_pool_ = nullptr;
}

void CachingCore::release_free(StreamPool& pool) {
  merge_bins(pool);
  bool waited = false;
  const auto wait_once = [&] {
    if (!waited) wait_for(pool);
    waited = true;
  };
  for (auto& set : pool.free_blocks) {
    std::vector<Block*> whole;
    for (Block* block : set) {
      if (!block->segment->expandable && !block->prev && !block->next) whole.push_back(block);
    }
    for (Block* block : whole) {
      wait_once();
      release_segment(block);
    }
  }
  for (auto& segments : pool.expandable) {
    const std::vector<Segment*> all = segments;
    for (Segment* segment : all) {
      wait_once();
      unmap_free(segment);
    }
  }
}

// The driver keeps the memory if it refuses to take it back (a lost device); the cache then keeps it too.
void CachingCore::release_segment(Block* whole) {
  Segment* segment = whole->segment;
  if (api_->memory_free(device_, segment->addr) != NPU_OK) return;
  segment->pool->free_blocks[segment->large].erase(whole);
  leave_inactive(whole);
  ++counters_.num_device_free;
  counters_.segment.sub(segment->large, 1);
  counters_.reserved_bytes.sub(segment->large, static_cast<int64_t>(segment->size));
  if (segment->size >= config_.max_split_size && counters_.oversize_segments.current[1] > 0) {
    counters_.oversize_segments.sub(true, 1);
  }
  segments_.erase(segment->addr);
  delete_block(whole);
  delete segment;
}

void CachingCore::unmap_free(Segment* segment) {
  auto& set = segment->pool->free_blocks[segment->large];
  for (Block* block = segment->first; block; block = block->next) {
    if (block->state != State::kFree) continue;
    if (api_->range_unmap(device_, block->addr, block->size) != NPU_OK) continue;
    ++counters_.num_device_free;
    counters_.reserved_bytes.sub(segment->large, static_cast<int64_t>(block->size));
    set.erase(block);
    leave_inactive(block);
    block->state = State::kUnmapped;
    if (block->next && block->next->state == State::kUnmapped) absorb_next(block);
    if (block->prev && block->prev->state == State::kUnmapped) {
      block = block->prev;
      absorb_next(block);
    }
  }
  Block* first = segment->first;
  if (first->state != State::kUnmapped || first->next) return;
  if (api_->range_release(device_, segment->addr) != NPU_OK) return;
  counters_.segment.sub(segment->large, 1);
  std::erase(segment->pool->expandable[segment->large], segment);
  segments_.erase(segment->addr);
  delete_block(first);
  delete segment;
}

// Gives back the large blocks that lay idle longest, until `more` bytes stay under the threshold.
void CachingCore::collect_garbage(uint64_t more) {
  const auto allowed = static_cast<uint64_t>(config_.garbage_collection_threshold * static_cast<double>(limit_));
  const auto reserved = [this] {
    return static_cast<uint64_t>(counters_.reserved_bytes.current[0] + counters_.reserved_bytes.current[1]);
  };
  if (reserved() + more <= allowed) return;
  std::vector<Block*> idle;
  for (auto& [stream, pool] : pools_) {
    for (Block* block : pool->free_blocks[1]) {
      if (!block->segment->expandable && !block->prev && !block->next) idle.push_back(block);
    }
  }
  std::sort(idle.begin(), idle.end(), [](const Block* a, const Block* b) { return a->freed_at < b->freed_at; });
  for (Block* block : idle) {
    if (reserved() + more <= allowed) return;
    wait_for(*block->pool);
    release_segment(block);
  }
}

}  // namespace torch_npu::caching
