#include "csrc/core/graph/graph.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/Exceptions.h>

#include "csrc/core/device/capture.h"
#include "csrc/core/device/stream.h"
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

// The same memory behind a storage of its own, so that its life can be watched apart from the tensor's.
at::Tensor alias(const at::Tensor& tensor) {
  const c10::Storage& of = tensor.storage();
  c10::DataPtr data(
      of.mutable_data(), new c10::Storage(of), [](void* kept) { delete static_cast<c10::Storage*>(kept); },
      tensor.device());
  c10::Storage storage(c10::Storage::use_byte_size_t(), of.nbytes(), std::move(data), nullptr, /*resizable=*/false);
  auto out = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), tensor.key_set(), tensor.dtype());
  out.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return out;
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
  m.def("alias", wrap_pybind_function(alias));
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
