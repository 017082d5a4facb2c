// The memory cache of one device. Freed memory stays with the stream that used it, because work on one stream is
// ordered: the next request on that stream may have it at once. Memory that other streams used too (record_stream)
// waits until events on those streams are reached.
//
// Small requests (to 1 MiB) have size classes with a last-in first-out bin each: a hit is a lock, a pop and the
// statistics. All else is best fit with splitting and merging in segments. Bins are merged before more memory is asked
// of the driver.
//
// A private pool is memory that a captured graph refers to by address: what is allocated on a stream between begin_pool
// and end_pool comes from there and goes back there, and nobody else gets it as long as the pool is held. The same
// holds for what a thread allocates between begin_thread_pool and end_thread_pool; a graph's pool goes before a
// thread's.
//
// Threads: every function may be called from any thread. Blocks belong to the caller between allocate and free.
#pragma once
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "csrc/core/memory/caching/block.h"
#include "csrc/core/memory/caching/counter.h"
#include "csrc/core/memory/caching/lock.h"
#include "csrc/core/memory/caching/types.h"

namespace torch_npu::caching {

class CachingCore {
 public:
  // `config` is asked whenever memory is obtained from the driver, so settings can change at run time.
  CachingCore(const npu_driver* api, npu_device* device, uint64_t alignment, int tag, Config (*config)());
  // Gives all memory back to the driver. No block may be in use.
  ~CachingCore();
  CachingCore(const CachingCore&) = delete;

  // Null, and *why filled in, if there is no memory even after the cache was given back.
  Block* allocate(npu_stream* stream, uint64_t size, OutOfMemory* why) {
    std::lock_guard lock(lock_);
    if (pending_blocks_) [[unlikely]] {
      poll_events();
    }
    StreamPool& pool = pool_of(stream);
    if (size <= kSmallLimit) [[likely]] {
      const SizeClass wanted = SizeClass::of((size + unit_mask_) >> unit_shift_);
      if (Block* block = pool.bins[wanted.index]) [[likely]] {
        pool.bins[wanted.index] = block->next_binned;
        pool.binned_bytes -= block->size;
        hand_out(block, size);
        return block;
      }
    }
    return allocate_slow(pool, size, why);
  }

  void free(Block* block) noexcept;

  // The block is used by work on this stream too. A stream of another device is fine.
  void record_stream(Block* block, const StreamUse& use);

  // Requests on `stream` go to the private pool `id`, which is made if there is none, until end_pool. begin_pool also
  // holds the pool; release_pool lets go of it. Memory of a pool that nobody holds can be given back to the driver.
  void begin_pool(PoolId id, npu_stream* stream);
  void end_pool(npu_stream* stream);
  void release_pool(PoolId id);
  // Requests of the calling thread; may be nested. Gives the number that end_thread_pool takes, on any thread. What a
  // thread has not ended when it ends itself, ends with it.
  uint64_t begin_thread_pool(PoolId id);
  void end_thread_pool(uint64_t use);
  void forget_thread();  // ends all of the calling thread
  void hold_pool(PoolId id);
  int holders(PoolId id);
  // Gives back to the driver what no tensor uses of a pool that nobody holds.
  void empty_pool(PoolId id);

  // Gives back to the driver what no tensor uses. Waits for streams whose memory is given back.
  void empty_cache();

  // No more than this is taken from the driver; 0: no limit.
  void set_limit(uint64_t bytes);

  Stats stats();
  void reset_peak_stats();
  void reset_accumulated_stats();
  std::vector<SegmentInfo> snapshot();
  std::pair<uint64_t, uint64_t> allocated_and_reserved();

  // The block in use that contains the address, or null.
  Block* find(npu_addr addr);
  bool has_segment_at(npu_addr addr);  // obtained from the driver

  // Called, with the lock held, for each block that waited for events and is free now.
  void on_pending_done(void (*tell)(int tag, npu_addr addr, uint64_t size, npu_stream* stream)) {
    pending_done_ = tell;
  }

  int tag() const { return tag_; }  // the caller's number for the device

 private:
  StreamPool& pool_of(npu_stream* stream) {
    if (last_pool_ && last_pool_->stream == stream) [[likely]] {
      return *last_pool_;
    }
    return find_pool(stream);
  }
  StreamPool& find_pool(npu_stream* stream);

