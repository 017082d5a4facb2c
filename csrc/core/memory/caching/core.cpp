#include "csrc/core/memory/caching/core.h"

#include <algorithm>

namespace torch_npu::caching {

CachingCore::CachingCore(const npu_driver* api, npu_device* device, uint64_t alignment, int tag, Config (*config)())
    : api_(api), device_(device), tag_(tag), config_source_(config) {
  unit_shift_ = static_cast<uint32_t>(std::countr_zero(std::max(alignment, kUnit)));
  unit_mask_ = (uint64_t{1} << unit_shift_) - 1;
  config_ = config();
}

CachingCore::~CachingCore() {
  empty_cache();
  for (npu_event* event : spare_events_) api_->event_destroy(event);
  for (Block* block : spare_blocks_) delete block;
}

Block* CachingCore::new_block(StreamPool& pool, Segment* segment, npu_addr addr, uint64_t size) {
  Block* block;
  if (spare_blocks_.empty()) {
    block = new Block;
  } else {
    block = spare_blocks_.back();
    spare_blocks_.pop_back();
    *block = Block{};
  }
  block->pool = &pool;
  block->segment = segment;
  block->large = segment->large;
  block->addr = addr;
  block->size = size;
  return block;
}

void CachingCore::delete_block(Block* block) {
  spare_blocks_.push_back(block);
}

Block* CachingCore::allocate_slow(StreamPool& pool, uint64_t size, OutOfMemory* why) {
  uint64_t rounded = (size + unit_mask_) & ~unit_mask_;
  const bool large = rounded > kSmallLimit;
  int size_class = -1;
  if (!large) {
    const SizeClass wanted = SizeClass::of(rounded >> unit_shift_);
    size_class = wanted.index;
    rounded = wanted.units << unit_shift_;
  }

  Block* block = take_fitting(pool, large, rounded);
  if (!block && pool.binned_bytes > 0) {
    merge_bins(pool);
    block = take_fitting(pool, large, rounded);
  }
  if (!block) block = obtain(pool, large, rounded, why);
  if (!block) {
    ++counters_.num_ooms;
    describe_failure(size, why);
    return nullptr;
  }
  block = cut(block, rounded);
  block->size_class = block->size == rounded ? static_cast<int8_t>(size_class) : int8_t{-1};
  if (block->size >= config_.max_split_size) counters_.oversize_allocations.add(true, 1);
  hand_out(block, size);
  return block;
}

// The smallest free block that is large enough, taken out of the set.
Block* CachingCore::take_fitting(StreamPool& pool, bool large, uint64_t size) {
  auto& set = pool.free_blocks[large];
  Block key;
  key.size = size;
  const auto found = set.lower_bound(&key);
  if (found == set.end()) return nullptr;
  Block* block = *found;
  if (!block->segment->expandable) {
    // Blocks over max_split_size are kept whole, and only for requests that nearly fill them.
    const bool oversize = size >= config_.max_split_size;
    if (!oversize && block->size >= config_.max_split_size) return nullptr;
    if (oversize && block->size >= size + config_.max_non_split_rounding) return nullptr;
  }
  set.erase(found);
  leave_inactive(block);
  return block;
}

// The first `size` bytes of a free block that is in no set; what is left of it becomes a free block.
Block* CachingCore::cut(Block* block, uint64_t size) {
  block->state = State::kAllocated;  // or the rest would merge with it
  const uint64_t left = block->size - size;
  const bool worth_it =
      block->large ? left > kSmallLimit && (size < config_.max_split_size || block->segment->expandable) : left > 0;
  if (!worth_it) return block;
  Block* rest = new_block(*block->pool, block->segment, block->addr + size, left);
  rest->prev = block;
  rest->next = block->next;
  if (rest->next) rest->next->prev = rest;
  block->next = rest;
  block->size = size;
  merge_and_keep(rest);
  return block;
}

void CachingCore::free(Block* block) noexcept {
  std::lock_guard lock(lock_);
  const bool large = block->large;
  counters_.allocation.sub(large, 1);
  counters_.allocated_bytes.sub(large, static_cast<int64_t>(block->size));
  counters_.requested_bytes.sub(large, static_cast<int64_t>(block->requested));
  if (!block->uses.empty()) [[unlikely]] {
    start_pending(block);
    return;
  }
  finish_free(block);
}

// Nothing uses the block any more.
void CachingCore::finish_free(Block* block) {
  counters_.active.sub(block->large, 1);
  counters_.active_bytes.sub(block->large, static_cast<int64_t>(block->size));
  if (block->size_class >= 0) [[likely]] {
    StreamPool& pool = *block->pool;
    block->state = State::kBinned;
    block->next_binned = pool.bins[block->size_class];
    pool.bins[block->size_class] = block;
    pool.binned_bytes += block->size;
    become_inactive(block);
    return;
  }
  if (block->size >= config_.max_split_size && counters_.oversize_allocations.current[1] > 0) {
    counters_.oversize_allocations.sub(true, 1);
  }
  merge_and_keep(block);
}

void CachingCore::become_inactive(Block* block) {
  if (!block->prev && !block->next) return;
  block->counted_split = true;
  counters_.inactive_split.add(block->large, 1);
  counters_.inactive_split_bytes.add(block->large, static_cast<int64_t>(block->size));
}

// The block grows over its right neighbour, which disappears.
void CachingCore::absorb_next(Block* block) {
  Block* gone = block->next;
  block->size += gone->size;
  block->next = gone->next;
  if (block->next) block->next->prev = block;
  delete_block(gone);
}

// Joins a block that is in no set with its free neighbours and puts the result into the set.
void CachingCore::merge_and_keep(Block* block) {
  auto& set = block->pool->free_blocks[block->large];
  if (Block* right = block->next; right && right->state == State::kFree) {
    set.erase(right);
    leave_inactive(right);
    absorb_next(block);
  }
  if (Block* left = block->prev; left && left->state == State::kFree) {
    set.erase(left);
    leave_inactive(left);
    absorb_next(left);
    block = left;
  }
  block->state = State::kFree;
  block->size_class = -1;
  block->freed_at = ++tick_;
  set.insert(block);
  become_inactive(block);
}

void CachingCore::merge_bins(StreamPool& pool) {
  for (Block*& bin : pool.bins) {
    while (Block* block = bin) {
      bin = block->next_binned;
      leave_inactive(block);
      block->state = State::kAllocated;  // neither free nor binned while it is being merged
      merge_and_keep(block);
    }
  }
  pool.binned_bytes = 0;
}

void CachingCore::record_stream(Block* block, const StreamUse& use) {
  std::lock_guard lock(lock_);
  if (use.stream == block->pool->stream) return;
  const auto known = std::find_if(block->uses.begin(), block->uses.end(),
                                  [&](const StreamUse& other) { return other.stream == use.stream; });
  if (known == block->uses.end()) block->uses.push_back(use);
}

Block* CachingCore::find(npu_addr addr) {
  std::lock_guard lock(lock_);
  auto after = segments_.upper_bound(addr);
  if (after == segments_.begin()) return nullptr;
  const Segment* segment = std::prev(after)->second;
  if (addr >= segment->addr + segment->size) return nullptr;
  for (Block* block = segment->first; block; block = block->next) {
    if (addr < block->addr + block->size) return block->state == State::kAllocated ? block : nullptr;
  }
  return nullptr;
}

bool CachingCore::has_segment_at(npu_addr addr) {
  std::lock_guard lock(lock_);
  auto after = segments_.upper_bound(addr);
  return after != segments_.begin() && addr < std::prev(after)->second->addr + std::prev(after)->second->size;
}

void CachingCore::set_limit(uint64_t bytes) {
  std::lock_guard lock(lock_);
  limit_ = bytes;
}

}  // namespace torch_npu::caching
