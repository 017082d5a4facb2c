// Uninitialised tensors for kernels of this backend.
#pragma once
#include <ATen/core/Tensor.h>

namespace torch_npu {

// On options.device(), with these strides, or dense in options' memory format if strides are empty.
at::Tensor make_empty(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options);

}  // namespace torch_npu
