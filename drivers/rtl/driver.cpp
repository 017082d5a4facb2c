// The driver's table. What is short is here; the rest is in the file named after it.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "drivers/rtl/device.h"

using namespace rtl;

namespace {

constexpr uint64_t kMaxDevices = 16;
constexpr npu_addr kWindow = 0x0C00000000000000;  // no CPU has such pointers
constexpr int kInstanceShift = 50, kDeviceShift = 44;

npu_status null_pointer() {
  return error(NPU_ERROR_INVALID, "expected valid arguments, got a null pointer");
}

// No exception crosses the contract.
template <auto function>
struct Entry;
template <class... Args, npu_status (*function)(Args...)>
struct Entry<function> {
  static npu_status call(Args... args) noexcept {
    try {
      return function(args...);
    } catch (const std::bad_alloc&) {
      return error(NPU_ERROR_MEMORY, "expected host memory for the driver's own records, got none");
    } catch (const std::exception& why) {
      return error(NPU_ERROR_INTERNAL, why.what());
    }
  }
};

bool parse_number(const std::string& text, uint64_t* out) {
  char* end = nullptr;
  *out = std::strtoull(text.c_str(), &end, 10);
  const int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
  if (end == text.c_str() || end[shift != 0] || *out > UINT64_MAX >> shift) return false;
  *out <<= shift;
  return true;
}

npu_status open(const char* options, npu_instance** out) {
  if (!options || !out) return null_pointer();
  auto made = std::make_unique<npu_instance>();
  uint64_t devices = 1;
  const struct {
    const char* key;
    uint64_t* value;
    uint64_t least, most;
  } known[] = {{"memory", &made->options.memory, 16 << 20, uint64_t{1} << 36},
               {"devices", &devices, 1, kMaxDevices},
               {"latency", &made->options.latency, 1, 10000},
               {"stall", &made->options.stall, 0, UINT32_MAX}};
  for (std::string rest = options; !rest.empty();) {
    const size_t colon = rest.find(':');
    const std::string one = rest.substr(0, colon);
    rest = colon == std::string::npos ? "" : rest.substr(colon + 1);
    const size_t equals = one.find('=');
    uint64_t value = 0;
    bool fits = false;
    for (const auto& option : known)
      if (equals != std::string::npos && one.substr(0, equals) == option.key &&
          parse_number(one.substr(equals + 1), &value) && value >= option.least && value <= option.most) {
        *option.value = value;
        fits = true;
      }
    if (!fits)
      return error(NPU_ERROR_INVALID,
                   "expected memory=16M..64G, devices=1..16, latency=1..10000 or stall=SEED, got '" + one + "'");
  }
  static std::atomic<uint64_t> instances{0};
  made->number = instances++;
  made->devices.resize(devices);
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
  if (index >= instance->devices.size())
    return error(NPU_ERROR_INVALID, "expected a device index below " + std::to_string(instance->devices.size()) +
                                        ", got " + std::to_string(index) + "; raise devices= in the driver's options");
  if (instance->devices[index])
    return error(NPU_ERROR_INVALID, "expected device " + std::to_string(index) + " to be closed, got it open already");
  const npu_addr window =
      kWindow + ((instance->number & 15) << kInstanceShift) + (static_cast<npu_addr>(index) << kDeviceShift);
  *out = instance->devices[index] = new npu_device(instance, index, window);
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
  p.struct_size = out->struct_size;
  p.commands = 1u << NPU_COPY | 1u << NPU_MAP | 1u << NPU_REDUCE | 1u << NPU_SCAN | 1u << NPU_SCATTER |
               1u << NPU_MATMUL | 1u << NPU_CONV;
  std::strcpy(p.name, "NPU RTL");
  std::strcpy(p.vendor, "torch_npu");
  uint64_t free_bytes;
  device->memory->info(&free_bytes, &p.total_memory);
  p.alignment = kAlignment;
  p.units = npu_hw::LANES;
  p.clock_mhz = kClockMhz;
  p.major = npu_hw::VERSION;
  // bf16 multiply-adds of the matrix engine, and the bus.
  p.peak_flops = 2.0 * npu_hw::LANES * npu_hw::LANES * kClockMhz * 1e6;
  p.peak_bandwidth = 2.0 * npu_hw::LINE_BYTES * kClockMhz * 1e6;
  std::memcpy(out, &p, std::min<size_t>(out->struct_size, sizeof p));
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
  if (!device || !out) return null_pointer();
  if (size == 0) return error(NPU_ERROR_INVALID, "expected an allocation of at least 1 byte, got 0");
  void* memory = size > UINT64_MAX - 4096 ? nullptr : std::aligned_alloc(64, (size + 63) / 64 * 64);
  if (!memory)
    return error(NPU_ERROR_MEMORY, "expected host memory for " + std::to_string(size) + " pinned bytes, got none");
  std::lock_guard<std::mutex> lock(device->mutex);
  device->pinned.insert(memory);
  *out = memory;
  return NPU_OK;
}

npu_status host_free(npu_device* device, void* memory) {
  if (!device) return null_pointer();
  {
    std::lock_guard<std::mutex> lock(device->mutex);
    if (device->pinned.erase(memory) == 0)
      return error(NPU_ERROR_INVALID, "expected memory from host_alloc of this device, got another pointer");
  }
  std::free(memory);
  return NPU_OK;
}

npu_status stream_create(npu_device* device, int32_t, npu_stream** out) {
  if (!device || !out) return null_pointer();
  auto stream = std::make_shared<npu_stream>(device);
  *out = stream.get();
  std::lock_guard<std::mutex> lock(device->mutex);
  device->streams[stream.get()] = std::move(stream);
  return NPU_OK;
}

uint64_t last_of(npu_stream* stream) {
  std::lock_guard<std::mutex> lock(stream->device->mutex);
  return stream->last;
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

}  // namespace

extern "C" NPU_EXPORT const npu_driver* npu_driver_get(void) {
  static const npu_driver driver = [] {
    npu_driver d{};
    d.abi_major = NPU_ABI_MAJOR;
    d.abi_minor = NPU_ABI_MINOR;
    d.struct_size = sizeof(npu_driver);
    d.name = "rtl";
    d.version = "1.0";
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
    d.copy_to_device = Entry<copy_to_device>::call;
    d.copy_to_host = Entry<copy_to_host>::call;
    d.copy_on_device = Entry<copy_on_device>::call;
    d.stream_create = Entry<stream_create>::call;
    d.stream_destroy = stream_destroy;
    d.stream_query = stream_query;
    d.stream_synchronize = Entry<stream_synchronize>::call;
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
    return d;
  }();
  return &driver;
}