  struct PrivatePool {
    int holders = 0;
    std::unordered_map<npu_stream*, std::unique_ptr<StreamPool>> of_stream;
  };

  struct ThreadUse {
    uint64_t number;
    std::thread::id thread;
    PoolId pool;
  };
  template <class Ends>
  void end_uses(Ends ends);  // those of which `ends` is true

  // core.cpp: blocks
  Block* allocate_slow(StreamPool& pool, uint64_t size, OutOfMemory* why);
  Block* take_fitting(StreamPool& pool, bool large, uint64_t size);
  Block* cut(Block* block, uint64_t size);
  void hand_out(Block* block, uint64_t requested);
  void become_inactive(Block* block);
  void leave_inactive(Block* block);
  void finish_free(Block* block);
  void merge_and_keep(Block* block);
  void absorb_next(Block* block);
  void merge_bins(StreamPool& pool);
  Block* new_block(StreamPool& pool, Segment* segment, npu_addr addr, uint64_t size);
  void delete_block(Block* block);

  // segment.cpp: memory of the driver
  Block* obtain(StreamPool& pool, bool large, uint64_t size, OutOfMemory* why);
  Block* new_segment(StreamPool& pool, bool large, uint64_t size, OutOfMemory* why);
  Block* grow(StreamPool& pool, bool large, uint64_t size, OutOfMemory* why);
  Block* map_part(Block* block, uint64_t size);
  bool reserve(StreamPool& pool, bool large, uint64_t size);
  bool within_limit(uint64_t more, OutOfMemory* why);
  void note_failure(npu_status status, OutOfMemory* why);
  void release_free();
  void release_free(StreamPool& pool);
  void release_free(PrivatePool& pool);
  void release_segment(Block* whole);
  void unmap_free(Segment* segment);
  void collect_garbage(uint64_t more);
  void wait_for(StreamPool& pool);
  uint64_t segment_size(bool large, uint64_t size) const;

  // pending.cpp: blocks that wait for events
  void start_pending(Block* block);
  void poll_events();
  void wait_for_events();
  npu_event* get_event();

  // report.cpp
  void describe_failure(uint64_t size, OutOfMemory* why);

  struct Pending {
    npu_event* event;
    Block* block;
  };
  struct PendingQueue {
    StreamUse use;
    std::deque<Pending> waiting;
  };

  const npu_driver* const api_;
  npu_device* const device_;
  const int tag_;
  Config (*const config_source_)();
  void (*pending_done_)(int, npu_addr, uint64_t, npu_stream*) = nullptr;

  Lock lock_;  // guards all below
  uint32_t pending_blocks_ = 0;
  uint32_t unit_shift_;
  uint64_t unit_mask_;
  StreamPool* last_pool_ = nullptr;
  Counters counters_;
  Config config_;
  uint64_t limit_ = 0;
  uint64_t tick_ = 0;
  std::unordered_map<npu_stream*, std::unique_ptr<StreamPool>> pools_;
  std::map<PoolId, PrivatePool> private_pools_;
  std::unordered_map<npu_stream*, PoolId> redirected_;  // between begin_pool and end_pool
  // Between begin_thread_pool and end_thread_pool. While there are any, last_pool_ is null.
  std::vector<ThreadUse> thread_uses_;
  uint64_t last_use_ = 0;
  const std::shared_ptr<CachingCore*> alive_ = std::make_shared<CachingCore*>(this);  // for threads that end later
  std::map<npu_addr, Segment*> segments_;
  std::unordered_map<npu_stream*, PendingQueue> pending_;
  std::vector<npu_event*> spare_events_;
  std::vector<Block*> spare_blocks_;
};

inline void CachingCore::leave_inactive(Block* block) {
  if (block->counted_split) {
    counters_.inactive_split.sub(block->large, 1);
    counters_.inactive_split_bytes.sub(block->large, static_cast<int64_t>(block->size));
    block->counted_split = false;
  }
}

inline void CachingCore::hand_out(Block* block, uint64_t requested) {
  leave_inactive(block);
  block->state = State::kAllocated;
  block->requested = requested;
  const bool large = block->large;
  const auto size = static_cast<int64_t>(block->size);
  counters_.allocation.add(large, 1);
  counters_.allocated_bytes.add(large, size);
  counters_.active.add(large, 1);
  counters_.active_bytes.add(large, size);
  counters_.requested_bytes.add(large, static_cast<int64_t>(requested));
}

}  // namespace torch_npu::caching
