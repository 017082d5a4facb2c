#include "csrc/core/observe/sanitizer/sanitizer.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <iostream>
#include <sstream>

#include "csrc/core/device/thread_state.h"
#include "csrc/core/memory/allocator.h"
#include "csrc/core/memory/quarantine.h"
#include "csrc/core/observe/sanitizer/ops.h"
#include "csrc/core/observe/sanitizer/report.h"
#include "csrc/core/observe/sanitizer/state.h"

namespace torch_npu::sanitizer {

State& state() {
  static auto* state = new State;  // tensors may outlive every static
  return *state;
}

Thread& this_thread() {
  static thread_local Thread thread;
  return thread;
}

std::atomic<bool> g_has_pinned{false};

std::string named(const std::string& what) {
  const std::string op = current_op();
  return op.empty() ? what : op + " (" + what + ")";
}

namespace {

Storage storage_from_before(npu_addr begin, uint64_t size, bool is_of_graphs, const RecordPtr& before) {
  Storage storage;
  storage.begin = begin;
  storage.size = size;
  storage.is_of_graphs = is_of_graphs;
  storage.allocated = before;
  storage.written = Written(size, true);
  return storage;
}

// Tensors that are there already, and what graphs use although no tensor is there.
void adopt_tensors() {
  RecordPtr before;
  for (c10::DeviceIndex index = 0; index < kMaxDevices; ++index) {
    if (!is_opened(index)) continue;
    if (!before) before = std::make_shared<Record>(Record{"before the sanitizer was enabled", "", {}, "", {}});
    const auto segments = memory_snapshot(index);
    std::lock_guard lock(state().mutex);
    Shadow& shadow = state().shadows[index];
    for (const auto& segment : segments) {
      for (const auto& block : segment.blocks) {
        const uint64_t used = block.allocated ? block.requested : 0;
        if (used) shadow.allocated(storage_from_before(block.addr, used, segment.is_private, before));
        if (!segment.is_private || used == block.size) continue;
        shadow.allocated(storage_from_before(block.addr + used, block.size - used, true, before));
        shadow.freed(block.addr + used, before, {}, {});
      }
    }
  }
}

}  // namespace

uint32_t parse_checks(const std::string& text) {
  uint32_t checks = 0;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    if (word == "memory") {
      checks |= kMemory;
    } else if (word == "init") {
      checks |= kInit;
    } else if (word == "race") {
      checks |= kRace;
    } else if (word == "all" || word == "1") {
      checks |= kAll;
    } else {
      TORCH_CHECK_VALUE(false, "expected some of memory, init and race, separated by commas, or all, got \"", word,
                        "\"");
    }
  }
  TORCH_CHECK_VALUE(checks, "expected some of memory, init and race, got none of them");
  return checks;
}

void enable_from_environment() {
  const char* checks = std::getenv("TORCH_NPU_SANITIZE");
  if (!checks || !*checks || std::string_view(checks) == "0") return;
  const char* way = std::getenv("TORCH_NPU_SANITIZE_REPORT");
  const std::string_view given = way && *way ? way : "raise";
  TORCH_CHECK(given == "raise" || given == "log", "TORCH_NPU_SANITIZE_REPORT: expected raise or log, got \"", given,
              "\"");
  Options options{0, given == "raise"};
  try {
    options.checks = parse_checks(checks);
  } catch (const c10::Error& error) {
    TORCH_CHECK(false, "TORCH_NPU_SANITIZE: ", error.what_without_backtrace());
  }
  enable(options);
}

void enable(const Options& options) {
  {
    std::lock_guard lock(state().mutex);
    state().options = options;
  }
  if (watch_memory(kWatchSanitizer, true)) return;
  watch_exit();
  adopt_tensors();
  watch_ops(true);
  add_watcher(watcher());
}

