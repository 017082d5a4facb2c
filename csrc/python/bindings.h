// torch_npu._C: one function per topic, each in its own file.
#pragma once
#include <torch/csrc/utils/pybind.h>

namespace torch_npu {

void bind_device(pybind11::module_& m);
void bind_stream(pybind11::module_& m);
void bind_reports(pybind11::module_& m);
void bind_memory(pybind11::module_& m);
void bind_compiled(pybind11::module_& m);
void bind_graph(pybind11::module_& m);

}  // namespace torch_npu
