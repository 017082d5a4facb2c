// Storages, and tensors, that change their size.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

namespace torch_npu {

// Zero frees the memory; growing and shrinking copy what both sizes have. FSDP frees parameters this way.
void resize_storage(c10::StorageImpl& storage, size_t new_size);

// Gives the tensor this size (contiguous without `stride`) and its storage enough bytes. Contents beyond the old
// bytes are undefined. Never shrinks a storage.
void resize_tensor(c10::TensorImpl* self, at::IntArrayRef size, at::OptionalIntArrayRef stride);

}  // namespace torch_npu
