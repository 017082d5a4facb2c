#include "csrc/core/graph.h"

#include <torch/csrc/Exceptions.h>

#include "csrc/core/capture.h"
#include "csrc/core/stream.h"
#include "csrc/python/bindings.h"

namespace py = pybind11;

namespace torch_npu {
namespace {

using PoolName = std::pair<uint64_t, uint64_t>;

c10::MempoolId_t pool_of(const std::optional<PoolName>& pool) {
  return pool ? c10::MempoolId_t{pool->first, pool->second} : c10::MempoolId_t{0, 0};
}

PoolName name_of(const c10::MempoolId_t& pool) {
  return {pool.first, pool.second};
}

bool is_current_stream_capturing() {
  const c10::DeviceIndex index = current_device();
  return any_capture() && is_opened(index) && capture_of(current_stream_handle(index)) != 0;
}

}  // namespace

void bind_graph(py::module_& m) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  m.def("graph_pool_handle", wrap_pybind_function([] { return name_of(graph_pool_handle()); }));
  m.def("is_current_stream_capturing", wrap_pybind_function(is_current_stream_capturing));
  py::class_<Graph>(m, "_NPUGraph")
      .def(py::init<>())
      .def("capture_begin",
           wrap_pybind_function([](Graph& self, std::optional<PoolName> pool) { self.capture_begin(pool_of(pool)); }),
           py::arg("pool") = py::none())
      .def("capture_end", wrap_pybind_function(&Graph::capture_end))
      .def("replay", wrap_pybind_function_no_gil(&Graph::replay))
      .def("reset", wrap_pybind_function_no_gil(&Graph::reset))
      .def("pool", wrap_pybind_function([](const Graph& self) { return name_of(self.pool()); }))
      .def("debug_dump",
           wrap_pybind_function([](const Graph& self, const std::string& path) { self.debug_dump(path); }))
      .def("__len__", &Graph::size);
}

}  // namespace torch_npu
