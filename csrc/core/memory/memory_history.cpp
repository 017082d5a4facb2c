#include "csrc/core/memory/memory_history.h"

#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include "csrc/core/device/device.h"
#include "csrc/core/device/driver_watch.h"
#include "csrc/core/device/stream.h"
#include "csrc/core/memory/oom.h"

namespace torch_npu {
std::atomic<uint32_t> g_memory_watch{0};
}

namespace torch_npu::history {
namespace {

struct Recorded {
  std::deque<Event> events;
  std::map<npu_addr, LiveBlock> live;
  std::map<npu_addr, uint64_t> segments;  // sizes, because freeing tells an address only
};

struct History {
  std::mutex mutex;  // innermost: nothing else is taken under it
  Options options;
  std::map<c10::DeviceIndex, Recorded> of_device;
};

History& all() {
  static auto* history = new History;  // tensors may outlive every static
  return *history;
}

thread_local int tls_scopes = 0;
thread_local Traceback tls_traceback;

int64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

// The mutex is held. Returns what fell out, to be destroyed without it.
void add(c10::DeviceIndex device, Event event) {
  History& history = all();
  const Options& options = history.options;
  if (!options.keeps_events) return;
  if (std::find(options.skipped.begin(), options.skipped.end(), event.action) != options.skipped.end()) return;
  auto& events = history.of_device[device].events;
  events.push_back(std::move(event));
  while (events.size() > options.max_events) events.pop_front();
}

c10::DeviceIndex device_of(const npu_device* handle) {
  for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
    if (is_opened(index) && opened_device(index).handle == handle) return index;
  }
  return -1;
}

// The cache asks the driver for segments; that is where they are seen.
struct SegmentWatcher final : DriverWatcher {
  uint64_t started(const DriverCall&) override { return 0; }

  void finished(const DriverCall& call, npu_status status, uint64_t) override {
    if (!call.device || status != NPU_OK || !is_on()) return;
    const std::string_view function(call.function);
    const bool allocates = function == "memory_alloc", maps = function == "range_map",
               unmaps = function == "range_unmap";
    if (!allocates && !maps && !unmaps && function != "memory_free") return;
    const c10::DeviceIndex device = device_of(call.device);
    if (device < 0) return;
    std::lock_guard lock(all().mutex);
    auto& segments = all().of_device[device].segments;
    npu_addr addr = call.addr;
    uint64_t size = call.size;
    if (allocates) {
      addr = *call.result;
      segments[addr] = size;
    } else if (!maps && !unmaps) {
      size = segments[addr];
      segments.erase(addr);
    }
    add(device, {allocates ? "segment_alloc"
                 : maps    ? "segment_map"
                 : unmaps  ? "segment_unmap"
                           : "segment_free",
                 addr, size, current_stream_handle(device), now_us(), tls_traceback});
  }
};

SegmentWatcher g_watcher;

bool is_python(const Frame& frame) {
  return frame.file.ends_with(".py") || frame.file.starts_with("<");
}

// A file of Inductor's cache: "6h/c6hck4...py", a hash in base 32 behind a c, in a folder named by its beginning.
bool is_generated(const std::string& file) {
  const size_t slash = file.rfind('/');
  if (slash == std::string::npos || slash < 3 || file[slash - 3] != '/') return false;
  const std::string name = file.substr(slash + 1);
  return name.size() > 40 && name[0] == 'c' && name.compare(1, 2, file, slash - 2, 2) == 0;
}

bool is_of_torch(const Frame& frame) {
  return frame.file.find("/torch/") != std::string::npos || frame.file.find("/torch_npu/") != std::string::npos ||
         is_generated(frame.file);
}

}  // namespace

std::string place_of(const std::vector<Frame>& frames) {
  const Frame* found = nullptr;
  for (const Frame& frame : frames) {
    if (!is_python(frame)) continue;
    if (!found) found = &frame;
    if (is_of_torch(frame)) continue;
    found = &frame;
    break;
  }
  if (!found) return kNoPython;
  return found->file + ":" + std::to_string(found->line) + " (" + found->function + ")";
}

void start(const Options& options, bool forget) {
  History& history = all();
  std::map<c10::DeviceIndex, Recorded> old;
  {
    std::lock_guard lock(history.mutex);
    if (forget) history.of_device.swap(old);
    history.options = options;
  }
  if (!watch_memory(kWatchHistory, true)) add_watcher(&g_watcher);
}

