#include <ATen/core/CachingHostAllocator.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <map>

#include "csrc/core/memory/allocator.h"
#include "csrc/core/memory/caching/core.h"
#include "csrc/core/memory/memory_history.h"
#include "csrc/python/bindings.h"

namespace py = pybind11;

namespace torch_npu {
namespace {

// The state names of torch.cuda.memory_snapshot, which its viewers know.
const char* state_of(const caching::BlockInfo& block) {
  if (block.allocated) return "active_allocated";
  return block.active ? "active_pending_free" : "inactive";
}

// Tracebacks to be looked up all at once, and the dicts whose "frames" they are.
class Frames {
 public:
  void add(const py::dict& owner, const history::Traceback& traceback) {
    if (!traceback) {
      owner["frames"] = py::list();
      return;
    }
    owners_.push_back(owner);
    tracebacks_.push_back(traceback);
  }

  void look_up() {
    const auto found = history::symbolize(tracebacks_);
    std::map<std::tuple<std::string, uint64_t, std::string>, py::dict> known;  // most are the same
    for (size_t k = 0; k < found.size(); ++k) {
      py::list frames;
      for (const history::Frame& frame : found[k]) {
        const auto [place, is_new] = known.try_emplace({frame.file, frame.line, frame.function});
        if (is_new) {
          place->second["filename"] = frame.file;
          place->second["line"] = frame.line;
          place->second["name"] = frame.function;
        }
        frames.append(place->second);
      }
      owners_[k]["frames"] = frames;
    }
  }

 private:
  std::vector<py::dict> owners_;
  std::vector<history::Traceback> tracebacks_;
};

using Live = std::map<npu_addr, history::Traceback>;

py::dict segment_dict(const caching::SegmentInfo& segment, c10::DeviceIndex device, const Live& live, Frames& frames) {
  py::list blocks;
  for (const auto& block : segment.blocks) {
    py::dict b;
    b["address"] = block.addr;
    b["size"] = block.size;
    b["requested_size"] = block.requested;
    b["state"] = state_of(block);
    const auto known = live.find(block.addr);
    frames.add(b, block.allocated && known != live.end() ? known->second : nullptr);
    blocks.append(b);
  }
  py::dict s;
  s["device"] = static_cast<int>(device);
  s["address"] = segment.addr;
  s["total_size"] = segment.size;
  s["requested_size"] = segment.requested;
  s["allocated_size"] = segment.allocated;
  s["active_size"] = segment.active;
  s["stream"] = reinterpret_cast<uintptr_t>(segment.stream);
  s["segment_type"] = segment.large ? "large" : "small";
  s["segment_pool_id"] = segment.pool;
  s["is_expandable"] = segment.expandable;
  s["frames"] = py::list();
  s["blocks"] = blocks;
  return s;
}

py::list snapshot() {
  py::list out;
  Frames frames;
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    Live live;
    if (history::is_on()) {
      for (const auto& block : history::live_blocks(device)) live[block.addr] = block.traceback;
    }
    for (const auto& segment : memory_snapshot(device)) out.append(segment_dict(segment, device, live, frames));
  }
  frames.look_up();
  return out;
}

// One list of events per device, as torch.cuda.memory._snapshot has them.
py::list traces() {
  py::list out;
  Frames frames;
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    py::list trace;
    for (const history::Event& event : history::events(device)) {
      py::dict entry;
      entry["action"] = event.action;
      entry[std::string_view(event.action) == "oom" ? "device_free" : "addr"] = event.addr;
      entry["size"] = event.size;
      entry["stream"] = reinterpret_cast<uintptr_t>(event.stream);
      entry["time_us"] = event.time_us;
      entry["compile_context"] = "";
      entry["user_metadata"] = "";
      entry["pool_id"] = py::make_tuple(0, 0);
      frames.add(entry, event.traceback);
      trace.append(entry);
    }
    out.append(trace);
  }
  frames.look_up();
  return out;
}

void record_history(bool keeps_events, const std::string& context, bool with_cpp_frames, uint64_t max_events,
                    std::vector<std::string> skipped, bool forget) {
  history::Options options;
  options.keeps_events = keeps_events;
  options.context = context == "all"     ? history::Context::All
                    : context == "alloc" ? history::Context::Alloc
                    : context == "state" ? history::Context::State
                                         : history::Context::None;
  options.with_cpp_frames = with_cpp_frames;
  options.max_events = max_events;
  options.skipped = std::move(skipped);
  history::start(options, forget);
}

template <class S>
py::dict stat_dict(const S& stat) {
  py::dict out;
  out["current"] = stat.current;
  out["peak"] = stat.peak;
  out["allocated"] = stat.allocated;
  out["freed"] = stat.freed;
  return out;
}

py::dict host_stats() {
  const auto stats = at::getHostAllocator(at::DeviceType::PrivateUse1)->get_stats();
  py::dict out;
  out["allocations"] = stat_dict(stats.allocations);
  out["allocated_bytes"] = stat_dict(stats.allocated_bytes);
  out["active_requests"] = stat_dict(stats.active_requests);
  out["active_bytes"] = stat_dict(stats.active_bytes);
  out["num_host_alloc"] = stats.num_host_alloc;
  out["num_host_free"] = stats.num_host_free;
  return out;
}

}  // namespace

void bind_memory(py::module_& m) {
  using torch::wrap_pybind_function;
  // torch's own binding waits for the streams with the GIL held.
  m.def("empty_cache", torch::wrap_pybind_function_no_gil([] { empty_cache(); }));
  m.def("memory_snapshot", wrap_pybind_function([] { return snapshot(); }));
  using caching::PoolId;
  m.def("hold_pool", wrap_pybind_function([](c10::DeviceIndex device, PoolId id) { cache_of(device).hold_pool(id); }));
  m.def("drop_pool", torch::wrap_pybind_function_no_gil([](c10::DeviceIndex device, PoolId id) {
          cache_of(device).release_pool(id);
          cache_of(device).empty_pool(id);
        }));
  m.def("pool_holders",
        wrap_pybind_function([](c10::DeviceIndex device, PoolId id) { return cache_of(device).holders(id); }));
  m.def("begin_thread_pool", wrap_pybind_function([](c10::DeviceIndex device, PoolId id) {
          return cache_of(device).begin_thread_pool(id);
        }));
  m.def("end_thread_pool",
        wrap_pybind_function([](c10::DeviceIndex device, uint64_t use) { cache_of(device).end_thread_pool(use); }));
  m.def("memory_traces", wrap_pybind_function([] { return traces(); }));
  m.def("record_memory_history", wrap_pybind_function(&record_history));
  m.def("stop_memory_history", wrap_pybind_function([] { history::stop(); }));
  m.def("set_memory_fraction",
        wrap_pybind_function([](double fraction, c10::DeviceIndex device) { set_memory_fraction(fraction, device); }));
  m.def("memory_fraction", wrap_pybind_function([](c10::DeviceIndex device) { return memory_fraction(device); }));
  m.def("memory_info", wrap_pybind_function([](c10::DeviceIndex device) {
          const auto [free, total] = memory_info(device);
          return py::make_tuple(free, total);
        }));
  m.def("host_memory_stats", wrap_pybind_function([] { return host_stats(); }));
}

}  // namespace torch_npu
