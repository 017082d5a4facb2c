// Memory and copies of a wrapping driver: every side gets them, and the mirror.
#include <algorithm>
#include <cstring>
#include <new>

#include "support/verify/wrapper_calls.h"

namespace npu::wrapping {

npu_status memory_info(npu_device* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  Guard guard(device->lock);
  *free_bytes = *total_bytes = UINT64_MAX;
  for (size_t side = 0; side < device->inner.size(); ++side) {
    uint64_t free_one = 0, total_one = 0;
    const npu_status status = api(*device, side).memory_info(device->inner[side], &free_one, &total_one);
    if (status != NPU_OK) return give(failed(*device, side, status));
    *free_bytes = std::min(*free_bytes, free_one);
    *total_bytes = std::min(*total_bytes, total_one);
  }
  return NPU_OK;
}

Outcome prepare(npu_device& device, npu_addr addr, uint64_t size) {
  static const std::vector<std::byte> zeros(1 << 18);
  for (const Extent& part : device.mirror.fresh(addr, size)) {
    for (size_t side = 0; side < device.inner.size(); ++side) {
      const npu_driver& driver = api(device, side);
      const npu_addr begin = device.mirror.on(side, part.addr);
      npu_status status = NPU_OK;
      for (uint64_t at = 0; at < part.size && status == NPU_OK; at += zeros.size())
        status = driver.copy_to_device(device.own->inner[side], begin + at, zeros.data(),
                                       std::min<uint64_t>(zeros.size(), part.size - at), 0);
      if (status == NPU_OK) status = driver.stream_synchronize(device.own->inner[side]);
      if (status != NPU_OK) return failed(device, side, status);
    }
  }
  return {};
}

npu_status memory_alloc(npu_device* device, uint64_t size, npu_addr* out) {
  Guard guard(device->lock);
  std::vector<npu_addr> addr;
  Outcome outcome;
  for (size_t side = 0; side < device->inner.size() && outcome.status == NPU_OK; ++side) {
    npu_addr one = 0;
    const npu_status status = api(*device, side).memory_alloc(device->inner[side], size, &one);
    if (status != NPU_OK)
      outcome = failed(*device, side, status);
    else
      addr.push_back(one);
  }
  if (outcome.status == NPU_OK) {
    try {
      device->mirror.add(addr, size);
    } catch (const std::bad_alloc&) {
      outcome = {NPU_ERROR_MEMORY, "memory_alloc: expected " + std::to_string(size) +
                                       " bytes of host memory for the copy that is compared, got none"};
    }
  }
  if (outcome.status != NPU_OK) {
    for (size_t side = 0; side < addr.size(); ++side) api(*device, side).memory_free(device->inner[side], addr[side]);
    return give(outcome);
  }
  watcher(*device).allocated(*device, addr[0], size);
  *out = addr[0];
  return NPU_OK;
}

npu_status memory_free(npu_device* device, npu_addr addr) {
  Guard guard(device->lock);
  std::vector<npu_addr> sides = device->mirror.sides(addr);
  if (sides.empty()) sides.assign(1, addr);  // side 0 says what is wrong with it
  Outcome first;
  for (size_t side = 0; side < sides.size(); ++side) {
    const npu_status status = api(*device, side).memory_free(device->inner[side], sides[side]);
    if (status != NPU_OK && first.status == NPU_OK) first = failed(*device, side, status);
  }
  if (device->mirror.remove(addr)) watcher(*device).freed(*device, addr);
  return give(first);
}

npu_status host_alloc(npu_device* device, uint64_t size, void** out) {
  return answer(*device, 0, api(*device, 0).host_alloc(device->inner[0], size, out));
}

npu_status host_free(npu_device* device, void* ptr) {
  return answer(*device, 0, api(*device, 0).host_free(device->inner[0], ptr));
}

npu_status copy_to_device(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, uint32_t flags) {
  npu_device& device = *stream->device;
  Guard guard(device.lock);
  if (const Outcome ready = prepare(device, dst, size); ready.status != NPU_OK) return give(ready);
  for (size_t side = 0; side < stream->inner.size(); ++side) {
    const npu_status status =
        api(device, side).copy_to_device(stream->inner[side], device.mirror.on(side, dst), src, size, side ? 0 : flags);
    if (const Outcome outcome = waited(*stream, side, status); outcome.status != NPU_OK) return give(outcome);
  }
  if (size == 0) return NPU_OK;
  if (std::byte* bytes = device.mirror.find(dst, size)) {
    std::memcpy(bytes, src, size);
    watcher(device).wrote(device, dst, src, size);
  }
  return NPU_OK;
}

npu_status copy_to_host(npu_stream* stream, void* dst, npu_addr src, uint64_t size, uint32_t flags) {
  npu_device& device = *stream->device;
  Guard guard(device.lock);
  if (const Outcome ready = prepare(device, src, size); ready.status != NPU_OK) return give(ready);
  const npu_status status = api(device, 0).copy_to_host(stream->inner[0], dst, src, size, flags);
  if (const Outcome outcome = waited(*stream, 0, status); outcome.status != NPU_OK) return give(outcome);
  return size ? give(watcher(device).was_read(device, src, static_cast<const std::byte*>(dst), size)) : NPU_OK;
}

npu_status copy_on_device(npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size) {
  npu_device& device = *stream->device;
  Guard guard(device.lock);
  if (const Outcome ready = prepare(device, dst, size); ready.status != NPU_OK) return give(ready);
  if (const Outcome ready = prepare(device, src, size); ready.status != NPU_OK) return give(ready);
  for (size_t side = 0; side < stream->inner.size(); ++side) {
    const npu_status status =
        api(device, side)
            .copy_on_device(stream->inner[side], device.mirror.on(side, dst), device.mirror.on(side, src), size);
    if (const Outcome outcome = waited(*stream, side, status); outcome.status != NPU_OK) return give(outcome);
  }
  if (size == 0) return NPU_OK;
  std::byte *to = device.mirror.find(dst, size), *from = device.mirror.find(src, size);
  if (to && from) {
    std::memmove(to, from, size);
    watcher(device).copied(device, dst, src, size);
  }
  return NPU_OK;
}

}  // namespace npu::wrapping
