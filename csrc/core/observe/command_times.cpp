#include "csrc/core/observe/command_times.h"

#include <c10/util/ApproximateClock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <mutex>

#include "csrc/core/device/device.h"
#include "csrc/core/device/internal.h"
#include "csrc/core/device/thread_state.h"
#include "support/cost/command_cost.h"
#include "support/program/program.h"

namespace torch_npu {
namespace {

std::atomic<uint64_t> g_recordings{0};

// What a thread is doing. What it began in an earlier recording and never ended there is forgotten.
struct Running {
  uint64_t recording = 0;
  std::vector<uint64_t> ops, ranges;
};

Running& running() {
  static thread_local Running running;
  const uint64_t now = g_recordings.load(std::memory_order_relaxed);
  if (running.recording != now) running = {now, {}, {}};
  return running;
}

void pop(std::vector<uint64_t>& stack) {
  if (!stack.empty()) stack.pop_back();  // what began before the recording may end in it
}

// An event whose time the host knows as well, as exactly as the shortest of a few tries.
struct Anchor {
  npu_event* event = nullptr;
  int64_t ticks = 0;  // of c10's approximate clock
};

int64_t ticks_now() {
  return static_cast<int64_t>(c10::getApproximateTime());
}

// Asked for, not synchronized with: the report of an asynchronous failure belongs to the program.
void wait_for(const npu_driver* api, npu_event* event, int pause_us) {
  while (api->event_query(event) == NPU_NOT_READY) {
    if (pause_us) usleep(pause_us);
  }
}

struct Clock {
  const npu_driver* api = nullptr;
  npu_device* device = nullptr;
  npu_stream* stream = nullptr;  // the default one
  Anchor first, last;
  std::vector<npu_event*> spare;

  npu_event* new_event() {
    if (!spare.empty()) {
      npu_event* event = spare.back();
      spare.pop_back();
      return event;
    }
    npu_event* event = nullptr;
    return api->event_create(device, NPU_EVENT_TIMING, &event) == NPU_OK ? event : nullptr;
  }

  void set(Anchor& anchor) {
    int64_t best = std::numeric_limits<int64_t>::max();
    for (int turn = 0; turn < 5; ++turn) {
      npu_event* event = new_event();
      if (!event) return;
      const int64_t before = ticks_now();
      const bool is_recorded = api->event_record(event, stream) == NPU_OK;
      if (is_recorded) wait_for(api, event, 0);
      const int64_t after = ticks_now();
      if (is_recorded && after - before < best) {
        best = after - before;
        std::swap(event, anchor.event);
        anchor.ticks = before + (after - before) / 2;
      }
      if (event) spare.push_back(event);
    }
  }
};

struct Entry {
  TimedCommand command;
  Clock* clock = nullptr;
  int64_t call_start = 0, call_end = 0;  // ticks
  npu_event *start = nullptr, *end = nullptr;
  double start_ms = -1, end_ms = -1;  // since the first anchor
};

struct Recorder final : DriverWatcher {
  // Numbers are the position in `entries`, plus one; 0: not of interest.
  uint64_t started(const DriverCall& call) override {
    const bool is_command = call.command && std::strcmp(call.function, "submit") == 0;
    if (!is_command && std::strncmp(call.function, "copy_", 5) != 0) return 0;
    std::lock_guard lock(mutex);
    if (!is_on) return 0;
    const auto stream = find_stream(call.stream);
    if (!stream) return 0;  // of a device that is being opened
    Entry entry;
    entry.clock = clock_of(stream->device_index());
    entry.command = describe(call, *stream);
    entry.start = entry.clock->new_event();
    if (entry.start) call.api->event_record(entry.start, call.stream);
    entry.call_start = ticks_now();
    entries.push_back(std::move(entry));
    return first_number + entries.size();
  }

  void finished(const DriverCall& call, npu_status status, uint64_t number) override {
    if (number == 0) return;
    const int64_t now = ticks_now();
    std::lock_guard lock(mutex);
    if (!is_on || number <= first_number || number - first_number > entries.size()) return;
    Entry& entry = entries[number - first_number - 1];
    entry.call_end = now;
    if (status != NPU_OK) {
      if (entry.start) entry.clock->spare.push_back(entry.start);
      entry.start = nullptr;
      return;
    }
    entry.end = entry.clock->new_event();
    if (entry.end) call.api->event_record(entry.end, call.stream);
    if (entries.size() - resolved > kUnresolved) resolve_reached();
  }

  TimedCommand describe(const DriverCall& call, const c10::Stream& stream) const {
    TimedCommand out;
    out.function = call.function;
    out.device = stream.device_index();
    out.stream = stream.id();
    out.thread = static_cast<int32_t>(syscall(SYS_gettid));
    const auto& [recording, ops, ranges] = running();
    out.op = !ops.empty() ? ops.back() : ranges.empty() ? 0 : ranges.back();
    if (const npu_command* command = call.command) {
      const char* kind = npu::command_name(command->kind);
      out.name = command->label ? std::string(command->label) + " " + kind : kind;
      for (int d = 0; d < command->rank; ++d) out.shape += (d ? "x" : "") + std::to_string(command->size[d]);
      out.bytes = npu::bytes_of(*command);
      out.flops = 2 * npu::multiply_adds_of(*command);
    } else {
      out.is_copy = true;
      out.bytes = static_cast<int64_t>(call.size);
      const std::string_view function(call.function);
      out.name = function == "copy_to_device" ? "Memcpy HtoD"
                 : function == "copy_to_host" ? "Memcpy DtoH"
                                              : "Memcpy DtoD";
    }
    return out;
  }

