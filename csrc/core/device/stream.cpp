#include "csrc/core/device/stream.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "csrc/core/device/capture.h"
#include "csrc/core/device/internal.h"
#include "csrc/core/device/thread_state.h"

namespace torch_npu {

constinit thread_local ThreadStreams* tls_streams = nullptr;
npu_stream* g_default_streams[kMaxDevices] = {};

namespace {

constexpr int kStreamsPerPriority = 32;
constexpr int kMaxLevels = 8;

// Level 0 is the least urgent. Stream id 1 + level * 32 + k is the k-th stream of its level's pool.
struct DeviceStreams {
  int least = 0;
  int levels = 1;
  std::mutex mutex;  // held while a driver stream is made
  std::array<std::atomic<npu_stream*>, kMaxLevels * kStreamsPerPriority> handles{};
  std::array<std::atomic<uint32_t>, kMaxLevels> next{};
};

DeviceStreams* g_streams[kMaxDevices] = {};

c10::Device npu(c10::DeviceIndex index) {
  return c10::Device(c10::DeviceType::PrivateUse1, index);
}

c10::Stream stream_with_id(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, npu(device), id);
}

void check_npu(const c10::Stream& stream) {
  TORCH_CHECK(stream.device_type() == c10::DeviceType::PrivateUse1, "expected an npu stream, got one of ",
              stream.device());
}

// The pool entry of a stream, which must not be the default stream.
int entry_of(const c10::Stream& stream, const DeviceStreams& streams) {
  const int64_t entry = stream.id() - 1;
  TORCH_CHECK(entry >= 0 && entry < streams.levels * kStreamsPerPriority, "expected a stream of ", stream.device(),
              ", got stream id ", stream.id(), ", which the device does not have");
  return static_cast<int>(entry);
}

npu_stream* pool_handle(const Device& device, DeviceStreams& streams, int entry) {
  npu_stream* handle = streams.handles[entry].load(std::memory_order_acquire);
  if (handle) return handle;
  std::lock_guard lock(streams.mutex);
  handle = streams.handles[entry].load(std::memory_order_relaxed);
  if (handle) return handle;
  const int priority = streams.least - entry / kStreamsPerPriority;
  check(device, device.api->stream_create(device.handle, priority, &handle), "creating a stream");
  streams.handles[entry].store(handle, std::memory_order_release);
  return handle;
}

// Frees the thread's choices when the thread ends.
struct ThreadStreamsOwner {
  std::unique_ptr<ThreadStreams> streams = std::make_unique<ThreadStreams>();
  ThreadStreamsOwner() { tls_streams = streams.get(); }
  ~ThreadStreamsOwner() { tls_streams = nullptr; }
};

ThreadStreams& thread_streams() {
  if (!tls_streams) {
    static thread_local ThreadStreamsOwner owner;
    tls_streams = owner.streams.get();
  }
  return *tls_streams;
}

}  // namespace

void open_streams(Device& device) {
  auto streams = std::make_unique<DeviceStreams>();
  const npu_properties& properties = device.properties;
  streams->least = properties.least_priority;
  streams->levels = std::clamp(properties.least_priority - properties.greatest_priority + 1, 1, kMaxLevels);
  npu_stream* handle = nullptr;
  const int normal = std::clamp(0, streams->least - streams->levels + 1, streams->least);
  check(device, device.api->stream_create(device.handle, normal, &handle), "creating the default stream");
  g_default_streams[device.index] = handle;
  g_streams[device.index] = streams.release();  // lives as long as the device: for ever
}

c10::Stream default_stream(c10::DeviceIndex device) {
  return c10::Stream(c10::Stream::DEFAULT, npu(device == -1 ? current_device() : device));
}

