#include "csrc/core/sanitizer/sanitizer.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <optional>
#include <sstream>

#include "csrc/core/allocator.h"
#include "csrc/core/driver_watch.h"
#include "csrc/core/internal.h"
#include "csrc/core/quarantine.h"
#include "csrc/core/sanitizer/ops.h"
#include "csrc/core/sanitizer/order.h"
#include "csrc/core/sanitizer/report.h"
#include "csrc/core/thread_state.h"
#include "support/program.h"

namespace torch_npu::sanitizer {
namespace {

// A copy that uses pinned memory until the host has waited for it.
struct PinnedCopy {
  const char* begin;
  const char* end;
  bool writes;  // to the host
  Stamp stamp;
  RecordPtr record;
};

struct State {
  std::mutex mutex;  // innermost: neither Python's lock nor the cache's is taken under it
  Options options{0, true};
  Order order;
  std::map<c10::DeviceIndex, Shadow> shadows;
  std::map<uint32_t, std::vector<EarlyFree>> early;  // by the stream that owned the memory
  std::vector<PinnedCopy> pinned;
};

std::atomic<bool> g_has_pinned{false};  // copies in the list

State& state() {
  static auto* state = new State;  // tensors may outlive every static
  return *state;
}

// What a thread is about to do: checked before the driver's call, and done behind it.
struct Work {
  c10::DeviceIndex device = -1;
  uint32_t stream = 0;
  RecordPtr record;
  std::vector<Touch> touches;
  Bytes unwritten;  // among the results: chosen from what nobody has written
};

struct Thread {
  std::optional<Work> work;
  RecordPtr replay;  // who replays a graph; null: nobody
  const Bytes* elements = nullptr;
  Bytes own_elements;
};

Thread& this_thread() {
  static thread_local Thread thread;
  return thread;
}

bool is_copy_command(const DriverCall& call) {
  return call.command && call.command->kind == NPU_COPY;
}

// "aten::zeros (an allocation)": of what has no name of its own.
std::string named(const std::string& what) {
  const std::string op = current_op();
  return op.empty() ? what : op + " (" + what + ")";
}

std::string name_of(const DriverCall& call) {
  if (call.command) return call.command->label ? call.command->label : npu::command_name(call.command->kind);
  const std::string_view function(call.function);
  return named(function == "copy_to_host"     ? "a copy to the host"
               : function == "copy_to_device" ? "a copy from the host"
                                              : "a copy on the device");
}

ReadMemory reader_for(const DriverCall& call) {
  return [&call](npu_addr addr, uint64_t size, void* out) {
    return call.api->copy_to_host(call.stream, out, addr, size, 0) == NPU_OK;
  };
}

std::vector<Touch> touches_of_call(const DriverCall& call, const npu_program_desc* program) {
  if (call.command) return touches_of(*call.command, program, reader_for(call));
  const std::string_view function(call.function);
  const Run run{call.addr, call.addr + call.size};
  if (call.size == 0) return {};
  if (function == "copy_on_device") {
    return {{1, false, false, Bytes(Run{call.source, call.source + call.size})}, {0, true, false, Bytes(run)}};
  }
  const Bytes* elements = this_thread().elements;
  return {{0, function == "copy_to_device", false, elements ? *elements : Bytes(run)}};
}

npu_addr base_of(const DriverCall& call, uint32_t operand) {
  if (call.command) return call.command->operands[operand].addr;
  return operand == 1 ? call.source : call.addr;
}

// The mutex is held. The touch at fault goes to `place`.
std::optional<Fault> check(const DriverCall& call, const Work& work, bool in_replay, size_t* place) {
  State& all = state();
  const Shadow& shadow = all.shadows[work.device];
  const uint32_t checks = all.options.checks;
  // Copying what nobody wrote is no use of it: see Shadow::copied.
  const bool moves = is_copy_command(call) || std::string_view(call.function) == "copy_on_device";
  const Clock& now = all.order.now(work.stream);
  for (size_t k = 0; k < work.touches.size(); ++k) {
    const Touch& touch = work.touches[k];
    std::optional<Fault> fault;
    if (checks & kMemory) fault = shadow.check_memory(touch, base_of(call, touch.operand), in_replay);
    if (!fault && (checks & kInit) && !moves) {
      fault = shadow.check_written(touch, work.touches.data(), k, in_replay);
    }
    if (!fault && (checks & kRace)) fault = shadow.check_race(touch, now);
    *place = k;
    if (fault) return fault;
  }
  return std::nullopt;
}

// A program that chooses between values, as torch.where and masked_fill do, uses what it chooses. Asked only where it
// could choose what nobody has written: the conditions have to be computed.
void look_at_choices(const DriverCall& call, const npu_program_desc& program, Work& work, Touch& touch) {
  touch.used = used_bytes(*call.command, program, reader_for(call), touch);
  if (!work.unwritten.empty()) return;
  const Shadow* shadow = nullptr;
  {
    std::lock_guard lock(state().mutex);
    shadow = &state().shadows[work.device];
  }
  work.unwritten = unwritten_results(*call.command, program, reader_for(call), [&](Run element) {
    std::lock_guard lock(state().mutex);
    return shadow->is_written(Bytes(element));
  });
}

// Returns whether there is work to be told of when the call has succeeded.
bool begin(const DriverCall& call) {
  Thread& thread = this_thread();
  const auto stream = find_stream(call.stream);
  if (!stream) return false;  // of somebody who uses a driver past us
  Work work;
  work.device = stream->device_index();
  work.record = thread.replay ? nullptr : make_record(name_of(call), call.stream);
  if (thread.replay) {
    auto record = std::make_shared<Record>(*thread.replay);
    record->what = name_of(call);
    record->stream = stream->device().str() + " stream " + std::to_string(stream->id());
    work.record = std::move(record);
  }
  const auto program = call.command && call.command->program ? program_of(call.command->program) : nullptr;
  const npu_program_desc desc = program ? program->desc() : npu_program_desc{};
  work.touches = touches_of_call(call, program ? &desc : nullptr);
  std::optional<Fault> fault;
  bool raises = false;
  while (true) {
    size_t place = 0;
    {
      State& all = state();
      std::lock_guard lock(all.mutex);
      work.stream = all.order.stream(call.stream, work.device);
      fault = check(call, work, thread.replay != nullptr, &place);
      raises = all.options.raises;
    }
    if (!fault || fault->kind != Fault::kUnwritten) break;
    Touch& touch = work.touches[place];
    if (!touch.is_choice || touch.used) break;
    look_at_choices(call, desc, work, touch);
  }
  if (fault && fault->kind == Fault::kNoTensor && fault->touched.begin != 0 &&
      !is_cached_memory(work.device, fault->bytes.begin)) {
    fault.reset();  // memory of another allocator, which is not followed
  }
  if (fault) deliver(describe(*fault, *work.record, call.command), raises);
  thread.work = std::move(work);
  return true;
}

void end(const DriverCall& call) {
  Work work = std::move(*this_thread().work);
  this_thread().work.reset();
  State& all = state();
  std::lock_guard lock(all.mutex);
  if (all.options.checks == 0) return;
  Shadow& shadow = all.shadows[work.device];
  const Clock& now = all.order.now(work.stream);
  const std::string_view function(call.function);
  if (all.options.checks & kRace) {
    const Stamp stamp = all.order.step(work.stream);
    for (const Touch& touch : work.touches) shadow.accessed(touch, stamp, now, work.record);
    if (call.host && (call.flags & NPU_COPY_PINNED)) {
      const auto* begin = static_cast<const char*>(call.host);
      all.pinned.push_back({begin, begin + call.size, function == "copy_to_host", stamp, work.record});
      g_has_pinned = true;
    }
  }
  if (is_copy_command(call)) {
    if (!work.touches.empty()) shadow.copied(*call.command, work.record);
  } else if (function == "copy_on_device") {
    const int64_t size = static_cast<int64_t>(call.size), stride = 1;
    shadow.copied(Box(call.addr, &size, &stride, 1, 1), Box(call.source, &size, &stride, 1, 1), work.record);
  } else {
    for (const Touch& touch : work.touches) {
      if (touch.write) shadow.wrote(touch.bytes);
    }
    shadow.left_unwritten(work.unwritten, work.record);
  }
  if (function == "copy_to_host" && !(call.flags & NPU_COPY_PINNED)) all.order.finished(work.stream);
}

// Waits and events. The mutex is taken here.
void note_order(const DriverCall& call, std::string_view function, npu_status status) {
  if (status != NPU_OK) return;
  State& all = state();
  const auto on = call.stream ? find_stream(call.stream) : std::nullopt;
  std::lock_guard lock(all.mutex);
  const int device = on ? on->device_index() : -1;
  const auto stream = [&] { return all.order.stream(call.stream, device); };
  if (function == "event_record" && on) {
    all.order.recorded(call.event, stream());
  } else if (function == "stream_wait_event" && on) {
    all.order.waits(stream(), call.event);
  } else if (function == "event_synchronize" || function == "event_query") {
    all.order.reached(call.event);
  } else if ((function == "stream_synchronize" || function == "stream_query") && on) {
    all.order.finished(stream());
  } else if (function == "device_synchronize" || function == "device_reset") {
    for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
      if (is_opened(index) && opened_device(index).handle == call.device) all.order.finished_all(index);
    }
  }
}

struct Watcher final : DriverWatcher {
  uint64_t started(const DriverCall& call) override {
    const std::string_view function(call.function);
    if (function == "submit" || function.starts_with("copy_")) return begin(call);
    if (function == "event_destroy") {
      std::lock_guard lock(state().mutex);
      state().order.destroyed(call.event);
    }
    return 0;
  }

