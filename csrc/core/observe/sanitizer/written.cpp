#include "csrc/core/observe/sanitizer/written.h"

#include <algorithm>
#include <bit>

namespace torch_npu::sanitizer {

void Written::set(uint64_t begin, uint64_t end) {
  fill(begin, std::min(end, size_), true);
}

void Written::clear(uint64_t begin, uint64_t end) {
  fill(begin, std::min(end, size_), false);
}

void Written::fill(uint64_t begin, uint64_t end, bool value) {
  if (begin >= end || (bits_.empty() && all_ == value)) return;
  if (begin == 0 && end == size_) {
    all_ = value;
    bits_.clear();
    bits_.shrink_to_fit();
    return;
  }
  if (bits_.empty()) bits_.assign((size_ + 63) / 64, all_ ? ~uint64_t{0} : 0);
  while (begin < end) {
    const uint64_t word = begin / 64, from = begin % 64, count = std::min<uint64_t>(64 - from, end - begin);
    const uint64_t mask = (count == 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1) << from;
    bits_[word] = value ? bits_[word] | mask : bits_[word] & ~mask;
    begin += count;
  }
}

uint64_t Written::find(uint64_t begin, uint64_t end, bool value) const {
  if (begin >= end) return end;
  if (bits_.empty()) return all_ == value ? begin : end;
  const uint64_t last = std::min(end, size_);
  while (begin < last) {
    const uint64_t from = begin % 64;
    const uint64_t word = (value ? bits_[begin / 64] : ~bits_[begin / 64]) >> from;
    if (word) {
      const uint64_t found = begin + static_cast<uint64_t>(std::countr_zero(word));
      return found < last ? found : end;
    }
    begin += 64 - from;
  }
  return end;
}

uint64_t Written::first_unwritten(uint64_t begin, uint64_t end) const {
  return find(begin, end, false);
}

uint64_t Written::first_written(uint64_t begin, uint64_t end) const {
  return find(begin, end, true);
}

}  // namespace torch_npu::sanitizer