void stop() {
  if (watch_memory(kWatchHistory, false)) remove_watcher(&g_watcher);
  std::map<c10::DeviceIndex, Recorded> old;  // destroyed without the mutex
  std::lock_guard lock(all().mutex);
  all().of_device.swap(old);
}

Scope::Scope() {
  if (tls_scopes++ > 0 || !is_on()) return;
  bool cpp = false;
  {
    std::lock_guard lock(all().mutex);
    if (all().options.context == Context::None) return;
    cpp = all().options.with_cpp_frames;
  }
  tls_traceback = torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, cpp);
}

Scope::~Scope() {
  if (--tls_scopes == 0) tls_traceback.reset();
}

void allocated(c10::DeviceIndex device, npu_addr addr, uint64_t size, npu_stream* stream) {
  std::lock_guard lock(all().mutex);
  all().of_device[device].live[addr] = {addr, size, tls_traceback};
  const bool traced = all().options.context >= Context::Alloc;
  add(device, {"alloc", addr, size, stream, now_us(), traced ? tls_traceback : nullptr});
}

void freed(c10::DeviceIndex device, npu_addr addr, uint64_t size, npu_stream* stream, bool is_pending) {
  LiveBlock gone;  // destroyed without the mutex
  std::lock_guard lock(all().mutex);
  auto& live = all().of_device[device].live;
  if (const auto found = live.find(addr); found != live.end()) {
    gone = std::move(found->second);
    live.erase(found);
  }
  const Traceback traced = all().options.context == Context::All ? tls_traceback : nullptr;
  add(device, {"free_requested", addr, size, stream, now_us(), traced});
  if (!is_pending) add(device, {"free_completed", addr, size, stream, now_us(), traced});
}

void free_completed(int device, npu_addr addr, uint64_t size, npu_stream* stream) {
  if (!is_on()) return;
  std::lock_guard lock(all().mutex);
  add(static_cast<c10::DeviceIndex>(device), {"free_completed", addr, size, stream, now_us(), nullptr});
}

void out_of_memory(c10::DeviceIndex device, uint64_t requested, uint64_t device_free, npu_stream* stream) {
  std::lock_guard lock(all().mutex);
  add(device, {"oom", device_free, requested, stream, now_us(), tls_traceback});
}

std::vector<Event> events(c10::DeviceIndex device) {
  std::lock_guard lock(all().mutex);
  const auto& events = all().of_device[device].events;
  return {events.begin(), events.end()};
}

std::vector<LiveBlock> live_blocks(c10::DeviceIndex device) {
  std::vector<LiveBlock> blocks;
  {
    std::lock_guard lock(all().mutex);
    for (const auto& [addr, block] : all().of_device[device].live) blocks.push_back(block);
  }
  std::stable_sort(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) { return a.size > b.size; });
  return blocks;
}

std::vector<std::vector<Frame>> symbolize(const std::vector<Traceback>& tracebacks) {
  std::vector<torch::CapturedTraceback*> captured;
  for (const Traceback& traceback : tracebacks) {
    if (traceback) captured.push_back(static_cast<torch::CapturedTraceback*>(traceback.get()));
  }
  const torch::SymbolizedTracebacks found = torch::symbolize(captured);
  std::vector<std::vector<Frame>> out(tracebacks.size());
  size_t next = 0;
  for (size_t k = 0; k < tracebacks.size(); ++k) {
    if (!tracebacks[k]) continue;
    for (const uint64_t index : found.tracebacks[next]) {
      const torch::unwind::Frame& frame = found.all_frames[index];
      out[k].push_back({frame.filename, frame.funcname, frame.lineno});
    }
    ++next;
  }
  return out;
}

std::vector<std::string> largest_live(c10::DeviceIndex device, size_t count) {
  std::vector<LiveBlock> blocks = live_blocks(device);
  blocks.resize(std::min(blocks.size(), count));
  std::vector<Traceback> tracebacks;
  for (const LiveBlock& block : blocks) tracebacks.push_back(block.traceback);
  const auto frames = symbolize(tracebacks);
  std::vector<std::string> lines;
  for (size_t k = 0; k < blocks.size(); ++k) {
    lines.push_back(human_bytes(blocks[k].size) + (blocks[k].traceback ? " by " + place_of(frames[k]) : ""));
  }
  return lines;
}

}  // namespace torch_npu::history
