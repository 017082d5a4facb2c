#include <ATen/core/CachingHostAllocator.h>
#include <torch/csrc/Exceptions.h>

#include "csrc/core/allocator.h"
#include "csrc/python/bindings.h"

namespace py = pybind11;

namespace torch_npu {
namespace {

// The state names of torch.cuda.memory_snapshot, which its viewers know.
const char* state_of(const caching::BlockInfo& block) {
  if (block.allocated) return "active_allocated";
  return block.active ? "active_pending_free" : "inactive";
}

py::dict segment_dict(const caching::SegmentInfo& segment, c10::DeviceIndex device) {
  py::list blocks;
  for (const auto& block : segment.blocks) {
    py::dict b;
    b["address"] = block.addr;
    b["size"] = block.size;
    b["requested_size"] = block.requested;
    b["state"] = state_of(block);
    b["frames"] = py::list();
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
  s["segment_pool_id"] = py::make_tuple(0, 0);
  s["is_expandable"] = segment.expandable;
  s["frames"] = py::list();
  s["blocks"] = blocks;
  return s;
}

py::list snapshot() {
  py::list out;
  for (c10::DeviceIndex device = 0; device < device_count(); ++device) {
    for (const auto& segment : memory_snapshot(device)) out.append(segment_dict(segment, device));
  }
  return out;
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
