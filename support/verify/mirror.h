// What a device's memory should hold, kept on the host: contents, live allocations, and their addresses on each side.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include "support/verify/footprint.h"

namespace npu {

class Mirror {
 public:
  // New memory is all zeros, here and, as soon as it is used, on every side. addr[0] is the address that callers use.
  void add(const std::vector<npu_addr>& addr, uint64_t size);
  bool remove(npu_addr addr);
  std::vector<npu_addr> sides(npu_addr addr) const;  // of the allocation that begins there; empty if there is none

  // Host bytes of [addr, addr + size), or nullptr if that is not inside one allocation.
  std::byte* find(npu_addr addr, uint64_t size);
  Extent allocation(npu_addr addr) const;  // around the address
  // The parts around [addr, addr + size) that were never asked for: the caller makes them zeros on every side.
  std::vector<Extent> fresh(npu_addr addr, uint64_t size);
  // The same place on another side; an address outside every allocation stays itself.
  npu_addr on(size_t side, npu_addr addr) const;

 private:
  struct Unmap {
    size_t size;
    void operator()(std::byte* bytes) const;
  };
  struct Block {
    std::vector<npu_addr> addr;
    uint64_t size = 0;
    std::unique_ptr<std::byte, Unmap> bytes;
    std::vector<bool> used;  // by chunk
  };
  static constexpr uint64_t kChunk = 1 << 18;
  std::map<npu_addr, Block>::const_iterator around(npu_addr addr) const;
  std::map<npu_addr, Block> blocks_;
};

}  // namespace npu
