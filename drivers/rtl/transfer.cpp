// Copies of bytes between host and device, and events.
#include <cstdio>
#include <cstring>

#include "drivers/rtl/device.h"

namespace rtl {
namespace {

constexpr uint64_t kStage = 64 << 10;  // pageable host memory up to this size is kept, so that nobody waits

std::string hex(uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

npu_status locate(npu_stream* stream, const char* what, npu_addr addr, uint64_t size, uint64_t* out) {
  if (stream->device->memory->find(addr, size, out)) return NPU_OK;
  return error(NPU_ERROR_ADDRESS, std::string(what) + ": expected " + std::to_string(size) +
                                      " bytes in one live allocation, got " + hex(addr));
}

npu_status check(npu_stream* stream, const void* host, uint64_t size, uint32_t flags) {
  if (!stream || (!host && size > 0))
    return error(NPU_ERROR_INVALID, "expected a stream and memory, got a null pointer");
  if (flags & ~uint32_t{NPU_COPY_PINNED})
    return error(NPU_ERROR_INVALID, "expected no copy flags but NPU_COPY_PINNED, got " + hex(flags));
  return NPU_OK;
}

Failure moved(npu_device* device, uint64_t size) {
  device->host_lines += (size + npu_hw::LINE_BYTES - 1) / npu_hw::LINE_BYTES;
  return {};
}

npu_status null_event() {
  return error(NPU_ERROR_INVALID, "expected an event and a stream, got a null pointer");
}

}  // namespace

npu_status copy_to_device(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, uint32_t flags) {
  npu_status status = check(stream, src, size, flags);
  if (status != NPU_OK || size == 0) return status;
  uint64_t to;
  status = locate(stream, "copy_to_device", dst, size, &to);
  if (status != NPU_OK) return status;
  npu_device* device = stream->device;
  const bool pinned = flags & NPU_COPY_PINNED;
  if (!pinned && size <= kStage) {
    std::vector<char> kept(static_cast<const char*>(src), static_cast<const char*>(src) + size);
    device->give(stream, [device, to, kept = std::move(kept)] {
      device->processor->board().write_memory(to, kept.data(), kept.size());
      return moved(device, kept.size());
    });
    return NPU_OK;
  }
  const uint64_t seq = device->give(stream, [device, to, src, size] {
    device->processor->board().write_memory(to, src, size);
    return moved(device, size);
  });
  if (!pinned) device->wait(seq);
  return NPU_OK;
}

npu_status copy_to_host(npu_stream* stream, void* dst, npu_addr src, uint64_t size, uint32_t flags) {
  npu_status status = check(stream, dst, size, flags);
  if (status != NPU_OK || size == 0) return status;
  uint64_t from;
  status = locate(stream, "copy_to_host", src, size, &from);
  if (status != NPU_OK) return status;
  npu_device* device = stream->device;
  const uint64_t seq = device->give(stream, [device, dst, from, size] {
    device->processor->board().read_memory(dst, from, size);
    return moved(device, size);
  });
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
  device->give(stream, [device, to, from, size] {
    std::vector<char> bytes(size);
    device->processor->board().read_memory(bytes.data(), from, size);
    device->processor->board().write_memory(to, bytes.data(), size);
    return moved(device, 2 * size);
  });
  return NPU_OK;
}

npu_status create_event(npu_device* device, uint32_t flags, npu_event** out) {
  if (!device || !out) return error(NPU_ERROR_INVALID, "expected a device, got a null pointer");
  if (flags & ~uint32_t{NPU_EVENT_TIMING})
    return error(NPU_ERROR_INVALID, "expected no event flags but NPU_EVENT_TIMING, got " + hex(flags));
  auto* event = new npu_event{device, (flags & NPU_EVENT_TIMING) != 0, {}, nullptr, 0, nullptr};
  std::lock_guard<std::mutex> lock(device->mutex);
  device->events.insert(event);
  *out = event;
  return NPU_OK;
}

void destroy_event(npu_event* event) {
  if (!event) return;
  {
    std::lock_guard<std::mutex> lock(event->device->mutex);
    event->device->events.erase(event);
  }
  delete event;
}

npu_status record_event(npu_event* event, npu_stream* stream) {
  if (!event || !stream) return null_event();
  if (event->device->instance != stream->device->instance)
    return error(NPU_ERROR_INVALID, "expected an event and a stream of one driver instance, got two instances");
  npu_device* device = stream->device;
  auto time = std::make_shared<std::atomic<uint64_t>>(0);
  const uint64_t seq = device->give(stream, [device, time, timing = event->timing] {
    if (timing) *time = device->simulated_ns();
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

npu_status wait_event(npu_stream* stream, npu_event* event) {
  if (!event || !stream) return null_event();
  if (event->device->instance != stream->device->instance)
    return error(NPU_ERROR_INVALID, "expected an event and a stream of one driver instance, got two instances");
  std::shared_ptr<npu_stream> other;
  uint64_t seq;
  {
    std::lock_guard<std::mutex> lock(event->mutex);
    other = event->stream;
    seq = event->seq;
  }
  if (!other || other->device == stream->device) return NPU_OK;  // one queue: what came before is done before
  stream->device->give(stream, [other, seq] {
    other->device->wait(seq);
    return Failure{};
  });
  return NPU_OK;
}

npu_status query_event(npu_event* event) {
  if (!event) return null_event();
  std::lock_guard<std::mutex> lock(event->mutex);
  return !event->stream || event->stream->device->reached(event->seq) ? NPU_OK : NPU_NOT_READY;
}

npu_status synchronize_event(npu_event* event) {
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

npu_status elapsed(npu_event* start, npu_event* end, double* out) {
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

}  // namespace rtl
