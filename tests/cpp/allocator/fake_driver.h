// A driver in the test's own process that knows what a real one cannot tell: which memory its queued work still uses.
// It refuses to take back memory that is in use, and the test asks it whether reused memory was really free to reuse.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "npu/runtime.h"

// Work on a stream is numbered; a background thread completes it in order, a little later.
struct npu_stream {
  npu_device* device;
  std::atomic<uint64_t> given{0};
  std::atomic<uint64_t> done{0};
};

struct npu_event {
  std::atomic<npu_stream*> stream{nullptr};
  std::atomic<uint64_t> ticket{0};
};

struct npu_device {
  struct Use {
    uint64_t size;
    npu_stream* stream;
    uint64_t ticket;
  };
  explicit npu_device(uint64_t capacity);
  ~npu_device();

  npu_stream* new_stream();
  // Queued work on `stream` that reads or writes the memory.
  void use(npu_addr addr, uint64_t size, npu_stream* stream);
  // True if work of streams other than `stream` (which may be null) still uses the memory.
  bool in_use(npu_addr addr, uint64_t size, npu_stream* stream);
  uint64_t used() const { return used_.load(); }
  bool all_returned();  // no memory, no ranges

  std::atomic<bool> running{true};  // false: queued work stays queued
  std::atomic<uint64_t> violations{0};

  npu_status allocate(uint64_t size, npu_addr* out);
  npu_status release(npu_addr addr);
  npu_status reserve(uint64_t size, npu_addr* out);
  npu_status map(npu_addr addr, uint64_t size);
  npu_status unmap(npu_addr addr, uint64_t size);
  npu_status unreserve(npu_addr addr);
  uint64_t capacity() const { return capacity_; }

 private:
  bool in_use_locked(npu_addr addr, uint64_t size, npu_stream* stream);
  void work();

  const uint64_t capacity_;
  std::mutex mutex_;
  std::atomic<uint64_t> used_{0};
  npu_addr next_ = 0x1000'0000;
  std::map<npu_addr, uint64_t> allocations_, ranges_, pages_;  // pages_: mapped, by page
  std::multimap<npu_addr, Use> uses_;
  std::vector<npu_stream*> streams_;
  std::atomic<bool> stop_{false};
  std::thread worker_;
};

const npu_driver* fake_driver();
