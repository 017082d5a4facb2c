#include "csrc/core/device/device.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <stdexcept>

#include "csrc/core/device/add_drivers.h"
#include "csrc/core/device/capture.h"
#include "csrc/core/device/driver_loader.h"
#include "csrc/core/device/internal.h"
#include "csrc/core/device/thread_state.h"
#include "support/loading/driver_table.h"

namespace torch_npu {

constinit thread_local c10::DeviceIndex tls_device = 0;

namespace {

// All that is known about devices. Never destroyed: threads and tensors may outlive every static. Replaced as a whole
// where a fresh start is needed (a forked child, another TORCH_NPU_DRIVER after a failure), and the old one leaks.
struct Registry {
  std::mutex mutex;
  std::atomic<bool> loaded{false};
  std::string list;   // TORCH_NPU_DRIVER as it was read
  std::string error;  // why there are no devices
  std::vector<LoadedDriver> drivers;
  std::atomic<int> count{0};  // grows when drivers are added; devices below it are there
  std::array<Device, kMaxDevices> devices;
  std::array<std::atomic<bool>, kMaxDevices> opened{};
};

std::atomic<Registry*> g_registry{new Registry};
std::atomic<bool> g_bad_fork{false};

std::string wanted_drivers() {
  const char* value = std::getenv("TORCH_NPU_DRIVER");
  return value && *value ? value : "cmodel";
}

void after_fork_in_child() {
  Registry* registry = g_registry.load();
  bool used = false;
  for (auto& opened : registry->opened) {
    used |= opened.load(std::memory_order_relaxed);
    opened.store(false, std::memory_order_relaxed);
  }
  if (used) {
    g_bad_fork = true;
    forbid_launches();
  } else {
    // Only questions were asked so far: the child asks them again, of drivers of its own.
    g_registry = new Registry;
  }
}

// All of them or, if they are too many, none.
void append(Registry& registry, std::vector<LoadedDriver> drivers) {
  int count = registry.count;
  uint32_t more = 0;
  for (const LoadedDriver& driver : drivers) more += driver.device_count;
  if (count + static_cast<int64_t>(more) > kMaxDevices) {
    for (const LoadedDriver& driver : drivers) driver.api->close(driver.instance);
    throw std::runtime_error("TORCH_NPU_DRIVER brings more than " + std::to_string(kMaxDevices) +
                             " devices, expected at most that many");
  }
  for (LoadedDriver& driver : drivers) {
    for (uint32_t k = 0; k < driver.device_count; ++k) {
      Device& device = registry.devices[count];
      device.api = driver.api;
      device.instance = driver.instance;
      device.driver_index = k;
      device.driver = driver.name;
      device.index = static_cast<c10::DeviceIndex>(count++);
    }
    registry.drivers.push_back(std::move(driver));
  }
  registry.count = count;
}

void load(Registry& registry) {
  static const int fork_handler = pthread_atfork(nullptr, nullptr, after_fork_in_child);
  (void)fork_handler;
  registry.list = wanted_drivers();
  try {
    append(registry, load_drivers(registry.list));
    if (registry.count == 0) {
      registry.error = "TORCH_NPU_DRIVER is \"" + registry.list + "\", which has no devices";
    }
  } catch (const std::exception& failure) {
    registry.error = failure.what();
    registry.count = 0;
  }
  registry.loaded.store(true, std::memory_order_release);
}

Registry& loaded_registry() {
  Registry* registry = g_registry.load(std::memory_order_acquire);
  if (registry->loaded.load(std::memory_order_acquire)) [[likely]] {
    if (registry->count > 0) [[likely]] {
      return *registry;
    }
    // A failure is remembered until someone asks for other drivers.
    if (registry->list == wanted_drivers()) return *registry;
    Registry* fresh = new Registry;
    if (g_registry.compare_exchange_strong(registry, fresh)) {
      registry = fresh;
    } else {
      delete fresh;
    }
  }
  std::lock_guard lock(registry->mutex);
  if (!registry->loaded.load(std::memory_order_relaxed)) load(*registry);
  return *registry;
}

void check_fork() {
  TORCH_CHECK(!g_bad_fork.load(std::memory_order_relaxed),
              "Cannot re-initialize NPU in forked subprocess. To use NPU with multiprocessing, you must use the "
              "'spawn' start method");
}

Registry& checked_registry(c10::DeviceIndex index) {
  Registry& registry = loaded_registry();
  TORCH_CHECK(registry.count > 0, registry.error);
  const std::string expected = registry.count == 1 ? "0" : "from 0 to " + std::to_string(registry.count - 1);
  TORCH_CHECK(index >= 0 && index < registry.count, "expected an npu device index ", expected, ", got ",
              static_cast<int>(index), "; TORCH_NPU_DRIVER says which devices there are");
  return registry;
}

void open(Device& device) {
  check(device, device.api->device_open(device.instance, device.driver_index, &device.handle), "opening the device");
  try {
    device.properties = {};
    device.properties.struct_size = sizeof(npu_properties);
    check(device, device.api->device_properties(device.handle, &device.properties), "reading the device's properties");
    const uint64_t alignment = device.properties.alignment;
    TORCH_CHECK(std::has_single_bit(alignment) && alignment >= 64, "driver \"", device.driver, "\" aligns memory to ",
                alignment, " bytes, expected a power of two of at least 64");
    device.properties.name[sizeof(device.properties.name) - 1] = 0;
    device.properties.vendor[sizeof(device.properties.vendor) - 1] = 0;
    open_streams(device);
    open_memory(device);
  } catch (...) {
    device.api->device_close(device.handle);
    device.handle = nullptr;
    throw;
  }
}

}  // namespace

c10::DeviceIndex device_count() noexcept {
  try {
    return static_cast<c10::DeviceIndex>(loaded_registry().count);
  } catch (...) {
    return 0;
  }
}

const std::string& driver_error() noexcept {
  device_count();
  return g_registry.load(std::memory_order_acquire)->error;
}

void require_devices() {
  check_fork();
  const Registry& registry = loaded_registry();
  TORCH_CHECK(registry.count > 0, registry.error);
}

bool is_opened(c10::DeviceIndex index) noexcept {
  return index >= 0 && index < kMaxDevices &&
         g_registry.load(std::memory_order_relaxed)->opened[index].load(std::memory_order_acquire);
}

Device& opened_device(c10::DeviceIndex index) noexcept {
  return g_registry.load(std::memory_order_relaxed)->devices[index];
}

Device& device(c10::DeviceIndex index) {
  if (is_opened(index)) [[likely]] {
    return opened_device(index);
  }
  check_fork();
  Registry& registry = checked_registry(index);
  std::lock_guard lock(registry.mutex);
  Device& device = registry.devices[index];
  if (!registry.opened[index].load(std::memory_order_relaxed)) {
    open(device);
    read_launch_settings();
    registry.opened[index].store(true, std::memory_order_release);
  }
  return device;
}

c10::DeviceIndex current_device() noexcept {
  return tls_device;
}

void set_current_device(c10::DeviceIndex index) {
  if (index == tls_device && is_opened(index)) [[likely]] {
    return;
  }
  checked_registry(index);
  tls_device = index;
}

c10::DeviceIndex exchange_current_device(c10::DeviceIndex index) {
  const c10::DeviceIndex previous = tls_device;
  set_current_device(index);
  return previous;
}

void synchronize_device(c10::DeviceIndex index) {
  check_fork();
  checked_registry(index);
  if (!is_opened(index)) return;  // nothing was ever given to it
  const Device& device = opened_device(index);
  refuse_in_capture(index, nullptr, "synchronization of the device");
  check_deferred(device, device.api->device_synchronize(device.handle), "synchronizing the device");
}

void reset_device(c10::DeviceIndex index) {
  const Device& target = device(index);
  check(target, target.api->device_reset(target.handle), "resetting the device");
}

std::vector<DriverInfo> loaded_drivers() {
  std::vector<DriverInfo> infos;
  Registry& registry = loaded_registry();
  std::lock_guard lock(registry.mutex);
  int next = 0;
  for (const LoadedDriver& driver : registry.drivers) {
    DriverInfo info{driver.name,
                    driver.options,
                    driver.path,
                    driver.api->name ? driver.api->name : "",
                    driver.api->version ? driver.api->version : "",
                    driver.api->abi_major,
                    driver.api->abi_minor,
                    {}};
    for (uint32_t k = 0; k < driver.device_count; ++k) info.devices.push_back(static_cast<c10::DeviceIndex>(next++));
    infos.push_back(std::move(info));
  }
  return infos;
}

std::vector<c10::DeviceIndex> add_drivers(const std::string& list) {
  check_fork();
  Registry& registry = loaded_registry();
  std::lock_guard lock(registry.mutex);
  TORCH_CHECK(registry.count > 0, registry.error);
  std::vector<c10::DeviceIndex> added;
  const int before = registry.count;
  try {
    append(registry, load_drivers(list, "add_driver"));
  } catch (const std::runtime_error& failure) {
    TORCH_CHECK(false, failure.what());
  }
  for (int index = before; index < registry.count; ++index) added.push_back(static_cast<c10::DeviceIndex>(index));
  return added;
}

bool is_in_bad_fork() noexcept {
  return g_bad_fork.load(std::memory_order_relaxed);
}

void throw_status(const Device& device, npu_status status, const char* doing, bool deferred) {
  const char* reason = device.api->error_text();
  std::string text = "npu:" + std::to_string(device.index) + " (" + device.driver + "): " + doing +
                     " failed: " + (reason && *reason ? reason : "the driver gave no reason");
  if (status != NPU_ERROR_MEMORY && status != NPU_ERROR_INDEX && status != NPU_UNSUPPORTED) {  // a class says those
    text += std::string(" (") + npu::status_name(status) + ")";
  }
  if (status == NPU_ERROR_DEVICE_LOST) {
    text += "; torch.npu.reset_device(" + std::to_string(device.index) + ") makes the device usable again";
  }
  if (deferred) {
    text +=
        "; the failure may belong to an earlier operation: set TORCH_NPU_BLOCKING=1 to see the op that caused it "
        "at its own line";
  }
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  switch (status) {
    case NPU_ERROR_MEMORY:
      throw c10::OutOfMemoryError(here, text);
    case NPU_ERROR_INDEX:
      throw c10::IndexError(here, text);
    case NPU_UNSUPPORTED:
      throw c10::NotImplementedError(here, text);
    default:
      throw c10::AcceleratorError(here, static_cast<int32_t>(status), text);
  }
}

}  // namespace torch_npu
