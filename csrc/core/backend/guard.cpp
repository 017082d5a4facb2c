// What c10 asks of a device type: current device, current stream, events. torch.Stream, torch.Event and
// torch.accelerator are built on it.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <c10/core/Allocator.h>

#include "csrc/core/device/capture.h"
#include "csrc/core/device/device.h"
#include "csrc/core/device/event.h"
#include "csrc/core/device/stream.h"
#include "csrc/core/device/thread_state.h"
#include "csrc/core/memory/allocator.h"

namespace torch_npu {
namespace {

constexpr c10::DeviceType kNpu = c10::DeviceType::PrivateUse1;

struct NPUGuardImpl final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kNpu; }

  c10::Device exchangeDevice(c10::Device device) const override {
    return c10::Device(kNpu, exchange_current_device(device.index()));
  }
  c10::Device getDevice() const override { return c10::Device(kNpu, current_device()); }
  void setDevice(c10::Device device) const override { set_current_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0 && device.index() < device_count()) tls_device = device.index();
  }
  c10::DeviceIndex deviceCount() const noexcept override { return device_count(); }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    // Every type: what a driver lacks is computed by the fallback. Quantized types have no npu tensors.
    c10::DeviceCapability capability;
    auto& types = capability.capability_data.supported_scalar_types;
    types.has_QInt8 = types.has_QUInt8 = types.has_QInt32 = types.has_QUInt4x2 = types.has_QUInt2x4 = 0;
    return capability;
  }
  void synchronizeDevice(const c10::DeviceIndex index) const override { synchronize_device(index); }

  c10::Stream getStream(c10::Device device) const override { return current_stream(device.index()); }
  c10::Stream getDefaultStream(c10::Device device) const override { return default_stream(device.index()); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority = false) const override {
    const c10::DeviceIndex index = device.index() == -1 ? current_device() : device.index();
    return stream_from_pool(high_priority ? stream_priority_range(index).second : 0, index);
  }
  c10::Stream getNewStream(c10::Device device, int priority = 0) const override {
    return stream_from_pool(priority, device.index());
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream previous = current_stream(stream.device_index());
    set_current_stream(stream);
    return previous;
  }
  void* getStreamNativeHandle(const c10::Stream stream) const override { return stream_handle(stream); }
  bool queryStream(const c10::Stream& stream) const override { return query_stream(stream); }
  void synchronizeStream(const c10::Stream& stream) const override { synchronize_stream(stream); }
#if TORCH_NPU_TORCH_MINOR >= 12
  bool isStreamCapturing(const c10::Stream& stream) const override {
    return any_capture() && capture_of(stream_handle(stream)) != 0;
  }
#endif

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex index,
              const c10::EventFlag flag) const override {
    TORCH_CHECK(index == -1 || index == stream.device_index(), "expected a stream of npu:", static_cast<int>(index),
                ", where the event was recorded first, got one of ", stream.device());
    auto* own = static_cast<Event*>(*event);
    if (!own) {
      own = new Event(stream.device_index(), flag == c10::EventFlag::BACKEND_DEFAULT);
      *event = own;
    }
    own->record(stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event) static_cast<Event*>(event)->block(stream);
  }
  bool queryEvent(void* event) const override { return !event || static_cast<Event*>(event)->query(); }
  void synchronizeEvent(void* event) const override {
    if (event) static_cast<Event*>(event)->synchronize();
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start && end, "expected two recorded events, got one that was never recorded");
    return static_cast<Event*>(start)->elapsed_ms(*static_cast<Event*>(end));
  }

  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_stream(data, stream);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, NPUGuardImpl)

}  // namespace
}  // namespace torch_npu
