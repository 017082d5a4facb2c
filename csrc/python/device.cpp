#include "csrc/core/device/device.h"

#include <ATen/Context.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/device_lazy_init.h>

#include "csrc/core/device/add_drivers.h"
#include "csrc/python/bindings.h"

namespace py = pybind11;

namespace torch_npu {
namespace {

constexpr auto kNpu = c10::DeviceType::PrivateUse1;

py::dict properties_of(c10::DeviceIndex index) {
  const Device& d = device(index);
  const npu_properties& p = d.properties;
  py::dict out;
  out["name"] = std::string(p.name);
  out["vendor"] = std::string(p.vendor);
  out["total_memory"] = p.total_memory;
  out["alignment"] = p.alignment;
  out["multi_processor_count"] = p.units;
  out["clock_mhz"] = p.clock_mhz;
  out["major"] = p.major;
  out["minor"] = p.minor;
  out["peak_flops"] = p.peak_flops;
  out["peak_bandwidth"] = p.peak_bandwidth;
  out["least_priority"] = p.least_priority;
  out["greatest_priority"] = p.greatest_priority;
  out["commands"] = p.commands;
  out["driver"] = d.driver;
  out["driver_version"] = std::string(d.api->version ? d.api->version : "");
  out["driver_index"] = d.driver_index;
  return out;
}

py::list drivers() {
  py::list out;
  for (const DriverInfo& info : loaded_drivers()) {
    py::list devices;
    for (const auto index : info.devices) devices.append("npu:" + std::to_string(index));
    py::dict driver;
    driver["name"] = info.name;
    driver["options"] = info.options;
    driver["path"] = info.path;
    driver["driver_name"] = info.driver_name;
    driver["version"] = info.version;
    driver["abi"] = std::to_string(info.abi_major) + "." + std::to_string(info.abi_minor);
    driver["devices"] = devices;
    out.append(driver);
  }
  return out;
}

}  // namespace

void bind_device(py::module_& m) {
  using torch::wrap_pybind_function;
  using torch::wrap_pybind_function_no_gil;
  m.def("device_count", [] { return static_cast<int>(device_count()); });
  m.def("driver_error", [] { return driver_error(); });
  m.def("require_devices", wrap_pybind_function([] { require_devices(); }));
  m.def("add_drivers", wrap_pybind_function([](const std::string& list) {
          std::vector<int> added;
          for (const c10::DeviceIndex index : add_drivers(list)) added.push_back(index);
          return added;
        }));
  m.def("drivers", wrap_pybind_function([] { return drivers(); }));
  m.def("current_device", [] { return static_cast<int>(current_device()); });
  m.def("set_device", wrap_pybind_function([](c10::DeviceIndex index) { set_current_device(index); }));
  m.def("exchange_device",
        wrap_pybind_function([](c10::DeviceIndex index) { return static_cast<int>(exchange_current_device(index)); }));
  m.def("is_opened", [](c10::DeviceIndex index) { return is_opened(index); });
  m.def("properties", wrap_pybind_function([](c10::DeviceIndex index) { return properties_of(index); }));
  m.def("synchronize", wrap_pybind_function_no_gil([](c10::DeviceIndex index) { synchronize_device(index); }));
  m.def("reset_device", wrap_pybind_function_no_gil([](c10::DeviceIndex index) { reset_device(index); }));

  // Lazy initialisation: torch calls torch.npu._lazy_init before the first use; a process that forks after that must
  // not use the device in the child, because worker threads do not survive a fork.
  m.def("register_fork_handler", [] { torch::utils::register_fork_handler_for_device_init(kNpu); });
  m.def("is_in_bad_fork", [] { return is_in_bad_fork() || torch::utils::is_device_in_bad_fork(kNpu); });
  m.def("default_generator", wrap_pybind_function([](c10::DeviceIndex index) {
          return at::globalContext().defaultGenerator(c10::Device(kNpu, index));
        }));
}

}  // namespace torch_npu
