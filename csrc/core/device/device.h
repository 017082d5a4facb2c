// Drivers and their devices. Drivers named in TORCH_NPU_DRIVER are loaded once, at the first question about
// devices; each contributes its devices to npu:0, npu:1, ... A device is opened at its first use.
#pragma once
#include <c10/core/Device.h>

#include <string>
#include <vector>

#include "npu/runtime.h"

namespace torch_npu {

struct Device {
  const npu_driver* api = nullptr;
  npu_instance* instance = nullptr;
  npu_device* handle = nullptr;  // null until opened
  c10::DeviceIndex index = -1;   // of npu:index
  uint32_t driver_index = 0;     // of the device within its driver
  std::string driver;            // as written in TORCH_NPU_DRIVER, without options
  npu_properties properties{};
};

// Never throws: 0 if no driver could be loaded, and then driver_error() says why in one sentence.
c10::DeviceIndex device_count() noexcept;
const std::string& driver_error() noexcept;
// Throws that sentence if there is no device.
void require_devices();

// Opens it if need be. Throws for a bad index: "expected an npu device index from 0 to 1, got 7".
Device& device(c10::DeviceIndex index);
// Already opened (npu tensors exist on it): no check, for hot paths.
Device& opened_device(c10::DeviceIndex index) noexcept;
bool is_opened(c10::DeviceIndex index) noexcept;

// The calling thread's current device.
c10::DeviceIndex current_device() noexcept;
void set_current_device(c10::DeviceIndex index);  // throws for a bad index
c10::DeviceIndex exchange_current_device(c10::DeviceIndex index);

void synchronize_device(c10::DeviceIndex index);
// Drops queued work and failures of the device; its memory, streams and events stay valid.
void reset_device(c10::DeviceIndex index);

// A loaded driver, for reports.
struct DriverInfo {
  std::string name;  // as written in TORCH_NPU_DRIVER
  std::string options;
  std::string path;
  std::string driver_name;  // as the driver calls itself
  std::string version;
  uint32_t abi_major = 0, abi_minor = 0;
  std::vector<c10::DeviceIndex> devices;
};
std::vector<DriverInfo> loaded_drivers();  // loads them; empty if that fails, see driver_error()

// True in a child process forked after a device was opened: devices cannot be used there.
bool is_in_bad_fork() noexcept;

// Turns a failed driver call into the right C++ exception (Python: RuntimeError, OutOfMemoryError, IndexError,
// torch.AcceleratorError), with the driver's own text. Must be called on the thread that made the call. `deferred`:
// the failure may be of earlier, asynchronous work (the call was a synchronisation); the text then says how to find it.
[[noreturn]] void throw_status(const Device& device, npu_status status, const char* doing, bool deferred = false);

inline void check(const Device& device, npu_status status, const char* doing) {
  if (status != NPU_OK) [[unlikely]] {
    throw_status(device, status, doing);
  }
}

// For calls that report asynchronous failures: stream_synchronize, event_synchronize, device_synchronize.
inline void check_deferred(const Device& device, npu_status status, const char* doing) {
  if (status != NPU_OK) [[unlikely]] {
    throw_status(device, status, doing, true);
  }
}

}  // namespace torch_npu
