#include "support/driver/base.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "support/driver/address_text.h"

namespace npu::driver {
namespace {

// Plain bytes: still there when destructors of other libraries call in at the end of a thread.
thread_local char t_error[1024];

}  // namespace

void set_error(const std::string& text) {
  const size_t n = std::min(text.size(), sizeof t_error - 1);
  std::memcpy(t_error, text.data(), n);
  t_error[n] = 0;
}

const char* error_text() {
  return t_error;
}

npu_status error(npu_status status, const std::string& text) {
  set_error(text);
  return status;
}

npu_status null_pointer() {
  return error(NPU_ERROR_INVALID, "expected valid arguments, got a null pointer");
}

npu_status null_event() {
  return error(NPU_ERROR_INVALID, "expected an event and a stream, got a null pointer");
}

npu_status check_device(const std::vector<npu_device*>& devices, uint32_t index) {
  if (index >= devices.size())
    return error(NPU_ERROR_INVALID, "expected a device index below " + std::to_string(devices.size()) + ", got " +
                                        std::to_string(index) + "; raise devices= in the driver's options");
  if (devices[index])
    return error(NPU_ERROR_INVALID, "expected device " + std::to_string(index) + " to be closed, got it open already");
  return NPU_OK;
}

npu_status check_copy(const npu_stream* stream, const void* host, uint64_t size, uint32_t flags) {
  if (!stream || (!host && size > 0))
    return error(NPU_ERROR_INVALID, "expected a stream and memory, got a null pointer");
  if (flags & ~uint32_t{NPU_COPY_PINNED})
    return error(NPU_ERROR_INVALID, "expected no copy flags but NPU_COPY_PINNED, got " + hex(flags));
  return NPU_OK;
}

npu_status check_event(const npu_device* device, uint32_t flags, npu_event** out) {
  if (!device || !out) return error(NPU_ERROR_INVALID, "expected a device, got a null pointer");
  if (flags & ~uint32_t{NPU_EVENT_TIMING})
    return error(NPU_ERROR_INVALID, "expected no event flags but NPU_EVENT_TIMING, got " + std::to_string(flags));
  return NPU_OK;
}

void give_properties(const npu_properties& from, npu_properties* to) {
  const uint32_t size = to->struct_size;
  std::memcpy(to, &from, std::min<size_t>(size, sizeof from));
  to->struct_size = size;
}

PinnedMemory::~PinnedMemory() {
  for (void* block : blocks_) std::free(block);
}

npu_status PinnedMemory::alloc(uint64_t size, void** out) {
  if (size == 0) return error(NPU_ERROR_INVALID, "expected an allocation of at least 1 byte, got 0");
  void* memory = size > UINT64_MAX - 4096 ? nullptr : std::aligned_alloc(64, (size + 63) / 64 * 64);
  if (!memory)
    return error(NPU_ERROR_MEMORY, "expected host memory for " + std::to_string(size) + " pinned bytes, got none");
  std::lock_guard<std::mutex> lock(mutex_);
  blocks_.insert(memory);
  *out = memory;
  return NPU_OK;
}

npu_status PinnedMemory::free(void* memory) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (blocks_.erase(memory) == 0)
      return error(NPU_ERROR_INVALID, "expected memory from host_alloc of this device, got another pointer");
  }
  std::free(memory);
  return NPU_OK;
}

}  // namespace npu::driver
