// Copies of bytes between host and device, and events.
#include <cstring>

#include "drivers/rtl/device/device.h"
#include "support/driver/address_text.h"

namespace rtl {
namespace {

constexpr uint64_t kStage = 64 << 10;  // pageable host memory up to this size is kept, so that nobody waits

npu_status locate(npu_stream* stream, const char* what, npu_addr addr, uint64_t size, uint64_t* out) {
  if (stream->device->memory->find(addr, size, out)) return NPU_OK;
  return error(NPU_ERROR_ADDRESS, std::string(what) + ": expected " + std::to_string(size) +
                                      " bytes in one live allocation, got " + npu::driver::hex(addr));
}

}  // namespace
}  // namespace rtl

namespace npu::driver {
using namespace rtl;

npu_status copy_to_device(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, uint32_t flags) {
  npu_status status = check_copy(stream, src, size, flags);
  if (status != NPU_OK || size == 0) return status;
  uint64_t to;
  status = locate(stream, "copy_to_device", dst, size, &to);
  if (status != NPU_OK) return status;
  npu_device* device = stream->device;
  const bool pinned = flags & NPU_COPY_PINNED;
  if (!pinned && size <= kStage) {
    std::vector<char> kept(static_cast<const char*>(src), static_cast<const char*>(src) + size);
    device->give(stream, "copy_to_device", [device, to, kept = std::move(kept)] {
      return device->processor->write_memory(to, kept.data(), kept.size());
    });
    return NPU_OK;
  }
  const uint64_t seq = device->give(stream, "copy_to_device",
                                    [device, to, src, size] { return device->processor->write_memory(to, src, size); });
  if (!pinned) device->wait(seq);
  return NPU_OK;
}

npu_status copy_to_host(npu_stream* stream, void* dst, npu_addr src, uint64_t size, uint32_t flags) {
  npu_status status = check_copy(stream, dst, size, flags);
  if (status != NPU_OK || size == 0) return status;
  uint64_t from;
  status = locate(stream, "copy_to_host", src, size, &from);
  if (status != NPU_OK) return status;
  npu_device* device = stream->device;
  const uint64_t seq = device->give(
      stream, "copy_to_host", [device, dst, from, size] { return device->processor->read_memory(dst, from, size); });
  if (!(flags & NPU_COPY_PINNED)) device->wait(seq);
  return NPU_OK;
}

// Through the host: ranges may overlap, and the host's copy is as good as the NPU's.
npu_status copy_on_device(npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size) {
  if (!stream) return error(NPU_ERROR_INVALID, "expected a stream, got a null pointer");
  if (size == 0) return NPU_OK;
  uint64_t to, from;
  npu_status status = locate(stream, "copy_on_device", dst, size, &to);
  if (status == NPU_OK) status = locate(stream, "copy_on_device", src, size, &from);
  if (status != NPU_OK) return status;
  npu_device* device = stream->device;
  device->give(stream, "copy_on_device", [device, to, from, size] {
    std::vector<char> bytes(size);
    Failure failure = device->processor->read_memory(bytes.data(), from, size);
    return failure.status == NPU_OK ? device->processor->write_memory(to, bytes.data(), size) : failure;
  });
  return NPU_OK;
}

npu_status event_create(npu_device* device, uint32_t flags, npu_event** out) {
  return create_event(device, flags, out);
}

void event_destroy(npu_event* event) {
  destroy_event(event);
}

npu_status event_record(npu_event* event, npu_stream* stream) {
  if (const npu_status status = check_event_on(event, stream); status != NPU_OK) return status;
  npu_device* device = stream->device;
  auto time = std::make_shared<std::atomic<uint64_t>>(0);
  const uint64_t seq = device->give(stream, "event_record", [device, time, timing = event->timing] {
    if (timing) *time = device->clock_ns();
    return Failure{};
  });
  std::shared_ptr<npu_stream> owner;
  {
    std::lock_guard<std::mutex> lock(device->mutex);
    owner = device->streams.at(stream);
  }
  std::lock_guard<std::mutex> lock(event->mutex);
  event->stream = std::move(owner);
  event->seq = seq;
  event->time = std::move(time);
  return NPU_OK;
}

npu_status stream_wait_event(npu_stream* stream, npu_event* event) {
  if (const npu_status status = check_event_on(event, stream); status != NPU_OK) return status;
  std::shared_ptr<npu_stream> other;
  uint64_t seq;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    other = event->stream;
    seq = event->seq;
  }
  if (!other || other->device == stream->device) return NPU_OK;  // one queue: what came before is done before
  stream->device->give(stream, "stream_wait_event", [other, seq] {
    other->device->wait(seq);
    return Failure{};
  });
  return NPU_OK;
}

npu_status event_query(npu_event* event) {
  if (!event) return null_event();
  std::lock_guard<std::mutex> lock(event->mutex);
  return !event->stream || event->stream->device->reached(event->seq) ? NPU_OK : NPU_NOT_READY;
}

npu_status event_synchronize(npu_event* event) {
  if (!event) return null_event();
  std::shared_ptr<npu_stream> stream;
  uint64_t seq;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    stream = event->stream;
    seq = event->seq;
  }
  return stream ? stream->device->wait_and_report(stream.get(), seq) : NPU_OK;
}

npu_status event_elapsed(npu_event* start, npu_event* end, double* out) {
  if (!start || !end || !out) return null_event();
  uint64_t times[2];
  npu_event* const events[2] = {start, end};
  for (int i = 0; i < 2; ++i) {
    const std::string name = i == 0 ? "start" : "end";
    if (!events[i]->timing) return error(NPU_ERROR_INVALID, "expected a timing event as " + name + ", got another");
    std::lock_guard<std::mutex> lock(events[i]->mutex);
    if (!events[i]->stream)
      return error(NPU_ERROR_INVALID, "expected a recorded event as " + name + ", got one never recorded");
    if (!events[i]->stream->device->reached(events[i]->seq)) {
      set_error("expected a reached event as " + name + ", got one still ahead; synchronize it first");
      return NPU_NOT_READY;
    }
    times[i] = *events[i]->time;
  }
  *out = (static_cast<double>(times[1]) - static_cast<double>(times[0])) * 1e-6;
  return NPU_OK;
}

}  // namespace npu::driver
