/* f16 and bf16. A NaN becomes the positive quiet one; rounding is to nearest, ties to even. */
#ifndef PROGRAM_HALF_H
#define PROGRAM_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float float_of(uint32_t bits) {
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}
static inline uint32_t bits_of(float value) {
  uint32_t out;
  memcpy(&out, &value, sizeof out);
  return out;
}

static inline float f16_to_f32(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7fffu;
  if (magnitude > 0x7c00u) return float_of(0x7fc00000u);
  if (magnitude == 0x7c00u) return float_of(sign | 0x7f800000u);
  if (magnitude >= 0x400u) return float_of(sign | ((magnitude << 13) + (112u << 23)));
  const float small = (float)magnitude * 0x1p-24f; /* zero or subnormal */
  return sign ? -small : small;
}

static inline float bf16_to_f32(uint16_t half) {
  const float out = float_of((uint32_t)half << 16);
  return out == out ? out : float_of(0x7fc00000u);
}

static inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = bits_of(value), magnitude = bits & 0x7fffffffu;
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
  if (magnitude > 0x7f800000u) return 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u; /* 65520 and more round to infinity */
  if (magnitude < 0x38800000u)                         /* below 2^-14: a multiple of 2^-24. Adding 2^23 rounds it */
    return sign | (uint16_t)(bits_of(float_of(magnitude) * 0x1p24f + 0x1p23f) & 0x7ffu);
  return sign | (uint16_t)((magnitude + 0xfffu + (magnitude >> 13 & 1u) - (112u << 23)) >> 13);
}

static inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = bits_of(value);
  if (value != value) return 0x7fc0u;
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

#endif
