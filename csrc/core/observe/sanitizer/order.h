// Which work comes before which: streams, events and the host.
//
// The host is one clock for all threads, although threads could race with each other: how a program orders its threads
// is not to be seen from here, so what one of them has waited for counts as known to all.
#pragma once
#include <unordered_map>
#include <vector>

#include "csrc/core/observe/sanitizer/clock.h"
#include "npu/runtime.h"

namespace torch_npu::sanitizer {

class Order {
 public:
  uint32_t stream(const npu_stream* handle, int device);
  // What comes before work that the stream is given now.
  const Clock& now(uint32_t stream);
  Stamp step(uint32_t stream) { return streams_[stream].clock.step(stream); }
  const Clock& host() const { return host_; }

  void recorded(const npu_event* event, uint32_t stream) { events_[event] = now(stream); }
  void destroyed(const npu_event* event) { events_.erase(event); }
  void waits(uint32_t stream, const npu_event* event);  // the stream for the event
  // What the host has seen the end of.
  void reached(const npu_event* event);
  void finished(uint32_t stream) { host_.join(streams_[stream].clock); }
  void finished_all(int device);

 private:
  struct Stream {
    int device;
    Clock clock;
  };
  std::vector<Stream> streams_;
  std::unordered_map<const npu_stream*, uint32_t> numbers_;
  std::unordered_map<const npu_event*, Clock> events_;
  Clock host_;
};

}  // namespace torch_npu::sanitizer
