// What ATen asks of the device type, and the registrations that make libtorch_npu a backend, with or without Python.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/DeviceType.h>

#include "csrc/core/device/device.h"
#include "csrc/core/device/thread_state.h"
#include "csrc/core/memory/allocator.h"
#include "csrc/core/memory/host_allocator.h"
#include "csrc/core/memory/storage.h"
#include "csrc/core/random/generator.h"

namespace torch_npu {
namespace {

struct NPUHooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex index) const override { return is_opened(index); }
  void init() const override { require_devices(); }

  c10::DeviceIndex deviceCount() const override { return device_count(); }
  void setCurrentDevice(c10::DeviceIndex index) const override { set_current_device(index); }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? c10::DeviceIndex{-1} : exchange_current_device(index);
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    // Changing the current device opens nothing here, so "maybe" is always yes.
    return exchangeDevice(index);
  }

  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  c10::Allocator* getPinnedMemoryAllocator() const override { return host_allocator(); }
  c10::Device getDeviceFromPtr(void* data) const override {
    const c10::DeviceIndex index = device_of_pointer(data);
    TORCH_CHECK(index >= 0, "expected a pointer to npu memory in use, got ", data);
    return c10::Device(c10::DeviceType::PrivateUse1, index);
  }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override { return default_generator(index); }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override { return new_generator(index); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t new_size) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), new_size);
  }
};

const bool registered = [] {
  c10::register_privateuse1_backend("npu");
  at::RegisterPrivateUse1HooksInterface(new NPUHooks);
  return true;
}();

}  // namespace
}  // namespace torch_npu