  void finished(const DriverCall& call, npu_status status, uint64_t works) override {
    const std::string_view function(call.function);
    if (works) {
      if (status == NPU_OK) end(call);
      this_thread().work.reset();
    } else {
      note_order(call, function, status);
    }
  }
};

Watcher g_watcher;

// Tensors that are there already.
void adopt_tensors() {
  RecordPtr before;
  for (c10::DeviceIndex index = 0; index < kMaxDevices; ++index) {
    if (!is_opened(index)) continue;
    if (!before) before = std::make_shared<Record>(Record{"before the sanitizer was enabled", "", {}, "", {}});
    for (const auto& segment : memory_snapshot(index)) {
      for (const auto& block : segment.blocks) {
        if (!block.allocated) continue;
        Storage storage;
        storage.begin = block.addr;
        storage.size = block.requested;
        storage.allocated = before;
        storage.written = Written(block.requested, true);
        std::lock_guard lock(state().mutex);
        state().shadows[index].allocated(std::move(storage));
      }
    }
  }
}

// A bad value must not break `import torch`, so it is reported.
const bool g_environment_read = [] {
  const char* checks = std::getenv("TORCH_NPU_SANITIZE");
  if (!checks || !*checks || std::string_view(checks) == "0") return true;
  try {
    const char* way = std::getenv("TORCH_NPU_SANITIZE_REPORT");
    const std::string_view given = way && *way ? way : "raise";
    TORCH_CHECK(given == "raise" || given == "log", "expected TORCH_NPU_SANITIZE_REPORT to be raise or log, got \"",
                given, "\"");
    enable({parse_checks(checks), given == "raise"});
  } catch (const c10::Error& error) {
    std::cerr << "torch_npu: " << error.what_without_backtrace() << '\n';
  }
  return true;
}();

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
      TORCH_CHECK_VALUE(false, "expected some of memory, init and race, separated by commas, or all, got \"", text,
                        "\"");
    }
  }
  TORCH_CHECK_VALUE(checks, "expected some of memory, init and race, got none of them");
  return checks;
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
  add_watcher(&g_watcher);
}

void disable() {
  if (!watch_memory(kWatchSanitizer, false)) return;
  remove_watcher(&g_watcher);
  watch_ops(false);
  empty_quarantine();
  forget_forward_lines();
  State& all = state();
  std::lock_guard lock(all.mutex);
  all.options.checks = 0;
  all.order = {};
  all.shadows.clear();
  all.early.clear();
  all.pinned.clear();
  g_has_pinned = false;
}

bool has_pinned_copies() noexcept {
  return g_has_pinned.load(std::memory_order_relaxed);
}

void host_uses(const std::string& op, const void* data, uint64_t size, bool writes) {
  const auto* begin = static_cast<const char*>(data);
  std::optional<PinnedCopy> found;
  {
    State& all = state();
    std::lock_guard lock(all.mutex);
    std::erase_if(all.pinned, [&](const PinnedCopy& copy) { return all.order.host().has(copy.stamp); });
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
