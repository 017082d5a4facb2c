// Scratch memory for those who have no cache of device memory.
#pragma once
#include <bit>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "support/legalise/legaliser.h"

namespace npu::legalise {

// Scratch of one device: what a stream gave back serves its next request of that size class. Freed when the stream is.
class StreamMemory : public Memory {
 public:
  StreamMemory(const npu_driver& driver, npu_device* device) : driver_(driver), device_(device) {}

  npu_status take(npu_stream* stream, uint64_t bytes, npu_addr* out) override {
    const uint64_t size = std::bit_ceil(bytes);
    std::lock_guard lock(mutex_);
    std::vector<npu_addr>& free = spare_[stream][size];
    if (!free.empty()) {
      *out = free.back();
      free.pop_back();
    } else if (const npu_status status = driver_.memory_alloc(device_, size, out); status != NPU_OK) {
      return status;
    }
    sizes_[*out] = size;
    return NPU_OK;
  }

  void give(npu_stream* stream, npu_addr addr) override {
    std::lock_guard lock(mutex_);
    spare_[stream][sizes_[addr]].push_back(addr);
  }

  // The stream's work is done.
  void forget(npu_stream* stream) {
    std::lock_guard lock(mutex_);
    for (const auto& [size, free] : spare_[stream])
      for (const npu_addr addr : free) driver_.memory_free(device_, addr);
    spare_.erase(stream);
  }

 private:
  const npu_driver& driver_;
  npu_device* device_;
  std::mutex mutex_;
  std::unordered_map<npu_stream*, std::unordered_map<uint64_t, std::vector<npu_addr>>> spare_;
  std::unordered_map<npu_addr, uint64_t> sizes_;
};

}  // namespace npu::legalise
