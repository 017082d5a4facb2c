#include "csrc/python/bindings.h"

PYBIND11_MODULE(_C, m) {
  m.doc() = "torch_npu's C++ side. Private: use torch.npu and torch_npu.";
  torch_npu::bind_device(m);
  torch_npu::bind_stream(m);
  torch_npu::bind_reports(m);
  torch_npu::bind_memory(m);
  torch_npu::bind_compiled(m);
  torch_npu::bind_graph(m);
}
