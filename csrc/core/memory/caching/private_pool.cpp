#include <algorithm>

#include "csrc/core/memory/caching/core.h"

namespace torch_npu::caching {
namespace {

// A thread's number can be another thread's once it has ended, so its cores forget it then.
struct ThreadEnd {
  std::vector<std::weak_ptr<CachingCore*>> cores;
  ~ThreadEnd() {
    for (const auto& core : cores) {
      if (const auto alive = core.lock()) (*alive)->forget_thread();
    }
  }
};
thread_local ThreadEnd tls_end;

}  // namespace

StreamPool& CachingCore::find_pool(npu_stream* stream) {
  const PoolId* id = nullptr;
  if (const auto to = redirected_.find(stream); to != redirected_.end()) {
    id = &to->second;
  } else if (!thread_uses_.empty()) {
    const auto own = std::find_if(thread_uses_.rbegin(), thread_uses_.rend(),
                                  [me = std::this_thread::get_id()](const ThreadUse& use) { return use.thread == me; });
    if (own != thread_uses_.rend()) id = &own->pool;
  }
  auto& pool = id ? private_pools_.at(*id).of_stream[stream] : pools_[stream];
  if (!pool) {
    pool = std::make_unique<StreamPool>();
    pool->core = this;
    pool->stream = stream;
    pool->is_private = id != nullptr;
    if (id) pool->id = *id;
  }
  last_pool_ = thread_uses_.empty() ? pool.get() : nullptr;
  return *pool;
}

void CachingCore::begin_pool(PoolId id, npu_stream* stream) {
  std::lock_guard lock(lock_);
  ++private_pools_[id].holders;
  redirected_[stream] = id;
  last_pool_ = nullptr;
}

void CachingCore::end_pool(npu_stream* stream) {
  std::lock_guard lock(lock_);
  redirected_.erase(stream);
  last_pool_ = nullptr;
}

void CachingCore::hold_pool(PoolId id) {
  std::lock_guard lock(lock_);
  ++private_pools_[id].holders;
}

void CachingCore::release_pool(PoolId id) {
  std::lock_guard lock(lock_);
  --private_pools_.at(id).holders;
}

int CachingCore::holders(PoolId id) {
  std::lock_guard lock(lock_);
  const auto pool = private_pools_.find(id);
  return pool == private_pools_.end() ? 0 : pool->second.holders;
}

uint64_t CachingCore::begin_thread_pool(PoolId id) {
  const auto known = [this](const auto& core) { return core.lock() == alive_; };
  if (std::none_of(tls_end.cores.begin(), tls_end.cores.end(), known)) tls_end.cores.push_back(alive_);
  std::lock_guard lock(lock_);
  ++private_pools_[id].holders;
  thread_uses_.push_back({++last_use_, std::this_thread::get_id(), id});
  last_pool_ = nullptr;
  return last_use_;
}

void CachingCore::end_thread_pool(uint64_t use) {
  end_uses([use](const ThreadUse& other) { return other.number == use; });
}

void CachingCore::forget_thread() {
  end_uses([me = std::this_thread::get_id()](const ThreadUse& use) { return use.thread == me; });
}

template <class Ends>
void CachingCore::end_uses(Ends ends) {
  std::lock_guard lock(lock_);
  std::erase_if(thread_uses_, [&](const ThreadUse& use) {
    const bool ended = ends(use);
    if (ended) --private_pools_.at(use.pool).holders;
    return ended;
  });
}

}  // namespace torch_npu::caching
