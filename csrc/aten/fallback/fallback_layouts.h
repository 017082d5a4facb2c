// Tensors that are not simply strided memory, on their way to the CPU and back; and the way back for those that are.
#pragma once
#include <ATen/core/Tensor.h>

namespace torch_npu {

// Strided memory of a plain type: what npu holds itself.
bool is_plain_layout(const at::Tensor& tensor);

// The keys that choose a CPU kernel: backend and layout, nothing above. Plain CPU if there are none.
c10::DispatchKeySet backend_keys(c10::DispatchKeySet keys);

// A new npu tensor with the data, strides and conj and neg bits of a CPU tensor.
at::Tensor plain_to_npu(const at::Tensor& tensor, c10::Device device);

// Sparse layouts (COO, CSR, CSC, BSR, BSC), member by member.
at::Tensor layout_to_cpu(const at::Tensor& tensor);
at::Tensor layout_to_npu(const at::Tensor& tensor, c10::Device device);
// What an op wrote into the CPU image of `tensor`.
void layout_write_back(const at::Tensor& tensor, const at::Tensor& image);

}  // namespace torch_npu
