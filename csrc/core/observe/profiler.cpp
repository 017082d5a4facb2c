// The legacy profiler (torch.autograd.profiler with use_device="npu", and torch.profiler's KINETO_PRIVATEUSE1_FALLBACK
// state) times ops on the device by events around each of them.
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/profiler/stubs/base.h>

#include "csrc/core/device/device.h"
#include "csrc/core/device/event.h"
#include "csrc/core/device/stream.h"

namespace torch_npu {
namespace {

struct DeviceTimes final : torch::profiler::impl::ProfilerStubs {
  using Handle = torch::profiler::impl::ProfilerVoidEventStub;

  void record(c10::DeviceIndex* device, Handle* event, int64_t* cpu_ns) const override {
    const c10::DeviceIndex current = current_device();
    if (device) *device = current;
    auto made = std::make_shared<Event>(current, /*timing=*/true);
    made->record(current_stream(current));
    *event = std::move(made);
    if (cpu_ns) *cpu_ns = c10::getTime();
  }
  float elapsed(const Handle* from, const Handle* to) const override {
    auto& first = *static_cast<Event*>(from->get());
    auto& last = *static_cast<Event*>(to->get());
    last.synchronize();
    return static_cast<float>(first.elapsed_ms(last) * 1e3);  // microseconds
  }
  // Ranges are for tools that watch from outside, and there is none.
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> op) const override {
    for (int index = 0; index < device_count(); ++index) {
      if (!is_opened(static_cast<c10::DeviceIndex>(index))) continue;
      const c10::DeviceIndex before = exchange_current_device(static_cast<c10::DeviceIndex>(index));
      op(index);
      set_current_device(before);
    }
  }
  void synchronize() const override { synchronize_device(current_device()); }
};

const bool registered = [] {
  static DeviceTimes times;
  torch::profiler::impl::registerPrivateUse1Methods(&times);
  return true;
}();

}  // namespace
}  // namespace torch_npu
