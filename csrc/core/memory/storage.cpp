#include "csrc/core/memory/storage.h"

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

}  // namespace torch_npu
