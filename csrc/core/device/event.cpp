#include "csrc/core/device/event.h"

#include <c10/util/Exception.h>

#include <utility>

#include "csrc/core/device/capture.h"
#include "csrc/core/device/stream.h"

namespace torch_npu {

Event::Event(Event&& other) noexcept
    : device_(other.device_),
      timing_(other.timing_),
      handle_(std::exchange(other.handle_, nullptr)),
      captured_(other.captured_) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(timing_, other.timing_);
  std::swap(handle_, other.handle_);
  std::swap(captured_, other.captured_);
  return *this;
}

Event::~Event() {
  if (handle_ && !is_in_bad_fork()) opened_device(device_).api->event_destroy(handle_);
}

void Event::record(c10::Stream stream) {
  TORCH_CHECK(stream.device_index() == device_, "expected a stream of npu:", static_cast<int>(device_),
              ", to which the event belongs, got one of ", stream.device());
  npu_stream* target = stream_handle(stream);
  captured_ = any_capture() ? capture_of(target) : 0;
  if (captured_) return;
  const Device& device = opened_device(device_);
  if (!handle_) {
    check(device, device.api->event_create(device.handle, timing_ ? NPU_EVENT_TIMING : 0, &handle_),
          "creating an event");
  }
  check(device, device.api->event_record(handle_, target), "recording an event");
}

void Event::block(c10::Stream stream) const {
  if (captured_) return join_capture(captured_, device(stream.device_index()), stream_handle(stream));
  if (!handle_) return;
  npu_stream* waiting = stream_handle(stream);
  const Device& other = opened_device(stream.device_index());
  if (other.instance != opened_device(device_).instance) {
    synchronize();
    return;
  }
  check(other, other.api->stream_wait_event(waiting, handle_), "making a stream wait for an event");
}

void Event::check_outside() const {
  TORCH_CHECK(!captured_,
              "expected an event that was recorded outside of a graph's capture, got one from inside: it orders "
              "the captured work, and the host cannot ask for it");
}

bool Event::query() const {
  check_outside();
  if (!handle_) return true;
  const Device& device = torch_npu::device(device_);
  const npu_status status = device.api->event_query(handle_);
  if (status == NPU_NOT_READY) return false;
  check_deferred(device, status, "querying an event");
  return true;
}

void Event::synchronize() const {
  check_outside();
  if (!handle_) return;
  const Device& device = torch_npu::device(device_);
  check_deferred(device, device.api->event_synchronize(handle_), "synchronizing an event");
}

double Event::elapsed_ms(const Event& end) const {
  check_outside();
  end.check_outside();
  TORCH_CHECK(handle_ && end.handle_, "expected two recorded events, got one that was never recorded");
  TORCH_CHECK(device_ == end.device_, "expected two events of one device, got npu:", static_cast<int>(device_),
              " and npu:", static_cast<int>(end.device_));
  const Device& device = torch_npu::device(device_);
  double milliseconds = 0;
  check(device, device.api->event_elapsed(handle_, end.handle_, &milliseconds), "measuring the time between events");
  return milliseconds;
}

}  // namespace torch_npu
