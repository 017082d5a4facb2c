// Numbers for programs that run as compiled loops.
#pragma once
#include <cmath>
#include <cstring>
#include <random>

#include "tests/cpp/engine/engine_case.h"

namespace engine_test {

// Values with zeros of both signs, infinities and NaN among them.
inline std::vector<float> values(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-40f, 3e38f};
  std::vector<float> out(static_cast<size_t>(n));
  for (float& x : out)
    x = random() % 5 == 0 ? special[random() % 7] : static_cast<float>(static_cast<int>(random() % 161) - 80) / 8;
  return out;
}

// Bytes of these numbers in a storage type; what does not fit is cut off.
inline std::vector<unsigned char> stored(const std::vector<float>& numbers, int dtype) {
  std::vector<unsigned char> out;
  for (const float x : numbers) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    if (dtype == NPU_BF16) bits >>= 16;
    if (dtype == NPU_F16) {
      const _Float16 half = static_cast<_Float16>(x);
      uint16_t word;
      std::memcpy(&word, &half, sizeof word);
      bits = word;
    }
    for (int i = 0; i < (dtype == NPU_F32 ? 4 : 2); ++i) out.push_back(static_cast<unsigned char>(bits >> (8 * i)));
  }
  return out;
}

// Whole numbers so small that any order of addition is exact.
inline std::vector<float> small(int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
  return out;
}

inline std::vector<unsigned char> flags(int64_t n) {
  std::vector<unsigned char> out(static_cast<size_t>(n));
  for (size_t i = 0; i < out.size(); ++i) out[i] = i % 3 == 0 ? 0 : i % 5 == 0 ? 7 : 1;
  return out;
}

inline npu_scalar number(double x) {
  npu_scalar s{};
  s.f = x;
  return s;
}

}  // namespace engine_test
