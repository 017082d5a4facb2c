#include "csrc/core/memory/quarantine.h"

#include <deque>
#include <mutex>

#include "csrc/core/memory/caching/core.h"

namespace torch_npu {
namespace {

constexpr uint64_t kMostBytes = 64u << 20;
constexpr size_t kMostBlocks = 4096;

struct Waiting {
  std::mutex mutex;  // the cache's lock is not taken under it
  std::deque<caching::Block*> blocks;
  uint64_t bytes = 0;
};

Waiting& waiting() {
  static auto* waiting = new Waiting;
  return *waiting;
}

}  // namespace

std::vector<caching::Block*> quarantine(caching::Block* block) {
  if (block->pool->is_private) return {block};
  Waiting& all = waiting();
  std::lock_guard lock(all.mutex);
  all.blocks.push_back(block);
  all.bytes += block->size;
  std::vector<caching::Block*> done;
  // The newest one always waits, however large it is.
  while (all.blocks.size() > 1 && (all.bytes > kMostBytes || all.blocks.size() > kMostBlocks)) {
    done.push_back(all.blocks.front());
    all.bytes -= all.blocks.front()->size;
    all.blocks.pop_front();
  }
  return done;
}

void empty_quarantine() {
  std::deque<caching::Block*> blocks;
  {
    std::lock_guard lock(waiting().mutex);
    blocks.swap(waiting().blocks);
    waiting().bytes = 0;
  }
  for (caching::Block* block : blocks) block->pool->core->free(block);
}

}  // namespace torch_npu
