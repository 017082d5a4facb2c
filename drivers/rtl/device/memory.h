// Who owns which part of device memory. First fit; the host asks rarely and for large pieces, which it splits itself.
#pragma once
#include <map>
#include <mutex>
#include <vector>

#include "npu/runtime.h"

namespace rtl {

constexpr uint64_t kAlignment = 512;

// Addresses of the contract are the NPU's own plus `window`, which no host pointer and no other device shares.
class Memory {
 public:
  Memory(npu_addr window, uint64_t first, uint64_t end) : window_(window), first_(first), end_(end) {}

  npu_addr alloc(uint64_t size);  // 0: no room
  bool free(npu_addr addr);
  void info(uint64_t* free_bytes, uint64_t* total_bytes);
  uint64_t own(npu_addr addr) const { return addr - window_; }  // the NPU's own address, whatever lies there
  // Live allocations that have a part between these addresses (one is enough); neighbours are one.
  struct Extent {
    npu_addr start;
    uint64_t size;
  };
  std::vector<Extent> around(npu_addr low, npu_addr high);
  // True if [addr, addr + size) lies inside one live allocation; `*out` is then the NPU's own address.
  bool find(npu_addr addr, uint64_t size, uint64_t* out);

 private:
  const npu_addr window_;
  const uint64_t first_, end_;
  std::mutex mutex_;
  std::map<uint64_t, uint64_t> blocks_;  // start and size
};

}  // namespace rtl