c10::Stream stream_from_pool(int priority, c10::DeviceIndex index) {
  if (index == -1) index = current_device();
  const Device& opened = device(index);
  DeviceStreams& streams = *g_streams[index];
  const int level = std::clamp(streams.least - priority, 0, streams.levels - 1);
  const uint32_t turn = streams.next[level].fetch_add(1, std::memory_order_relaxed) % kStreamsPerPriority;
  const int entry = level * kStreamsPerPriority + static_cast<int>(turn);
  pool_handle(opened, streams, entry);
  return stream_with_id(index, entry + 1);
}

c10::Stream current_stream(c10::DeviceIndex device) {
  if (device == -1) device = current_device();
  TORCH_CHECK(device >= 0 && device < kMaxDevices, "expected an npu device index, got ", static_cast<int>(device));
  return stream_with_id(device, tls_streams ? tls_streams->id[device] : 0);
}

void set_current_stream(c10::Stream stream) {
  check_npu(stream);
  const c10::DeviceIndex index = stream.device_index();
  TORCH_CHECK(index >= 0 && index < device_count(), "expected a stream of an npu device, got one of ", stream.device());
  if (stream.id() == 0 && !tls_streams) return;
  npu_stream* handle = stream.id() == 0 ? nullptr : stream_handle(stream);
  ThreadStreams& chosen = thread_streams();
  chosen.handle[index] = handle;
  chosen.id[index] = stream.id();
}

npu_stream* stream_handle(c10::Stream stream) {
  check_npu(stream);
  const Device& opened = device(stream.device_index());
  if (stream.id() == 0) return g_default_streams[opened.index];
  DeviceStreams& streams = *g_streams[opened.index];
  return pool_handle(opened, streams, entry_of(stream, streams));
}

npu_stream* current_stream_handle(c10::DeviceIndex device) noexcept {
  return current_handle(device);
}

int stream_priority(c10::Stream stream) {
  check_npu(stream);
  const auto [least, greatest] = stream_priority_range(stream.device_index());
  if (stream.id() == 0) return std::clamp(0, greatest, least);
  const DeviceStreams& streams = *g_streams[stream.device_index()];
  return streams.least - entry_of(stream, streams) / kStreamsPerPriority;
}

std::pair<int, int> stream_priority_range(c10::DeviceIndex index) {
  const DeviceStreams& streams = *g_streams[device(index).index];
  return {streams.least, streams.least - streams.levels + 1};
}

c10::Stream stream_of_handle(c10::DeviceIndex device, const npu_stream* handle) noexcept {
  if (is_opened(device) && handle != g_default_streams[device]) {
    const auto& handles = g_streams[device]->handles;
    for (size_t entry = 0; entry < handles.size(); ++entry) {
      if (handles[entry].load(std::memory_order_acquire) == handle) {
        return stream_with_id(device, static_cast<c10::StreamId>(entry + 1));
      }
    }
  }
  return stream_with_id(device, 0);
}

std::optional<c10::Stream> find_stream(const npu_stream* handle) {
  for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
    if (!is_opened(index)) continue;
    const c10::Stream stream = stream_of_handle(index, handle);
    if (stream.id() != 0 || handle == g_default_streams[index]) return stream;
  }
  return std::nullopt;
}

bool query_stream(c10::Stream stream) {
  check_npu(stream);
  if (!is_opened(stream.device_index()) && !is_in_bad_fork()) return true;
  npu_stream* handle = stream_handle(stream);
  refuse_in_capture(stream.device_index(), handle, "query of a captured stream");
  const Device& device = opened_device(stream.device_index());
  const npu_status status = device.api->stream_query(handle);
  if (status == NPU_NOT_READY) return false;
  check_deferred(device, status, "querying a stream");
  return true;
}

void synchronize_stream(c10::Stream stream) {
  check_npu(stream);
  if (!is_opened(stream.device_index()) && !is_in_bad_fork()) return;
  npu_stream* handle = stream_handle(stream);
  refuse_in_capture(stream.device_index(), handle, "synchronization of a captured stream");
  const Device& device = opened_device(stream.device_index());
  check_deferred(device, device.api->stream_synchronize(handle), "synchronizing a stream");
}

}  // namespace torch_npu
