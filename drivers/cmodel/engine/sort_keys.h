// Keys of SORT as unsigned integers whose order is the order asked for.
#pragma once
#include <cstdint>
#include <cstring>

#include "npu/command.h"
#include "support/program/program.h"

namespace cmodel {

// Floats: NaNs are one value above infinity and -0 equals 0, as in a comparison. Without branches.
template <class Bits>
Bits real_key(Bits bits, Bits infinity) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1)), kAll = static_cast<Bits>(~Bits{0});
  bits = bits == kSign ? Bits{0} : bits;
  const Bits down = static_cast<Bits>(~bits), up = static_cast<Bits>(bits | kSign);
  const Bits ordered = bits & kSign ? down : up;
  return static_cast<Bits>(bits & ~kSign) > infinity ? kAll : ordered;
}

// Signed integers.
template <class Bits>
Bits signed_key(Bits bits) {
  return static_cast<Bits>(bits ^ Bits{1} << (8 * sizeof(Bits) - 1));
}

// Keys of n values that lie `step` bytes apart; `flip` turns their order round.
template <class Bits, class Key, class Rule>
void keys_by(Rule rule, Key* out, const char* keys, int64_t step, uint64_t flip, int64_t n) {
  const auto all = [&](int64_t apart) {
    for (int64_t i = 0; i < n; ++i) {
      Bits bits;
      std::memcpy(&bits, keys + i * apart, sizeof bits);
      out[i] = static_cast<Key>(static_cast<Bits>(rule(bits)) ^ static_cast<Bits>(flip));
    }
  };
  if (step == sizeof(Bits))
    all(sizeof(Bits));  // a constant, so that it becomes SIMD code
  else
    all(step);
}

// Keys of a row, in words that hold them.
template <class Key>
void keys_of(Key* out, const char* keys, int64_t step, int dtype, uint64_t flip, int64_t n) {
  const auto as = [&]<class Bits>(Bits, auto rule) { keys_by<Bits>(rule, out, keys, step, flip, n); };
  const auto plain = [](auto bits) { return bits; };
  const auto integer = [](auto bits) { return signed_key(bits); };
  switch (dtype) {
    case NPU_BOOL:
      return as(uint8_t(), [](uint8_t bits) { return uint8_t{bits != 0}; });
    case NPU_U8:
      return as(uint8_t(), plain);
    case NPU_I8:
      return as(uint8_t(), integer);
    case NPU_U16:
      return as(uint16_t(), plain);
    case NPU_I16:
      return as(uint16_t(), integer);
    case NPU_F16:
      return as(uint16_t(), [](uint16_t bits) { return real_key<uint16_t>(bits, 0x7c00); });
    case NPU_BF16:
      return as(uint16_t(), [](uint16_t bits) { return real_key<uint16_t>(bits, 0x7f80); });
    case NPU_U32:
      return as(uint32_t(), plain);
    case NPU_I32:
      return as(uint32_t(), integer);
    case NPU_F32:
      return as(uint32_t(), [](uint32_t bits) { return real_key<uint32_t>(bits, 0x7f800000); });
    case NPU_U64:
      return as(uint64_t(), plain);
    case NPU_I64:
      return as(uint64_t(), integer);
    default:
      return as(uint64_t(), [](uint64_t bits) { return real_key<uint64_t>(bits, uint64_t{0x7ff} << 52); });
  }
}

}  // namespace cmodel