void disable() {
  if (!watch_memory(kWatchSanitizer, false)) return;
  remove_watcher(watcher());
  watch_ops(false);
  empty_quarantine();
  forget_forward_lines();
  State& all = state();
  std::lock_guard lock(all.mutex);
  all.options.checks = 0;
  ++all.generation;
  all.order = {};
  all.shadows.clear();
  all.early.clear();
  all.pinned.clear();
  g_has_pinned = false;
}

Options options() {
  std::lock_guard lock(state().mutex);
  return state().options;
}

void allocated(c10::DeviceIndex device, npu_addr addr, uint64_t size, npu_stream* owner, bool is_of_graphs) {
  Storage storage;
  storage.begin = addr;
  storage.size = size;
  storage.is_of_graphs = is_of_graphs;
  storage.allocated = make_record(named("an allocation"), owner);
  storage.written = Written(size);
  State& all = state();
  std::lock_guard lock(all.mutex);
  all.shadows[device].allocated(std::move(storage));
}

void allocates(c10::DeviceIndex device, const npu_stream* owner) {
  std::vector<EarlyFree> wrong;
  bool raises = false;
  {
    State& all = state();
    std::lock_guard lock(all.mutex);
    const auto early = all.early.find(all.order.stream(owner, device));
    if (early == all.early.end()) return;
    const Clock& now = all.order.now(early->first);
    for (EarlyFree& free : early->second) {
      if (!now.has(free.access.stamp)) wrong.push_back(std::move(free));
    }
    all.early.erase(early);
    raises = all.options.raises;
  }
  if (wrong.empty()) return;
  const RecordPtr record = make_record(named("an allocation"), owner);
  for (const EarlyFree& free : wrong) deliver(describe_early_free(free, *record), raises);
}

void freed(c10::DeviceIndex device, const Freed& freed) noexcept {
  try {
    const RecordPtr record = make_record(named("the last reference to it went away"), nullptr);
    State& all = state();
    std::lock_guard lock(all.mutex);
    const uint32_t owner = all.order.stream(freed.owner, device);
    std::vector<uint32_t> passed{owner};
    for (const npu_stream* stream : freed.passed) passed.push_back(all.order.stream(stream, device));
    std::vector<EarlyFree> early = all.shadows[device].freed(freed.addr, record, all.order.now(owner), passed);
    if (!(all.options.checks & kRace)) return;
    auto& waiting = all.early[owner];
    waiting.insert(waiting.end(), std::make_move_iterator(early.begin()), std::make_move_iterator(early.end()));
  } catch (const std::exception& failure) {
    std::cerr << "torch_npu sanitizer: a free was not noted: " << failure.what() << '\n';
  }
}

ReplayScope::ReplayScope() : entered_(is_on()) {
  if (entered_) this_thread().replay = make_record("replay", nullptr);
}

ReplayScope::~ReplayScope() {
  if (entered_) this_thread().replay = nullptr;
}

Elements::Elements() : entered_(is_on()) {
  if (!entered_) return;
  this_thread().own_elements = {};
  this_thread().elements = &this_thread().own_elements;
}

Elements::~Elements() {
  if (entered_) this_thread().elements = nullptr;
}

void Elements::add(const void* data, c10::IntArrayRef sizes, c10::IntArrayRef strides, size_t width) {
  if (!entered_ || c10::multiply_integers(sizes) == 0 || !data) return;
  const auto addr = reinterpret_cast<npu_addr>(data);
  Bytes& bytes = this_thread().own_elements;
  if (sizes.size() <= NPU_MAX_RANK) {
    bytes.add(Box(addr, sizes.data(), strides.data(), static_cast<int>(sizes.size()), width));
    return;
  }
  uint64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) last += static_cast<uint64_t>((sizes[d] - 1) * strides[d]);
  const int64_t count = static_cast<int64_t>(last) + 1, stride = 1;
  bytes.add(Box(addr, &count, &stride, 1, width));
}

}  // namespace torch_npu::sanitizer
