// Which ops ran on the CPU, and what to do about it.
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <mutex>

#include "csrc/aten/fallback/fallback.h"
#include "csrc/core/launch/legalised.h"

namespace torch_npu::fallback {
namespace {

// `import torch` has refused a bad value before; in a program without Python it is reported and the default taken.
Mode mode_from_environment() noexcept {
  const char* text = std::getenv("TORCH_NPU_FALLBACK");
  if (text == nullptr || *text == '\0') {
    return Mode::Warn;
  }
  try {
    return parse_mode(text);
  } catch (const c10::Error& error) {
    std::cerr << "torch_npu: TORCH_NPU_FALLBACK: " << error.what_without_backtrace() << '\n';
    return Mode::Warn;
  }
}

std::atomic<Mode> g_mode{mode_from_environment()};
std::mutex g_mutex;

struct Entry {
  uint64_t count = 0;
  bool warned = false;
};
std::map<std::string, Entry>& table() {
  static auto* entries = new std::map<std::string, Entry>();  // outlives ops that run at exit
  return *entries;
}

// "; the driver says: expected ..., got ...", or nothing.
std::string drivers_words(const std::string& op) {
  const std::string words = words_of_refusal(op);
  return words.empty() ? "" : "; the driver says: " + words;
}

bool g_refusal_said = false;  // by a warning about a compiled command: the first stands for all, a model has hundreds

}  // namespace

Mode parse_mode(const std::string& text) {
  if (text == "warn") return Mode::Warn;
  if (text == "quiet") return Mode::Quiet;
  if (text == "error") return Mode::Error;
  TORCH_CHECK_VALUE(false, "expected one of warn, quiet, error, got \"", text, "\"");
}

Mode mode() noexcept {
  return g_mode.load(std::memory_order_relaxed);
}

void set_mode(Mode mode) noexcept {
  g_mode.store(mode, std::memory_order_relaxed);
}

std::map<std::string, uint64_t> counts() {
  std::lock_guard lock(g_mutex);
  std::map<std::string, uint64_t> counts;
  for (const auto& [op, entry] : table()) counts[op] = entry.count;
  return counts;
}

void reset() {
  std::lock_guard lock(g_mutex);
  table().clear();
  g_refusal_said = false;
}

void check(const std::string& op) {
  if (mode() != Mode::Error) return;
  {
    std::lock_guard lock(g_mutex);
    ++table()[op].count;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, op,
      " has no npu kernel for this call, and TORCH_NPU_FALLBACK=error forbids running it on the "
      "CPU: set it to warn or quiet, or give the driver the command",
      drivers_words(op));
}

void note(const std::string& op) {
  check(op);
  const bool compiled = op.rfind("compiled::", 0) == 0;
  bool warn = false;
  {
    std::lock_guard lock(g_mutex);
    Entry& entry = table()[op];
    ++entry.count;
    bool& said = compiled ? g_refusal_said : entry.warned;
    warn = mode() == Mode::Warn && !said;
    said |= warn;
  }
  if (warn) {
    TORCH_WARN("npu: ", op,
               compiled
                   ? " was refused by the driver, and ran on the CPU, as will whatever else it refuses of compiled "
                     "graphs"
                   : " has no npu kernel for this call and ran on the CPU",
               drivers_words(op),
               " (data is copied there and back). torch_npu.fallback.report() lists all; TORCH_NPU_FALLBACK=error "
               "forbids it, =quiet silences this.");
  }
}

}  // namespace torch_npu::fallback
