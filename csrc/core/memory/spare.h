// Memory that was given back and serves the next request of about its size: fresh pages cost more than to fill them.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace torch_npu {

template <class Block>
class Spare {
 public:
  // Bytes of a block for `size` of them: at most an eighth more, or a page.
  static uint64_t rounded(uint64_t size) {
    const uint64_t step = std::max<uint64_t>(std::bit_ceil(size) / 16, 4096);
    return (size + step - 1) / step * step;
  }

  std::optional<Block> take(uint64_t size) {
    const auto found = blocks_.find(rounded(size));
    if (found == blocks_.end()) return std::nullopt;
    bytes_ -= found->first;
    return blocks_.extract(found).mapped();
  }

  // Returns what has to be freed: everything that lies here, once it is too much. Sizes have changed, then.
  std::vector<Block> give_back(uint64_t size, Block block) {
    std::vector<Block> old;
    if (bytes_ + rounded(size) > kMost) old = take_all();
    if (rounded(size) > kMost) {
      old.push_back(block);
    } else {
      blocks_.emplace(rounded(size), block);
      bytes_ += rounded(size);
    }
    return old;
  }

  std::vector<Block> take_all() {
    std::vector<Block> all;
    for (const auto& [bytes, block] : blocks_) all.push_back(block);
    blocks_.clear();
    bytes_ = 0;
    return all;
  }

 private:
  static constexpr uint64_t kMost = uint64_t{1} << 28;  // bytes

  std::multimap<uint64_t, Block> blocks_;
  uint64_t bytes_ = 0;
};

}  // namespace torch_npu
