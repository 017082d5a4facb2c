// Events of npu devices. The driver's event is made at the first record.
#pragma once
#include <c10/core/Stream.h>

#include "csrc/core/device/device.h"

namespace torch_npu {

class Event {
 public:
  Event(c10::DeviceIndex device, bool timing) : device_(device), timing_(timing) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  void record(c10::Stream stream);
  // Work given to `stream` from now on waits for the last record; the host does not, unless the stream belongs to
  // another driver, which cannot know the event.
  void block(c10::Stream stream) const;
  bool query() const;
  void synchronize() const;
  double elapsed_ms(const Event& end) const;
  c10::DeviceIndex device_index() const { return device_; }

 private:
  void check_outside() const;

  c10::DeviceIndex device_;
  bool timing_;
  npu_event* handle_ = nullptr;
  uint64_t captured_ = 0;  // number of the capture of the last record; 0: none
};

}  // namespace torch_npu