  Clock* clock_of(c10::DeviceIndex index) {
    Clock& clock = clocks[index];
    if (!clock.api) {
      const Device& device = opened_device(index);
      clock.api = own_table(device.api);
      clock.device = device.handle;
      clock.stream = g_default_streams[index];
      clock.set(clock.first);
    }
    return &clock;
  }

  static bool resolve(Entry& entry) {
    Clock& clock = *entry.clock;
    if (entry.start && entry.end && clock.first.event) {
      if (clock.api->event_query(entry.end) != NPU_OK) return false;
      clock.api->event_elapsed(clock.first.event, entry.start, &entry.start_ms);
      clock.api->event_elapsed(clock.first.event, entry.end, &entry.end_ms);
    }
    for (npu_event* event : {entry.start, entry.end}) {
      if (event) clock.spare.push_back(event);
    }
    entry.start = entry.end = nullptr;
    return true;
  }

  // Gives their events back, so that a long recording needs few. What is under way on another thread has no end yet.
  void resolve_reached() {
    while (resolved < entries.size() && entries[resolved].end && resolve(entries[resolved])) ++resolved;
  }

  static constexpr size_t kUnresolved = 512;
  std::mutex mutex;
  bool is_on = false;
  uint64_t first_number = 0;  // numbers of earlier recordings are no longer ours
  size_t resolved = 0;
  std::deque<Entry> entries;
  std::map<c10::DeviceIndex, Clock> clocks;
  std::unique_ptr<c10::ApproximateClockToUnixTimeConverter> converter;
};

Recorder& recorder() {
  static auto* recorder = new Recorder;
  return *recorder;
}

// From the device's time to the host's. A device whose clock runs at the host's pace (all but simulations) is placed by
// the two anchors; the work of a simulation, which takes simulated time, is placed where it was asked for.
void place(std::deque<Entry>& entries, const std::function<c10::time_t(c10::approx_time_t)>& to_host) {
  const auto host = [&](int64_t ticks) { return to_host(static_cast<c10::approx_time_t>(ticks)); };
  std::map<std::pair<c10::DeviceIndex, c10::StreamId>, int64_t> free_at;
  for (Entry& entry : entries) {
    TimedCommand& command = entry.command;
    command.host_start_ns = host(entry.call_start);
    command.host_end_ns = host(entry.call_end);
    const Clock& clock = *entry.clock;
    const int64_t base = host(clock.first.ticks);
    const auto span = static_cast<double>(host(clock.last.ticks) - base);
    double device_ms = 0;
    if (clock.last.event) clock.api->event_elapsed(clock.first.event, clock.last.event, &device_ms);
    const double pace = device_ms > 0 ? span / (device_ms * 1e6) : 1;
    const bool is_real = std::abs(pace - 1) < 0.02 || span < 2e6;
    const double length = std::max(0.0, entry.end_ms - entry.start_ms) * 1e6;
    int64_t& free = free_at[{command.device, command.stream}];
    if (is_real) {
      command.start_ns = base + static_cast<int64_t>(entry.start_ms * 1e6 * (std::abs(pace - 1) < 0.02 ? pace : 1));
    } else {
      command.start_ns = command.host_start_ns;
    }
    command.start_ns = std::max({command.start_ns, command.host_start_ns, free});
    command.end_ns = command.start_ns + static_cast<int64_t>(length);
    free = command.end_ns;
    const uint32_t clock_mhz = opened_device(command.device).properties.clock_mhz;
    command.cycles = std::round(length * clock_mhz / 1e3);
  }
}

}  // namespace

void push_op(uint64_t op) {
  running().ops.push_back(op);
}
void pop_op() {
  pop(running().ops);
}
void push_range(uint64_t range) {
  running().ranges.push_back(range);
}
void pop_range() {
  pop(running().ranges);
}

void start_recording() {
  Recorder& to = recorder();
  {
    std::lock_guard lock(to.mutex);
    ++g_recordings;
    to.is_on = true;
    to.converter = std::make_unique<c10::ApproximateClockToUnixTimeConverter>();
    for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
      if (is_opened(index)) to.clock_of(index);
    }
  }
  add_watcher(&to);
}

std::vector<TimedCommand> stop_recording() {
  Recorder& from = recorder();
  remove_watcher(&from);
  std::lock_guard lock(from.mutex);
  from.is_on = false;
  for (auto& [index, clock] : from.clocks) {
    for (const Entry& entry : from.entries) {
      if (entry.clock == &clock && entry.end) wait_for(clock.api, entry.end, 50);
    }
    clock.set(clock.last);
  }
  for (Entry& entry : from.entries) Recorder::resolve(entry);
  place(from.entries, from.converter->makeConverter());
  std::vector<TimedCommand> out;
  for (Entry& entry : from.entries) {
    if (entry.end_ms >= 0) out.push_back(std::move(entry.command));
  }
  for (auto& [index, clock] : from.clocks) {
    clock.spare.push_back(clock.first.event);
    clock.spare.push_back(clock.last.event);
    for (npu_event* event : clock.spare) {
      if (event) clock.api->event_destroy(event);
    }
  }
  from.first_number += from.entries.size();
  from.entries.clear();
  from.clocks.clear();
  from.resolved = 0;
  return out;
}

}  // namespace torch_npu
