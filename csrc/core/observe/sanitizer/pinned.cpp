// Pinned memory that copies use while the host goes on.
#include "csrc/core/observe/sanitizer/ops.h"
#include "csrc/core/observe/sanitizer/report.h"
#include "csrc/core/observe/sanitizer/state.h"

namespace torch_npu::sanitizer {

bool has_pinned_copies() noexcept {
  return g_has_pinned.load(std::memory_order_relaxed);
}

void forget_done_copies(State& all) {
  std::erase_if(all.pinned, [&](const PinnedCopy& copy) { return all.order.host().has(copy.stamp); });
}

void host_uses(const std::string& op, const void* data, uint64_t size, bool writes) {
  const auto* begin = static_cast<const char*>(data);
  std::optional<PinnedCopy> found;
  {
    State& all = state();
    std::lock_guard lock(all.mutex);
    forget_done_copies(all);
    g_has_pinned = !all.pinned.empty();
    for (const PinnedCopy& copy : all.pinned) {
      if ((copy.writes || writes) && begin < copy.end && copy.begin < begin + size) found = copy;
    }
  }
  if (!found) return;
  // Called by PyTorch in a place where an exception would be swallowed.
  const auto from = static_cast<uint64_t>(std::max(begin, found->begin) - found->begin);
  const auto to = static_cast<uint64_t>(std::min(begin + size, found->end) - found->begin);
  const auto whole = static_cast<uint64_t>(found->end - found->begin);
  deliver(describe_host(*make_record(op, nullptr), writes, *found->record, found->writes, {from, to}, whole), false);
}

}  // namespace torch_npu::sanitizer
