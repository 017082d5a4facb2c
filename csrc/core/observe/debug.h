// The debug log: a line per op that says where it ran (docs/design/debug-log.md). Off unless TORCH_NPU_DEBUG or
// enable() say otherwise, and then it costs nothing: it is told of ops by a callback of PyTorch's profiler hooks and of
// commands and copies by a watcher of the drivers, and both are there only while it is on.
#pragma once
#include <ATen/record_function.h>

#include <atomic>
#include <string>
#include <string_view>

namespace torch_npu::debug {

enum class Format { Text, Json };
enum class Color { Auto, Always, Never };  // Auto: on a terminal, unless NO_COLOR is set

struct Options {
  int level = 1;                 // 1: ops, 2: and transfers, 3: and calls of the driver
  Format format = Format::Text;  // Json: one object per line
  std::string file;              // appended to; empty: stderr
  Color color = Color::Auto;
};

// Throws for a level that is not 1 to 3, or a file that cannot be written. Enabling again changes the options.
void enable(const Options& options);
void disable() noexcept;
int level() noexcept;  // 0: off

// Around an op that is computed on the CPU: its line is written, and the transfers inside belong to it. `op` may carry
// an overload, which the line leaves out. In a profile it is a range, "fallback aten::foo".
class FallbackScope {
 public:
  explicit FallbackScope(const std::string& op) : range_(at::RecordScope::USER_SCOPE), entered_(level() > 0) {
    if (range_.isActive()) [[unlikely]] {
      const std::string name = "fallback " + op;
      range_.before(std::string_view(name));
    }
    if (entered_) [[unlikely]] {
      enter(op);
    }
  }
  ~FallbackScope() {
    if (entered_) leave();
  }
  FallbackScope(const FallbackScope&) = delete;

 private:
  static void enter(const std::string& op);
  static void leave() noexcept;
  at::RecordFunction range_;
  bool entered_;
};

}  // namespace torch_npu::debug
