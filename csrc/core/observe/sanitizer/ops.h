// The ops that a thread is in, and what ops of the CPU do with pinned memory. PyTorch tells of them while the sanitizer
// is on.
#pragma once
#include <cstdint>
#include <string>

namespace torch_npu::sanitizer {

void watch_ops(bool on);

// The outermost op of this thread, "aten::linear"; empty: none.
std::string current_op();

// An op of the CPU is about to use these bytes (pinned.cpp).
void host_uses(const std::string& op, const void* data, uint64_t size, bool writes);
// Is there pinned memory that a copy may be using?
bool has_pinned_copies() noexcept;

}  // namespace torch_npu::sanitizer
