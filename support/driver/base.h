// What every driver in C++ needs below its table: the text of errors, objects that a device owns, pinned memory, and
// the rules of the contract that do not depend on hardware.
#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "npu/runtime.h"

namespace npu::driver {

// The text of the last error on this thread.
void set_error(const std::string& text);
const char* error_text();
// Sets the text and passes the status through.
npu_status error(npu_status status, const std::string& text);
npu_status null_pointer();
npu_status null_event();

// Whether device `index` of an instance, whose open devices these are, may be opened.
npu_status check_device(const std::vector<npu_device*>& devices, uint32_t index);
npu_status check_copy(const npu_stream* stream, const void* host, uint64_t size, uint32_t flags);
npu_status check_event(const npu_device* device, uint32_t flags, npu_event** out);
// event_create and event_destroy, for devices that have their events in an Owned.
template <class Event, class Device>
npu_status create_event(Device* device, uint32_t flags, Event** out) {
  if (const npu_status status = check_event(device, flags, out); status != NPU_OK) return status;
  *out = device->events.add(std::make_unique<Event>(device, (flags & NPU_EVENT_TIMING) != 0));
  return NPU_OK;
}
template <class Event>
void destroy_event(Event* event) {
  if (event) event->device->events.destroy(event);
}
// Whether the event can be recorded or waited for on the stream.
template <class Event, class Stream>
npu_status check_event_on(const Event* event, const Stream* stream) {
  if (!event || !stream) return null_event();
  if (event->device->instance == stream->device->instance) return NPU_OK;
  return error(NPU_ERROR_INVALID, "expected an event and a stream of one driver instance, got two instances");
}
// Fills no more than the caller knows of.
void give_properties(const npu_properties& from, npu_properties* to);

// Objects that live until they are destroyed or their device closes.
template <class T>
class Owned {
 public:
  ~Owned() {
    for (T* object : objects_) delete object;
  }
  T* add(std::unique_ptr<T> object) {
    std::lock_guard<std::mutex> lock(mutex_);
    objects_.insert(object.get());
    return object.release();
  }
  void destroy(T* object) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      objects_.erase(object);
    }
    delete object;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<T*> objects_;
};

// host_alloc and host_free, for hardware that has no use for page-locked memory of its own.
class PinnedMemory {
 public:
  ~PinnedMemory();
  npu_status alloc(uint64_t size, void** out);
  npu_status free(void* memory);

 private:
  std::mutex mutex_;
  std::unordered_set<void*> blocks_;
};

}  // namespace npu::driver
