// Events: a place in a stream's order, remembered as the number of the last work before it. A record costs no queue
// entry unless the event takes times on a busy stream.
#include <algorithm>

#include "drivers/cmodel/runtime/device.h"

namespace cmodel {
namespace {

struct Place {
  bool recorded;
  std::shared_ptr<npu_stream> stream;
  uint64_t seq;
  bool reached() const { return !stream || stream->reached(seq); }
};

Place place_of(npu_event* event) {
  std::lock_guard<std::mutex> lock(event->mutex);
  return {event->recorded, event->stream, event->seq};
}

}  // namespace
}  // namespace cmodel

namespace npu::driver {
using namespace cmodel;

npu_status event_create(npu_device* device, uint32_t flags, npu_event** out) {
  return create_event(device, flags, out);
}

void event_destroy(npu_event* event) {
  destroy_event(event);
}

npu_status event_record(npu_event* event, npu_stream* stream) {
  if (const npu_status status = check_event_on(event, stream); status != NPU_OK) return status;
  std::shared_ptr<npu_stream> where;
  std::shared_ptr<Stamp> stamp;
  uint64_t seq = 0;
  int64_t time = 0;
  {
    std::lock_guard<std::mutex> lock(stream->submit);
    const bool idle = stream->idle();
    if (stream->device->instance->timing) {
      time = static_cast<int64_t>(stream->predicted_ns);
    } else if (event->timing && idle) {
      time = now_ns();
    } else if (event->timing) {
      stamp = std::make_shared<Stamp>(0);
      auto* record = stream->make_record<StampRecord>(Record::kStamp);
      if (!record) return NPU_ERROR_INTERNAL;
      record->stamp = stamp;
      stream->enqueue(record);
    }
    // An idle stream matters only for a failure that this event may have to report.
    if (!idle || stream->has_failure()) where = stream->shared_from_this();
    seq = stream->submitted();
  }
  std::lock_guard<std::mutex> lock(event->mutex);
  event->recorded = true;
  event->stream.swap(where);
  event->stamp.swap(stamp);
  event->seq = seq;
  event->time = time;
  return NPU_OK;
}

npu_status stream_wait_event(npu_stream* stream, npu_event* event) {
  if (const npu_status status = check_event_on(event, stream); status != NPU_OK) return status;
  if (stream->device->instance->timing) [[unlikely]] {
    std::scoped_lock both(stream->submit, event->mutex);
    stream->predicted_ns = std::max(stream->predicted_ns, static_cast<double>(event->time));
  }
  Place place = place_of(event);
  if (place.reached() || place.stream.get() == stream) return NPU_OK;
  std::lock_guard<std::mutex> lock(stream->submit);
  auto* record = stream->make_record<WaitRecord>(Record::kWait);
  if (!record) return NPU_ERROR_INTERNAL;
  record->other = std::move(place.stream);
  record->until = place.seq;
  stream->enqueue(record);
  return NPU_OK;
}

npu_status event_query(npu_event* event) {
  if (!event) return null_event();
  return place_of(event).reached() ? NPU_OK : NPU_NOT_READY;
}

npu_status event_synchronize(npu_event* event) {
  if (!event) return null_event();
  const Place place = place_of(event);
  if (!place.stream) return NPU_OK;
  place.stream->wait(place.seq);
  Failure failure;
  if (place.stream->take_failure(place.seq, &failure)) return error(failure.status, failure.text);
  return NPU_OK;
}

npu_status event_elapsed(npu_event* start, npu_event* end, double* out) {
  if (!start || !end || !out) return null_event();
  int64_t times[2];
  npu_event* const events[2] = {start, end};
  for (int i = 0; i < 2; ++i) {
    const char* name = i == 0 ? "start" : "end";
    if (!events[i]->timing)
      return error(NPU_ERROR_INVALID, std::string("expected a timing event as ") + name + ", got one without timing");
    const Place place = place_of(events[i]);
    if (!place.recorded)
      return error(NPU_ERROR_INVALID, std::string("expected a recorded event as ") + name + ", got one never recorded");
    if (!place.reached()) {
      set_error(std::string("expected a reached event as ") + name + ", got one still ahead; synchronize it first");
      return NPU_NOT_READY;
    }
    std::lock_guard<std::mutex> lock(events[i]->mutex);
    times[i] = events[i]->stamp ? events[i]->stamp->load(std::memory_order_acquire) : events[i]->time;
  }
  *out = static_cast<double>(times[1] - times[0]) * 1e-6;
  return NPU_OK;
}

npu_status stream_synchronize(npu_stream* stream) {
  if (!stream) return error(NPU_ERROR_INVALID, "expected a stream, got a null pointer");
  const uint64_t seq = stream->last_submitted();
  stream->wait(seq);
  Failure failure;
  if (stream->take_failure(seq, &failure)) return error(failure.status, failure.text);
  return NPU_OK;
}

}  // namespace npu::driver
