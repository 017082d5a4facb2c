#include "csrc/core/memory/storage.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <algorithm>

#include "csrc/core/device/device.h"
#include "csrc/core/device/stream.h"
#include "csrc/core/launch/launch.h"
#include "csrc/core/memory/allocator.h"

namespace torch_npu {

void resize_storage(c10::StorageImpl& storage, size_t new_size) {
  TORCH_CHECK(storage.resizable(), "Trying to resize storage that is not resizable");
  const c10::Device place = storage.device();
  const c10::DeviceIndex index = place.has_index() ? place.index() : current_device();
  if (new_size == 0) {
    storage.set_data_ptr_noswap(c10::DataPtr(nullptr, c10::Device(place.type(), index)));
    storage.set_nbytes(0);
    return;
  }
  const c10::DeviceGuard guard(c10::Device(place.type(), index));
  c10::DataPtr fresh = device_allocator()->allocate(new_size);
  const size_t kept = std::min(storage.nbytes(), new_size);
  if (kept > 0 && storage.data_ptr()) {
    const Device& target = opened_device(index);
    // The old memory is freed below, while the copy may still be waiting in this stream.
    record_stream(storage.data_ptr(), current_stream(index));
    copy_on_stream(target, current_stream_handle(index), reinterpret_cast<npu_addr>(fresh.get()),
                   reinterpret_cast<npu_addr>(storage.data()), kept, "copying a storage to its new memory");
  }
  storage.set_data_ptr_noswap(std::move(fresh));
  storage.set_nbytes(new_size);
}

void resize_tensor(c10::TensorImpl* self, at::IntArrayRef size, at::OptionalIntArrayRef stride) {
  if (self->sizes() == size && (!stride || self->strides() == *stride)) {
    return;
  }
  const size_t itemsize = self->dtype().itemsize();
  size_t bytes = 0;
  if (stride) {
    self->set_sizes_and_strides(size, *stride);
    bytes = at::detail::computeStorageNbytes(size, *stride, itemsize, self->storage_offset());
  } else {
    self->set_sizes_contiguous(size);
    bytes = at::detail::computeStorageNbytesContiguous(size, itemsize, self->storage_offset());
  }
  // An empty tensor fits in any storage; resizing for it could only shrink one that others look at.
  if (self->numel() != 0 && bytes > self->unsafe_storage().nbytes()) {
    resize_storage(*self->unsafe_storage().unsafeGetStorageImpl(), bytes);
  }
}

}  // namespace torch_npu
