// The driver's table. What is short is here; the rest is in the file named after it.
#include <algorithm>
#include <cstring>

#include "drivers/cmodel/runtime/device.h"
#include "drivers/cmodel/threads/pool.h"

namespace npu::driver {
using namespace cmodel;

const char* const name = "cmodel";
const char* const version = "1.1";

namespace {

constexpr int kLeastPriority = 0, kGreatestPriority = -1;

// Calls a function of Memory and passes its text on.
template <auto function, class... Args>
npu_status with_memory(npu_device* device, Args... args) {
  if (!device) return null_pointer();
  std::string why;
  const npu_status status = (device->memory.*function)(args..., &why);
  if (status != NPU_OK) set_error(why);
  return status;
}

}  // namespace

npu_status device_count(npu_instance* instance, uint32_t* out) {
  if (!instance || !out) return null_pointer();
  *out = static_cast<uint32_t>(instance->devices.size());
  return NPU_OK;
}

npu_status device_properties(npu_device* device, npu_properties* out) {
  if (!device || !out) return null_pointer();
  npu_properties p{};
  p.commands = (1u << NPU_COMMAND_COUNT) - 1;
  std::strcpy(p.name, "C model");
  std::strcpy(p.vendor, "torch_npu");
  p.total_memory = device->memory.total();
  p.alignment = kAlignment;
  p.units = static_cast<uint32_t>(pool_threads());
  p.major = NPU_ABI_MAJOR;
  p.minor = NPU_ABI_MINOR;
  p.least_priority = kLeastPriority;
  p.greatest_priority = kGreatestPriority;
  give_properties(p, out);
  return NPU_OK;
}

npu_status memory_info(npu_device* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  if (!device || !free_bytes || !total_bytes) return null_pointer();
  device->memory.info(free_bytes, total_bytes);
  return NPU_OK;
}

npu_status memory_alloc(npu_device* device, uint64_t size, npu_addr* out) {
  return out ? with_memory<&Memory::alloc>(device, size, out) : null_pointer();
}
npu_status memory_free(npu_device* device, npu_addr addr) {
  return with_memory<&Memory::free>(device, addr);
}
npu_status range_reserve(npu_device* device, uint64_t size, npu_addr* out) {
  return out ? with_memory<&Memory::range_reserve>(device, size, out) : null_pointer();
}
npu_status range_map(npu_device* device, npu_addr addr, uint64_t size) {
  return with_memory<&Memory::range_map>(device, addr, size);
}
npu_status range_unmap(npu_device* device, npu_addr addr, uint64_t size) {
  return with_memory<&Memory::range_unmap>(device, addr, size);
}
npu_status range_release(npu_device* device, npu_addr addr) {
  return with_memory<&Memory::range_release>(device, addr);
}

npu_status host_alloc(npu_device* device, uint64_t size, void** out) {
  return device && out ? device->pinned.alloc(size, out) : null_pointer();
}
npu_status host_free(npu_device* device, void* memory) {
  return device ? device->pinned.free(memory) : null_pointer();
}

npu_status stream_create(npu_device* device, int32_t priority, npu_stream** out) {
  if (!device || !out) return null_pointer();
  auto stream = std::make_shared<npu_stream>(device, std::clamp(priority, kGreatestPriority, kLeastPriority));
  *out = stream.get();
  std::lock_guard<std::mutex> lock(device->objects);
  device->streams[stream.get()] = std::move(stream);
  return NPU_OK;
}

void stream_destroy(npu_stream* stream) {
  if (!stream) return;
  stream->wait(stream->last_submitted());
  stream->stop_worker();
  std::shared_ptr<npu_stream> last;  // events may still point at it
  std::lock_guard<std::mutex> lock(stream->device->objects);
  const auto it = stream->device->streams.find(stream);
  if (it == stream->device->streams.end()) return;
  last = std::move(it->second);
  stream->device->streams.erase(it);
}

npu_status stream_query(npu_stream* stream) {
  if (!stream) return null_pointer();
  return stream->busy() ? NPU_NOT_READY : NPU_OK;
}

}  // namespace npu::driver
