// Functions that the C library does not have.
#include <cmath>
#include <limits>

#include "support/reference/evaluate.h"

namespace npu {

double digamma(double x) {
  constexpr double kPi = 3.14159265358979323846;
  if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
  if (x < 0) {
    double whole;
    const double fraction = std::modf(x, &whole);
    if (fraction == 0) return std::numeric_limits<double>::quiet_NaN();  // a pole
    return digamma(1 - x) - kPi / std::tan(kPi * fraction);              // reflection
  }
  double shift = 0;
  while (x < 10) {  // recurrence, up to where the asymptotic series is exact enough
    shift -= 1 / x;
    x += 1;
  }
  const double y = 1 / (x * x);
  // B(2k) / (2k), k = 1 .. 7
  const double series =
      y *
      (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y * (1.0 / 132 - y * (691.0 / 32760 - y / 12))))));
  return shift + std::log(x) - 0.5 / x - series;
}

double erfinv(double x) {
  if (!(std::fabs(x) <= 1)) return std::numeric_limits<double>::quiet_NaN();
  if (std::fabs(x) == 1) return std::copysign(std::numeric_limits<double>::infinity(), x);
  if (x == 0) return x;
  // A first guess within 1 % (Winitzki's formula), then Halley steps on erf; near 1 on erfc, which keeps its digits
  // there.
  constexpr double kPi = 3.14159265358979323846, kA = 0.147;
  const double ax = std::fabs(x);
  const double l = std::log1p(-ax * ax), t = 2 / (kPi * kA) + l / 2;
  double y = std::sqrt(std::sqrt(t * t - l / kA) - t);
  if (ax < 1e-3) y = ax * std::sqrt(kPi) / 2;  // the guess above cancels for tiny arguments
  for (int step = 0; step < 4; ++step) {
    const double error = ax < 0.5 ? std::erf(y) - ax : (1 - ax) - std::erfc(y);
    const double slope = 2 / std::sqrt(kPi) * std::exp(-y * y);
    const double newton = error / slope;
    y -= newton / (1 + y * newton);
  }
  return std::copysign(y, x);
}

void philox(uint64_t seed, uint64_t offset, uint64_t subsequence, uint32_t out[4]) {
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  uint32_t x[4] = {static_cast<uint32_t>(offset), static_cast<uint32_t>(offset >> 32),
                   static_cast<uint32_t>(subsequence), static_cast<uint32_t>(subsequence >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p = uint64_t{0xD2511F53} * x[0], q = uint64_t{0xCD9E8D57} * x[2];
    const uint32_t next[4] = {static_cast<uint32_t>(q >> 32) ^ x[1] ^ key[0], static_cast<uint32_t>(q),
                              static_cast<uint32_t>(p >> 32) ^ x[3] ^ key[1], static_cast<uint32_t>(p)};
    for (int i = 0; i < 4; ++i) x[i] = next[i];
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  for (int i = 0; i < 4; ++i) out[i] = x[i];
}

}  // namespace npu
