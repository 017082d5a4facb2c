#include "tests/cpp/allocator/fake_driver.h"

#include <chrono>

namespace {

constexpr uint64_t kPage = 512;
thread_local const char* last_error = "";

npu_status refuse(npu_status status, const char* text) {
  last_error = text;
  return status;
}

}  // namespace

npu_device::npu_device(uint64_t capacity) : capacity_(capacity), worker_([this] { work(); }) {}

npu_device::~npu_device() {
  stop_ = true;
  worker_.join();
  for (npu_stream* stream : streams_) delete stream;
}

void npu_device::work() {
  while (!stop_) {
    if (running) {
      std::vector<npu_stream*> streams;
      {
        std::lock_guard lock(mutex_);
        streams = streams_;
      }
      for (npu_stream* stream : streams) {
        // Half of what waits, so that streams are rarely idle.
        const uint64_t given = stream->given.load(), done = stream->done.load();
        stream->done = done + (given - done + 1) / 2;
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

npu_stream* npu_device::new_stream() {
  auto* stream = new npu_stream{this};
  std::lock_guard lock(mutex_);
  streams_.push_back(stream);
  return stream;
}

void npu_device::use(npu_addr addr, uint64_t size, npu_stream* stream) {
  const uint64_t ticket = stream->given.fetch_add(1) + 1;
  std::lock_guard lock(mutex_);
  uses_.insert({addr, {size, stream, ticket}});
}

bool npu_device::in_use_locked(npu_addr addr, uint64_t size, npu_stream* stream) {
  bool found = false;
  for (auto it = uses_.begin(); it != uses_.end() && it->first < addr + size;) {
    if (it->second.stream->done.load() >= it->second.ticket) {
      it = uses_.erase(it);
      continue;
    }
    found |= it->first + it->second.size > addr && it->second.stream != stream;
    ++it;
  }
  return found;
}

bool npu_device::in_use(npu_addr addr, uint64_t size, npu_stream* stream) {
  std::lock_guard lock(mutex_);
  return in_use_locked(addr, size, stream);
}

bool npu_device::all_returned() {
  std::lock_guard lock(mutex_);
  return allocations_.empty() && ranges_.empty() && pages_.empty() && used_ == 0;
}

npu_status npu_device::allocate(uint64_t size, npu_addr* out) {
  std::lock_guard lock(mutex_);
  if (used_ + size > capacity_) return refuse(NPU_ERROR_MEMORY, "expected free memory, got a full device");
  used_ += size;
  *out = next_;
  next_ += size + 4096;  // neighbours never touch
  allocations_[*out] = size;
  return NPU_OK;
}

npu_status npu_device::release(npu_addr addr) {
  std::lock_guard lock(mutex_);
  const auto found = allocations_.find(addr);
  if (found == allocations_.end()) {
    ++violations;
    return refuse(NPU_ERROR_INVALID, "expected an allocation");
  }
  if (in_use_locked(addr, found->second, nullptr)) ++violations;
  used_ -= found->second;
  allocations_.erase(found);
  return NPU_OK;
}

npu_status npu_device::reserve(uint64_t size, npu_addr* out) {
  std::lock_guard lock(mutex_);
  *out = next_;
  next_ += size + 4096;
  ranges_[*out] = size;
  return NPU_OK;
}

npu_status npu_device::map(npu_addr addr, uint64_t size) {
  std::lock_guard lock(mutex_);
  if (used_ + size > capacity_) return refuse(NPU_ERROR_MEMORY, "expected free memory, got a full device");
  for (uint64_t k = 0; k < size; k += kPage) {
    if (!pages_.emplace(addr + k, kPage).second) ++violations;
  }
  used_ += size;
  return NPU_OK;
}

npu_status npu_device::unmap(npu_addr addr, uint64_t size) {
  std::lock_guard lock(mutex_);
  if (in_use_locked(addr, size, nullptr)) ++violations;
  for (uint64_t k = 0; k < size; k += kPage) {
    if (pages_.erase(addr + k) != 1) ++violations;
  }
  used_ -= size;
  return NPU_OK;
}

npu_status npu_device::unreserve(npu_addr addr) {
  std::lock_guard lock(mutex_);
  const auto found = ranges_.find(addr);
  if (found == ranges_.end()) {
    ++violations;
    return NPU_ERROR_INVALID;
  }
  const auto page = pages_.lower_bound(addr);
  if (page != pages_.end() && page->first < addr + found->second) ++violations;
  ranges_.erase(found);
  return NPU_OK;
}

const npu_driver* fake_driver() {
  static const npu_driver driver = [] {
    npu_driver d{};
    d.error_text = [] { return last_error; };
    d.memory_info = [](npu_device* device, uint64_t* free_bytes, uint64_t* total_bytes) {
      *total_bytes = device->capacity();
      *free_bytes = device->capacity() - device->used();
      return NPU_OK;
    };
    d.memory_alloc = [](npu_device* device, uint64_t size, npu_addr* out) { return device->allocate(size, out); };
    d.memory_free = [](npu_device* device, npu_addr addr) { return device->release(addr); };
    d.range_reserve = [](npu_device* device, uint64_t size, npu_addr* out) { return device->reserve(size, out); };
    d.range_map = [](npu_device* device, npu_addr addr, uint64_t size) { return device->map(addr, size); };
    d.range_unmap = [](npu_device* device, npu_addr addr, uint64_t size) { return device->unmap(addr, size); };
    d.range_release = [](npu_device* device, npu_addr addr) { return device->unreserve(addr); };
    d.stream_query = [](npu_stream* stream) {
      return stream->done.load() >= stream->given.load() ? NPU_OK : NPU_NOT_READY;
    };
    d.event_create = [](npu_device*, uint32_t, npu_event** out) {
      *out = new npu_event;
      return NPU_OK;
    };
    d.event_destroy = [](npu_event* event) { delete event; };
    d.event_record = [](npu_event* event, npu_stream* stream) {
      event->stream = stream;
      event->ticket = stream->given.load();
      return NPU_OK;
    };
    d.event_query = [](npu_event* event) {
      npu_stream* stream = event->stream.load();
      return !stream || stream->done.load() >= event->ticket.load() ? NPU_OK : NPU_NOT_READY;
    };
    return d;
  }();
  return &driver;
}
