// Shared by the ops that give a tensor another size.
#pragma once
#include <ATen/core/Tensor.h>

namespace torch_npu {

// Gives the tensor this size (contiguous without `stride`) and its storage enough bytes. Contents beyond the old
// bytes are undefined. Never shrinks a storage.
void resize_tensor(c10::TensorImpl* self, at::IntArrayRef size, at::OptionalIntArrayRef stride);

}  // namespace torch_npu
