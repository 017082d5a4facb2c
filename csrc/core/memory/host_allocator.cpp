#include "csrc/core/memory/host_allocator.h"

#include <chrono>
#include <map>
#include <shared_mutex>

#include "csrc/core/device/event.h"
#include "csrc/core/device/stream.h"
#include "csrc/core/device/thread_state.h"

namespace torch_npu {
namespace {

// All pinned memory obtained from drivers, also what is cached. Never destroyed, as the allocator itself.
struct PinnedRanges {
  struct Range {
    uintptr_t end;
    c10::DeviceIndex device;
  };
  std::shared_mutex mutex;
  std::map<uintptr_t, Range> by_start;

  c10::DeviceIndex find(const void* ptr) {
    const auto address = reinterpret_cast<uintptr_t>(ptr);
    std::shared_lock lock(mutex);
    auto after = by_start.upper_bound(address);
    if (after == by_start.begin()) return -1;
    const Range& range = std::prev(after)->second;
    return address < range.end ? range.device : c10::DeviceIndex{-1};
  }
};

PinnedRanges& ranges() {
  static auto* ranges = new PinnedRanges;
  return *ranges;
}

// Pinned memory serves all devices of a driver: prefer one that is open, so that pinning opens no further device.
c10::DeviceIndex device_to_ask() {
  if (is_opened(current_device())) return current_device();
  for (c10::DeviceIndex index = 0; index < kMaxDevices; ++index) {
    if (is_opened(index)) return index;
  }
  return current_device();
}

struct NPUHostAllocatorImpl final : at::CachingHostAllocatorImpl<c10::Stream, Event> {
  using Base = at::CachingHostAllocatorImpl<c10::Stream, Event>;
  using Block = at::HostBlock<c10::Stream>;

  // Called from destructors: a failing driver must not end the process.
  void free(void* context) override {
    if (is_in_bad_fork()) return;
    try {
      Base::free(context);
    } catch (const std::exception& failure) {
      TORCH_WARN("pinned memory was not given back: ", failure.what());
    }
  }

  void copy_data(void* dest, const void* src, std::size_t count) const override { std::memcpy(dest, src, count); }

 private:
  using Clock = std::chrono::steady_clock;
  static int64_t microseconds_since(Clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
  }

  void allocate_host_memory(size_t size, void** ptr) override {
    const auto start = Clock::now();
    const Device& owner = device(device_to_ask());
    check(owner, owner.api->host_alloc(owner.handle, size, ptr), "allocating pinned memory");
    const auto address = reinterpret_cast<uintptr_t>(*ptr);
    {
      std::unique_lock lock(ranges().mutex);
      ranges().by_start[address] = {address + size, owner.index};
    }
    std::lock_guard lock(stats_.timing_mutex_);
    stats_.host_alloc_time.increase(microseconds_since(start));
  }

  void free_block(Block* block) override {
    const auto start = Clock::now();
    const c10::DeviceIndex index = ranges().find(block->ptr_);
    if (index < 0) return;
    {
      std::unique_lock lock(ranges().mutex);
      ranges().by_start.erase(reinterpret_cast<uintptr_t>(block->ptr_));
    }
    const Device& owner = opened_device(index);
    check(owner, owner.api->host_free(owner.handle, block->ptr_), "freeing pinned memory");
    std::lock_guard lock(stats_.timing_mutex_);
    stats_.host_free_time.increase(microseconds_since(start));
  }

  void record_stream(std::optional<std::vector<Event>>& events, c10::Stream stream) override {
    Event event(stream.device_index(), /*timing=*/false);
    event.record(stream);
    events->push_back(std::move(event));
  }

  bool query_event(Event& event) override { return event.query(); }
  c10::Stream get_current_stream() const override { return current_stream(); }
  bool stream_is_capturing(c10::Stream) const override { return false; }
};

void delete_pinned(void* context);

struct NPUHostAllocator final : at::CachingHostAllocatorInterface<NPUHostAllocatorImpl, delete_pinned> {};

NPUHostAllocator& pinned_allocator() {
  static auto* allocator = new NPUHostAllocator;
  return *allocator;
}

void delete_pinned(void* context) {
  pinned_allocator().free(context);
}

const bool registered = (at::setHostAllocator(c10::DeviceType::PrivateUse1, &pinned_allocator()), true);

}  // namespace

at::HostAllocator* host_allocator() {
  return &pinned_allocator();
}

bool is_pinned(const void* ptr) noexcept {
  return ptr && ranges().find(ptr) >= 0;
}

bool is_pinned_for(const void* ptr, c10::DeviceIndex device) noexcept {
  const c10::DeviceIndex owner = ptr ? ranges().find(ptr) : c10::DeviceIndex{-1};
  return owner >= 0 && is_opened(device) && opened_device(owner).instance == opened_device(device).instance;
}

}  // namespace torch_npu
