// How compiled loops are given what they read, and what they have added up.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "drivers/cmodel/jit/jit.h"

namespace cmodel {

constexpr int kLanes = 16;

// As many copies of one value as a loop reads at once, for inputs that do not vary along a row.
struct alignas(64) Copies {
  static constexpr int kCount = 2 * kLanes;
  char bytes[4 * kCount];

  void set(const char* from, bool flag) {
    if (flag) {
      std::memset(bytes, *from, kCount);
      return;
    }
    float value;
    std::memcpy(&value, from, sizeof value);
    float all[kCount];
    std::fill_n(all, kCount, value);
    std::memcpy(bytes, all, sizeof all);
  }
};

// The sum of a loop's sixteen chains.
inline double total(const float* lanes) {
  double sum[4] = {};
  for (int i = 0; i < kLanes; i += 4)
    for (int k = 0; k < 4; ++k) sum[k] += static_cast<double>(lanes[i + k]);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// The part of a loop's Storage that says how this pointer's values lie in memory.
inline uint64_t storage_bits(int dtype, int pointer) {
  return uint64_t{dtype == NPU_BF16 ? kBFloat : dtype == NPU_F16 ? kHalf : kOwn} << (2 * pointer);
}

}  // namespace cmodel
