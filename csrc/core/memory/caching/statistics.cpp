// Statistics, snapshots and the facts behind an out-of-memory error.
#include <algorithm>

#include "csrc/core/memory/caching/core.h"

namespace torch_npu::caching {

Stats CachingCore::stats() {
  std::lock_guard lock(lock_);
  const Counters& c = counters_;
  Stats out;
  out.allocation = c.allocation.group();
  out.segment = c.segment.group();
  out.active = c.active.group();
  out.inactive_split = c.inactive_split.group();
  out.allocated_bytes = c.allocated_bytes.group();
  out.reserved_bytes = c.reserved_bytes.group();
  out.active_bytes = c.active_bytes.group();
  out.inactive_split_bytes = c.inactive_split_bytes.group();
  out.requested_bytes = c.requested_bytes.group();
  out.oversize_allocations = c.oversize_allocations.group().of[0];
  out.oversize_segments = c.oversize_segments.group().of[0];
  out.num_alloc_retries = c.num_alloc_retries;
  out.num_ooms = c.num_ooms;
  out.num_sync_all_streams = c.num_sync_all_streams;
  out.num_device_alloc = c.num_device_alloc;
  out.num_device_free = c.num_device_free;
  return out;
}

void CachingCore::reset_peak_stats() {
  std::lock_guard lock(lock_);
  counters_.each([](Counter& counter) { counter.reset_peak(); });
}

void CachingCore::reset_accumulated_stats() {
  std::lock_guard lock(lock_);
  counters_.each([](Counter& counter) { counter.reset_accumulated(); });
  counters_.num_alloc_retries = counters_.num_ooms = counters_.num_sync_all_streams = 0;
  counters_.num_device_alloc = counters_.num_device_free = 0;
}

std::pair<uint64_t, uint64_t> CachingCore::allocated_and_reserved() {
  std::lock_guard lock(lock_);
  const auto sum = [](const Counter& c) { return static_cast<uint64_t>(c.current[0] + c.current[1]); };
  return {sum(counters_.allocated_bytes), sum(counters_.reserved_bytes)};
}

std::vector<SegmentInfo> CachingCore::snapshot() {
  std::lock_guard lock(lock_);
  std::vector<SegmentInfo> out;
  for (const auto& [addr, segment] : segments_) {
    // An expandable segment is reported as its runs of mapped memory.
    bool in_run = false;
    for (const Block* block = segment->first; block; block = block->next) {
      if (block->state == State::kUnmapped) {
        in_run = false;
        continue;
      }
      if (!in_run) {
        out.emplace_back();
        out.back().addr = block->addr;
        out.back().stream = segment->pool->stream;
        out.back().large = segment->large;
        out.back().expandable = segment->expandable;
        out.back().is_private = segment->pool->is_private;
        out.back().pool = segment->pool->id;
        in_run = true;
      }
      SegmentInfo& info = out.back();
      BlockInfo one{block->addr, block->size, 0, block->state == State::kAllocated, false};
      one.active = one.allocated || block->state == State::kPending;
      if (one.active) one.requested = block->requested;
      info.size += one.size;
      info.requested += one.requested;
      if (one.allocated) info.allocated += one.size;
      if (one.active) info.active += one.size;
      info.blocks.push_back(one);
    }
  }
  return out;
}

void CachingCore::describe_failure(uint64_t size, OutOfMemory* why) {
  const auto sum = [](const Counter& c) { return static_cast<uint64_t>(c.current[0] + c.current[1]); };
  why->requested = size;
  why->allocated = sum(counters_.allocated_bytes);
  why->reserved = sum(counters_.reserved_bytes);
  why->limit = limit_;
  why->largest_free_block = 0;
  for (const auto& [stream, pool] : pools_) {
    for (const auto& set : pool->free_blocks) {
      if (!set.empty()) why->largest_free_block = std::max(why->largest_free_block, (*set.rbegin())->size);
    }
  }
  if (api_->memory_info(device_, &why->device_free, &why->device_total) != NPU_OK) {
    why->device_free = why->device_total = 0;
  }
}

}  // namespace torch_npu::caching
