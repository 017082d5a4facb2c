// Choosing an implementation. A command's ways stand in a table, the preferred one first; the first that does not
// refuse the problem runs. Which it was, and why those before it were not, is a line of the log (TORCH_NPU_DEBUG=3).
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <type_traits>

#include "npu/command.h"

namespace cmodel {

// Reasons are lower-case facts in a few words that live forever: "the kernel has more than one point".
template <class Problem>
struct Way {
  const char* name;
  // Why this way does not take the problem; nullptr: it does. Cheap: looks at sizes, types and strides, not at data.
  // A null function refuses nothing, as that of a table's last way.
  const char* (*refuses)(Problem& problem);
  // Why it gave up after all, which only data can make it do; nothing is stored then. nullptr: the result is there.
  const char* (*run)(Problem& problem);
};

// For `Way::run`: a function, of the problem or its member, that never gives up.
template <auto function, class Problem>
const char* always(Problem& problem) {
  std::invoke(function, problem);
  return nullptr;
}

// What is said of one choice. Says nothing, at the cost of a comparison, unless the log is on.
class WayLog {
 public:
  explicit WayLog(const npu_command& command) : command_(command) {}
  void refused(const char* name, const char* reason) {
    if (enabled()) [[unlikely]] {
      add(name, reason);
    }
  }
  void taken(const char* name) const {
    if (enabled()) [[unlikely]] {
      write(name);
    }
  }

 private:
  static bool enabled() { return enabled_; }
  void add(const char* name, const char* reason);
  void write(const char* name) const;

  static const bool enabled_;
  const npu_command& command_;
  std::string refused_;
};

// False: every way refused, which a table whose last one refuses nothing cannot do. The table holds ways, or pointers
// to such as stand each in a file of its own.
template <class Table, class Problem>
bool run_first(const npu_command& command, const Table& table, Problem& problem) {
  WayLog log(command);
  for (const auto& entry : table) {
    const Way<Problem>* way;
    if constexpr (std::is_pointer_v<std::remove_cvref_t<decltype(entry)>>) {
      way = entry;
    } else {
      way = &entry;
    }
    const char* reason = way->refuses ? way->refuses(problem) : nullptr;
    if (!reason) reason = way->run(problem);
    if (!reason) {
      log.taken(way->name);
      return true;
    }
    log.refused(way->name, reason);
  }
  return false;
}

}  // namespace cmodel
