// Freed blocks that other streams may still use, and waiting for streams.
#include <time.h>

#include "csrc/core/memory/caching/core.h"

namespace torch_npu::caching {
namespace {

// Waits by asking, not with event_synchronize: that would take the report of an asynchronous failure away from the
// program, which has to see it at its own next synchronisation. An error counts as reached: the work will not run.
void wait_until_reached(const npu_driver& api, npu_event* event) {
  for (int turn = 0; api.event_query(event) == NPU_NOT_READY; ++turn) {
    if (turn < 64) {
      sched_yield();
    } else {
      const timespec nap{0, 20'000};
      nanosleep(&nap, nullptr);
    }
  }
}

void wait_until_idle(const npu_driver& api, npu_stream* stream) {
  while (api.stream_query(stream) == NPU_NOT_READY) {
    const timespec nap{0, 20'000};
    nanosleep(&nap, nullptr);
  }
}

}  // namespace

// Null if the driver has no event left: callers then wait instead.
npu_event* CachingCore::get_event() {
  if (!spare_events_.empty()) {
    npu_event* event = spare_events_.back();
    spare_events_.pop_back();
    return event;
  }
  npu_event* event = nullptr;
  return api_->event_create(device_, 0, &event) == NPU_OK ? event : nullptr;
}

void CachingCore::start_pending(Block* block) {
  block->state = State::kPending;
  for (const StreamUse& use : block->uses) {
    npu_event* event = nullptr;
    if (use.device == device_) {
      event = get_event();
    } else if (use.api->event_create(use.device, 0, &event) != NPU_OK) {
      event = nullptr;
    }
    if (event && use.api->event_record(event, use.stream) != NPU_OK) {
      use.api->event_destroy(event);
      event = nullptr;
    }
    if (!event) {
      wait_until_idle(*use.api, use.stream);
      continue;
    }
    PendingQueue& queue = pending_[use.stream];
    queue.use = use;
    queue.waiting.push_back({event, block});
    ++block->pending_events;
  }
  block->uses.clear();
  if (block->pending_events == 0) {
    if (pending_done_) pending_done_(tag_, block->addr, block->requested, block->pool->stream);
    finish_free(block);
  } else {
    ++pending_blocks_;
  }
}

void CachingCore::poll_events() {
  for (auto& [stream, queue] : pending_) {
    while (!queue.waiting.empty()) {
      const auto [event, block] = queue.waiting.front();
      if (queue.use.api->event_query(event) == NPU_NOT_READY) break;
      queue.waiting.pop_front();
      if (queue.use.device == device_) {
        spare_events_.push_back(event);
      } else {
        queue.use.api->event_destroy(event);
      }
      if (--block->pending_events == 0) {
        --pending_blocks_;
        if (pending_done_) pending_done_(tag_, block->addr, block->requested, block->pool->stream);
        finish_free(block);
      }
    }
  }
}

void CachingCore::wait_for_events() {
  if (pending_blocks_ == 0) return;
  ++counters_.num_sync_all_streams;
  for (auto& [stream, queue] : pending_) {
    if (!queue.waiting.empty()) wait_until_reached(*queue.use.api, queue.waiting.back().event);
  }
  poll_events();
}

// Memory may only be given back when no queued work uses it.
void CachingCore::wait_for(StreamPool& pool) {
  npu_event* event = get_event();
  if (event && api_->event_record(event, pool.stream) == NPU_OK) {
    wait_until_reached(*api_, event);
  } else {
    wait_until_idle(*api_, pool.stream);
  }
  if (event) spare_events_.push_back(event);
}

}  // namespace torch_npu::caching
