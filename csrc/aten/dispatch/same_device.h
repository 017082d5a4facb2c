// PyTorch's generated wrappers refuse tensors of different devices; ops registered by hand check it themselves.
// TensorIterator does so too, so this is for the ops without one.
#pragma once
#include <ATen/core/Tensor.h>

#include <initializer_list>

namespace torch_npu {

// Null pointers and undefined tensors are skipped.
inline void check_same_device(const char* op, std::initializer_list<const at::Tensor*> tensors) {
  const at::Tensor* first = nullptr;
  for (const at::Tensor* tensor : tensors) {
    if (!tensor || !tensor->defined()) continue;
    if (!first) first = tensor;
    TORCH_CHECK(tensor->device() == first->device(),
                "Expected all tensors to be on the same device, but found at least two devices, ", first->device(),
                " and ", tensor->device(), "! (", op, ")");
  }
}

}  // namespace torch_npu
