// The sanitizer: wrong uses of device memory, found where they happen (docs/design/sanitizer.md). Off unless
// TORCH_NPU_SANITIZE or enable() say otherwise. It is told of commands, copies, events and waits by a watcher of the
// drivers, and of tensors by the allocator.
#pragma once
#include <cstdint>
#include <string>

#include "csrc/core/memory/sanitizer_calls.h"

namespace torch_npu::sanitizer {

enum Checks : uint32_t { kMemory = 1, kInit = 2, kRace = 4, kAll = 7 };

struct Options {
  uint32_t checks = kAll;
  bool raises = true;  // at the op that is at fault, which is then not run; or else print and go on
};

// "memory,race"; throws for other words.
uint32_t parse_checks(const std::string& text);

// Memory that is in use counts as written, and work that was given as done.
void enable(const Options& options);
// As TORCH_NPU_SANITIZE and TORCH_NPU_SANITIZE_REPORT say; throws for other words.
void enable_from_environment();
void disable();
Options options();  // no checks: off

// -- those who know more than a driver's call tells --

// What this thread submits in the time of the scope was recorded by a graph, and is asked for here.
class ReplayScope {
 public:
  ReplayScope();
  ~ReplayScope();
  ReplayScope(const ReplayScope&) = delete;

 private:
  bool entered_;
};

}  // namespace torch_npu::sanitizer
