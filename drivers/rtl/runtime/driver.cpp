// The functions of the driver. What is short is here; the rest is in the file named after it.
#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "drivers/rtl/device/device.h"

namespace npu::driver {
using namespace rtl;

namespace {

constexpr npu_addr kWindow = 0x0C00000000000000;  // no CPU has such pointers
constexpr int kInstanceShift = 50, kDeviceShift = 44;

uint64_t last_of(npu_stream* stream) {
  std::lock_guard<std::mutex> lock(stream->device->mutex);
  return stream->last;
}

}  // namespace

npu_status open(const char* options, npu_instance** out) {
  if (!options || !out) return null_pointer();
  auto made = std::make_unique<npu_instance>();
  try {
    made->boards = find_boards(options);
  } catch (const std::invalid_argument& why) {
    return error(NPU_ERROR_INVALID, why.what());
  }
  static std::atomic<uint64_t> instances{0};
  made->number = instances++;
  made->devices.resize(made->boards.size());
  *out = made.release();
  return NPU_OK;
}

void close(npu_instance* instance) {
  delete instance;
}

npu_status device_count(npu_instance* instance, uint32_t* out) {
  if (!instance || !out) return null_pointer();
  *out = static_cast<uint32_t>(instance->devices.size());
  return NPU_OK;
}

npu_status device_open(npu_instance* instance, uint32_t index, npu_device** out) {
  if (!instance || !out) return null_pointer();
  std::lock_guard<std::mutex> lock(instance->mutex);
  if (const npu_status status = check_device(instance->devices, index); status != NPU_OK) return status;
  const npu_addr window =
      kWindow + ((instance->number & 15) << kInstanceShift) + (static_cast<npu_addr>(index) << kDeviceShift);
  try {
    *out = instance->devices[index] = new npu_device(instance, index, window);
  } catch (const BoardLost& why) {
    return error(NPU_ERROR_DEVICE_LOST, why.what());
  }
  return NPU_OK;
}

void device_close(npu_device* device) {
  if (!device) return;
  npu_instance* instance = device->instance;
  const uint32_t index = device->index;
  delete device;
  std::lock_guard<std::mutex> lock(instance->mutex);
  instance->devices[index] = nullptr;
}

npu_status device_properties(npu_device* device, npu_properties* out) {
  if (!device || !out) return null_pointer();
  npu_properties p{};
  p.commands = 1u << NPU_COPY | 1u << NPU_MAP | 1u << NPU_REDUCE | 1u << NPU_SCAN | 1u << NPU_SCATTER |
               1u << NPU_MATMUL | 1u << NPU_CONV;
  std::snprintf(p.name, sizeof p.name, "%s", device_name);
  std::strcpy(p.vendor, "torch_npu");
  uint64_t free_bytes;
  device->memory->info(&free_bytes, &p.total_memory);
  p.alignment = kAlignment;
  p.units = npu_hw::LANES;
  p.clock_mhz = device->processor->board().clock_mhz();
  p.major = npu_hw::VERSION;
  // bf16 multiply-adds of the matrix engine, and the bus.
  p.peak_flops = 2.0 * npu_hw::LANES * npu_hw::LANES * p.clock_mhz * 1e6;
  p.peak_bandwidth = 2.0 * npu_hw::LINE_BYTES * p.clock_mhz * 1e6;
  give_properties(p, out);
  return NPU_OK;
}

npu_status device_synchronize(npu_device* device) {
  return device ? device->synchronize() : null_pointer();
}
npu_status device_reset(npu_device* device) {
  return device ? device->reset() : null_pointer();
}

npu_status memory_info(npu_device* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  if (!device || !free_bytes || !total_bytes) return null_pointer();
  device->memory->info(free_bytes, total_bytes);
  return NPU_OK;
}

npu_status memory_alloc(npu_device* device, uint64_t size, npu_addr* out) {
  if (!device || !out) return null_pointer();
  if (size == 0) return error(NPU_ERROR_INVALID, "expected an allocation of at least 1 byte, got 0");
  const npu_addr made = device->memory->alloc(size);
  if (!made)
    return error(NPU_ERROR_MEMORY,
                 "expected " + std::to_string(size) + " bytes of device memory in one piece, got none");
  *out = made;
  return NPU_OK;
}

npu_status memory_free(npu_device* device, npu_addr addr) {
  if (!device) return null_pointer();
  if (device->memory->free(addr)) return NPU_OK;
  char text[96];
  std::snprintf(text, sizeof text, "memory_free: expected the start of a live allocation, got 0x%llx",
                static_cast<unsigned long long>(addr));
  return error(NPU_ERROR_ADDRESS, text);
}

npu_status host_alloc(npu_device* device, uint64_t size, void** out) {
  return device && out ? device->pinned.alloc(size, out) : null_pointer();
}
npu_status host_free(npu_device* device, void* memory) {
  return device ? device->pinned.free(memory) : null_pointer();
}

npu_status stream_create(npu_device* device, int32_t, npu_stream** out) {
  if (!device || !out) return null_pointer();
  auto stream = std::make_shared<npu_stream>(device);
  *out = stream.get();
  std::lock_guard<std::mutex> lock(device->mutex);
  device->streams[stream.get()] = std::move(stream);
  return NPU_OK;
}

void stream_destroy(npu_stream* stream) {
  if (!stream) return;
  npu_device* device = stream->device;
  device->wait(last_of(stream));
  std::shared_ptr<npu_stream> last;  // events may still point at it
  std::lock_guard<std::mutex> lock(device->mutex);
  const auto it = device->streams.find(stream);
  if (it == device->streams.end()) return;
  last = std::move(it->second);
  device->streams.erase(it);
}

npu_status stream_query(npu_stream* stream) {
  if (!stream) return null_pointer();
  return stream->device->reached(last_of(stream)) ? NPU_OK : NPU_NOT_READY;
}

npu_status stream_synchronize(npu_stream* stream) {
  return stream ? stream->device->wait_and_report(stream, last_of(stream)) : null_pointer();
}

}  // namespace npu::driver
