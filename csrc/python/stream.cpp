#include "csrc/core/device/stream.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/Exceptions.h>

#include "csrc/python/bindings.h"

namespace py = pybind11;

namespace torch_npu {
namespace {

// What torch.Stream's constructor takes to refer to an existing stream.
py::tuple facts(c10::Stream stream) {
  return py::make_tuple(static_cast<int64_t>(stream.id()), static_cast<int64_t>(stream.device_index()),
                        static_cast<int64_t>(stream.device_type()));
}

c10::Stream stream_of(int64_t id, int64_t index) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(c10::DeviceType::PrivateUse1, static_cast<int8_t>(index)), id);
}

}  // namespace

void bind_stream(py::module_& m) {
  using torch::wrap_pybind_function;
  // torch.Event.elapsed_time refuses objects of a subclass; their ids are what the guard takes.
  m.def("elapsed_time", wrap_pybind_function([](uintptr_t start, uintptr_t end, c10::DeviceIndex index) {
          return c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)
              ->elapsedTime(reinterpret_cast<void*>(start), reinterpret_cast<void*>(end), index);
        }));
  m.def("current_stream", wrap_pybind_function([](c10::DeviceIndex index) { return facts(current_stream(index)); }));
  m.def("default_stream", wrap_pybind_function([](c10::DeviceIndex index) { return facts(default_stream(index)); }));
  m.def("set_stream",
        wrap_pybind_function([](int64_t id, int64_t index) { set_current_stream(stream_of(id, index)); }));
  m.def("stream_priority",
        wrap_pybind_function([](int64_t id, int64_t index) { return stream_priority(stream_of(id, index)); }));
  m.def("stream_handle", wrap_pybind_function([](int64_t id, int64_t index) {
          return reinterpret_cast<uintptr_t>(stream_handle(stream_of(id, index)));
        }));
}

}  // namespace torch_npu
