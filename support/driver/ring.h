// The queue of a stream: records of any length, packed one behind the other in a circle of bytes. One producer (under
// the stream's submit lock) and one consumer (whoever holds the consumer role). A record stays in place while it runs.
#pragma once
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <new>

namespace npu::driver {

// Begins every record. Skip fills the end of the circle where the next record did not fit.
struct Record {
  enum Type : uint32_t { kSkip, kCommand, kTransfer, kWait, kStamp };
  uint32_t bytes = 0;
  Type type = kSkip;
  uint64_t seq = 0;
};

class Ring {
 public:
  static constexpr uint64_t kSize = 1 << 20;
  static constexpr uint64_t kAlign = 16;

  Ring() = default;
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    if (data_) munmap(data_, kSize);
  }

  bool create() {
    if (data_) return true;
    void* at = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return false;
    data_ = static_cast<char*>(at);
    return true;
  }

  // Producer: room for a record of `bytes`, or nullptr while there is none. publish() hands it over.
  void* reserve(uint64_t bytes) {
    bytes = (bytes + kAlign - 1) / kAlign * kAlign;
    const uint64_t tail = tail_.load(std::memory_order_relaxed), head = head_.load(std::memory_order_acquire);
    const uint64_t to_end = kSize - tail % kSize;
    const uint64_t skip = bytes > to_end ? to_end : 0;
    if (tail + skip + bytes - head > kSize) return nullptr;
    if (skip) {
      Record* record = new (data_ + tail % kSize) Record;
      record->bytes = static_cast<uint32_t>(skip);
    }
    next_ = tail + skip + bytes;
    reserved_ = static_cast<uint32_t>(bytes);
    return data_ + (tail + skip) % kSize;
  }
  uint32_t reserved() const { return reserved_; }  // what the record's `bytes` must say
  void publish() { tail_.store(next_, std::memory_order_release); }

  bool empty() const { return head_.load(std::memory_order_acquire) == tail_.load(std::memory_order_acquire); }

  // Consumer: the oldest record, or nullptr.
  Record* front() {
    for (;;) {
      const uint64_t head = head_.load(std::memory_order_relaxed);
      if (head == tail_.load(std::memory_order_acquire)) return nullptr;
      Record* record = reinterpret_cast<Record*>(data_ + head % kSize);
      if (record->type != Record::kSkip) return record;
      pop(record->bytes);
    }
  }
  void pop(uint32_t bytes) { head_.store(head_.load(std::memory_order_relaxed) + bytes, std::memory_order_release); }

 private:
  char* data_ = nullptr;
  uint64_t next_ = 0;
  uint32_t reserved_ = 0;
  alignas(64) std::atomic<uint64_t> tail_{0};
  alignas(64) std::atomic<uint64_t> head_{0};
};

}  // namespace npu::driver
