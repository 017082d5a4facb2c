// Which bytes of a tensor's memory were written: all, none, or a bit for each.
#pragma once
#include <cstdint>
#include <vector>

namespace torch_npu::sanitizer {

class Written {
 public:
  explicit Written(uint64_t size = 0, bool all = false) : size_(size), all_(all) {}

  void set(uint64_t begin, uint64_t end);    // were written
  void clear(uint64_t begin, uint64_t end);  // hold something that nobody wrote
  // The first byte from `begin` on that was not written; `end` if all were.
  uint64_t first_unwritten(uint64_t begin, uint64_t end) const;
  uint64_t first_written(uint64_t begin, uint64_t end) const;
  bool all(uint64_t begin, uint64_t end) const { return first_unwritten(begin, end) == end; }
  bool none(uint64_t begin, uint64_t end) const { return first_written(begin, end) == end; }

 private:
  void fill(uint64_t begin, uint64_t end, bool value);
  uint64_t find(uint64_t begin, uint64_t end, bool value) const;

  uint64_t size_;
  bool all_;                    // while there are no bits
  std::vector<uint64_t> bits_;  // made by the first write that leaves a mixture
};

}  // namespace torch_npu::sanitizer
