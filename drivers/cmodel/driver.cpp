// The driver's table. What is short is here; the rest is in the file named after it.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "drivers/cmodel/device.h"
#include "drivers/cmodel/pool.h"

using namespace cmodel;

namespace {

constexpr int kLeastPriority = 0, kGreatestPriority = -1;

npu_status null_pointer() {
  return error(NPU_ERROR_INVALID, "expected valid arguments, got a null pointer");
}

// No exception crosses the contract.
template <auto function, class... Args>
npu_status guarded(Args... args) noexcept {
  try {
    return function(args...);
  } catch (const std::bad_alloc&) {
    return error(NPU_ERROR_MEMORY, "expected host memory for the C model's own records, got none");
  } catch (const std::exception& why) {
    return error(NPU_ERROR_INTERNAL, why.what());
  }
}

template <auto function>
struct Entry;
template <class... Args, npu_status (*function)(Args...)>
struct Entry<function> {
  static npu_status call(Args... args) noexcept { return guarded<function>(args...); }
};

npu_status open(const char* options, npu_instance** out) {
  return out ? open_instance(options, out) : null_pointer();
}

void close(npu_instance* instance) {
  if (instance) close_instance(instance);
}

npu_status device_count(npu_instance* instance, uint32_t* out) {
  if (!instance || !out) return null_pointer();
  *out = static_cast<uint32_t>(instance->devices.size());
  return NPU_OK;
}

npu_status device_open(npu_instance* instance, uint32_t index, npu_device** out) {
  return instance && out ? open_device(instance, index, out) : null_pointer();
}

void device_close(npu_device* device) {
  if (device) close_device(device);
}

npu_status device_properties(npu_device* device, npu_properties* out) {
  if (!device || !out) return null_pointer();
  npu_properties p{};
  p.struct_size = out->struct_size;
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
  std::memcpy(out, &p, std::min<size_t>(out->struct_size, sizeof p));
  return NPU_OK;
}

npu_status device_synchronize(npu_device* device) {
  return device ? synchronize_device(device) : null_pointer();
}
npu_status device_reset(npu_device* device) {
  return device ? reset_device(device) : null_pointer();
}

npu_status memory_info(npu_device* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  if (!device || !free_bytes || !total_bytes) return null_pointer();
  device->memory.info(free_bytes, total_bytes);
  return NPU_OK;
}

// Calls a function of Memory and passes its text on.
template <auto function, class... Args>
npu_status with_memory(npu_device* device, Args... args) {
  if (!device) return null_pointer();
  std::string why;
  const npu_status status = (device->memory.*function)(args..., &why);
  if (status != NPU_OK) set_error(why);
  return status;
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
  if (!device || !out) return null_pointer();
  if (size == 0) return error(NPU_ERROR_INVALID, "expected an allocation of at least 1 byte, got 0");
  void* memory = size > UINT64_MAX - 4096 ? nullptr : std::aligned_alloc(64, (size + 63) / 64 * 64);
  if (!memory)
    return error(NPU_ERROR_MEMORY, "expected host memory for " + std::to_string(size) + " pinned bytes, got none");
  std::lock_guard<std::mutex> lock(device->objects);
  device->pinned.insert(memory);
  *out = memory;
  return NPU_OK;
}

npu_status host_free(npu_device* device, void* memory) {
  if (!device) return null_pointer();
  {
    std::lock_guard<std::mutex> lock(device->objects);
    if (device->pinned.erase(memory) == 0)
      return error(NPU_ERROR_INVALID, "expected memory from host_alloc of this device, got another pointer");
  }
  std::free(memory);
  return NPU_OK;
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

}  // namespace

extern "C" NPU_EXPORT const npu_driver* npu_driver_get(void) {
  static const npu_driver driver = [] {
    npu_driver d{};
    d.abi_major = NPU_ABI_MAJOR;
    d.abi_minor = NPU_ABI_MINOR;
    d.struct_size = sizeof(npu_driver);
    d.name = "cmodel";
    d.version = "1.1";
    d.error_text = error_text;
    d.open = Entry<open>::call;
    d.close = close;
    d.device_count = device_count;
    d.device_open = Entry<device_open>::call;
    d.device_close = device_close;
    d.device_properties = device_properties;
    d.device_synchronize = Entry<device_synchronize>::call;
    d.device_reset = Entry<device_reset>::call;
    d.memory_info = memory_info;
    d.memory_alloc = Entry<memory_alloc>::call;
    d.memory_free = Entry<memory_free>::call;
    d.host_alloc = Entry<host_alloc>::call;
    d.host_free = Entry<host_free>::call;
    d.range_reserve = Entry<range_reserve>::call;
    d.range_map = Entry<range_map>::call;
    d.range_unmap = Entry<range_unmap>::call;
    d.range_release = Entry<range_release>::call;
    d.copy_to_device = Entry<copy_to_device>::call;
    d.copy_to_host = Entry<copy_to_host>::call;
    d.copy_on_device = Entry<copy_on_device>::call;
    d.stream_create = Entry<stream_create>::call;
    d.stream_destroy = stream_destroy;
    d.stream_query = stream_query;
    d.stream_synchronize = Entry<synchronize_stream>::call;
    d.stream_wait_event = Entry<wait_event>::call;
    d.event_create = Entry<create_event>::call;
    d.event_destroy = destroy_event;
    d.event_record = Entry<record_event>::call;
    d.event_query = query_event;
    d.event_synchronize = Entry<synchronize_event>::call;
    d.event_elapsed = Entry<elapsed>::call;
    d.program_create = Entry<create_program>::call;
    d.program_destroy = destroy_program;
    d.supports = Entry<supports>::call;
    d.submit = Entry<submit>::call;
    d.choices = Entry<list_choices>::call;
    return d;
  }();
  return &driver;
}
