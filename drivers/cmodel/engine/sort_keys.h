// Keys of SORT as unsigned integers whose order is the order asked for.
#pragma once
#include <cstdint>
#include <cstring>

#include "npu/command.h"
#include "support/program/program.h"

namespace cmodel {

// Floats: NaNs are one value above infinity and -0 equals 0, as in a comparison.
inline uint64_t real_key(uint64_t bits, uint64_t sign, uint64_t infinity, uint64_t all) {
  if ((bits & ~sign) > infinity) return all;
  if (bits == sign) bits = 0;
  return bits & sign ? ~bits & all : bits | sign;
}

inline uint64_t key_of(const char* p, int dtype) {
  switch (dtype) {
    case NPU_BOOL:
      return *p != 0;
    case NPU_U8:
      return static_cast<uint8_t>(*p);
    case NPU_I8:
      return static_cast<uint8_t>(*p) ^ 0x80u;
    default:
      break;
  }
  uint16_t h;
  uint32_t w;
  uint64_t d;
  std::memcpy(&h, p, sizeof h);
  switch (dtype) {
    case NPU_U16:
      return h;
    case NPU_I16:
      return h ^ 0x8000u;
    case NPU_F16:
      return real_key(h, 0x8000, 0x7c00, 0xffff);
    case NPU_BF16:
      return real_key(h, 0x8000, 0x7f80, 0xffff);
    default:
      break;
  }
  std::memcpy(&w, p, sizeof w);
  switch (dtype) {
    case NPU_U32:
      return w;
    case NPU_I32:
      return w ^ 0x80000000u;
    case NPU_F32:
      return real_key(w, 0x80000000u, 0x7f800000u, 0xffffffffu);
    default:
      break;
  }
  std::memcpy(&d, p, sizeof d);
  if (dtype == NPU_U64) return d;
  if (dtype == NPU_I64) return d ^ (uint64_t{1} << 63);
  return real_key(d, uint64_t{1} << 63, uint64_t{0x7ff} << 52, ~uint64_t{0});
}

// The same without branches, for dense keys of floating type. Bits is the word of one key.
template <class Bits, class Key>
void real_keys(Key* out, const char* keys, Bits infinity, uint64_t flip, int64_t n) {
  constexpr Bits kSign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1)), kAll = static_cast<Bits>(~Bits{0});
  for (int64_t i = 0; i < n; ++i) {
    Bits bits;
    std::memcpy(&bits, keys + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    bits = bits == kSign ? Bits{0} : bits;
    const Bits down = static_cast<Bits>(~bits), up = static_cast<Bits>(bits | kSign);
    const Bits ordered = bits & kSign ? down : up;
    const Bits key = static_cast<Bits>(bits & ~kSign) > infinity ? kAll : ordered;
    out[i] = static_cast<Bits>(key ^ static_cast<Bits>(flip));
  }
}

template <class Bits, class Key>
void integer_keys(Key* out, const char* keys, uint64_t flip, int64_t n) {
  const Bits change = static_cast<Bits>((Bits{1} << (8 * sizeof(Bits) - 1)) ^ flip);
  for (int64_t i = 0; i < n; ++i) {
    Bits bits;
    std::memcpy(&bits, keys + i * static_cast<int64_t>(sizeof bits), sizeof bits);
    out[i] = static_cast<Key>(bits ^ change);
  }
}

// Keys of a row, in words that hold them.
template <class Key>
void keys_of(Key* out, const char* keys, int64_t step, int dtype, uint64_t flip, int64_t n) {
  if (step == npu::dtype_size(dtype)) {
    switch (dtype) {
      case NPU_F32:
        return real_keys<uint32_t>(out, keys, 0x7f800000u, flip, n);
      case NPU_BF16:
        return real_keys<uint16_t>(out, keys, uint16_t{0x7f80}, flip, n);
      case NPU_F16:
        return real_keys<uint16_t>(out, keys, uint16_t{0x7c00}, flip, n);
      case NPU_I32:
        return integer_keys<uint32_t>(out, keys, flip, n);
      case NPU_I64:
        return integer_keys<uint64_t>(out, keys, flip, n);
      default:
        break;
    }
  }
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<Key>(key_of(keys + i * step, dtype) ^ flip);
}

}  // namespace cmodel
