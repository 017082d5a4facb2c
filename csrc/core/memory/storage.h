// Storages that change their size.
#pragma once
#include <c10/core/Storage.h>

namespace torch_npu {

// Zero frees the memory; growing and shrinking copy what both sizes have. FSDP frees parameters this way.
void resize_storage(c10::StorageImpl& storage, size_t new_size);

}  // namespace torch_npu
