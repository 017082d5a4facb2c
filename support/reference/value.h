// A value inside a program, and the conversions between storage and compute types (docs/isa.md, "Conversions").
#pragma once
#include <cstdint>
#include <limits>

#include "npu/command.h"

namespace npu {

// The member in use follows from the compute type: BOOL and I32 use i (I32 sign-extended, BOOL 0 or 1), I64 i, U64 u.
union Value {
  int64_t i;
  uint64_t u;
  float f32;
  double f64;
};

// A NaN becomes the positive quiet one without payload.
template <typename T>
T quiet(T value) {
  return value == value ? value : std::numeric_limits<T>::quiet_NaN();
}

float f16_to_f32(uint16_t bits);
float bf16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);   // nearest even; a NaN becomes 0x7e00
uint16_t f32_to_bf16(float value);  // nearest even; a NaN becomes 0x7fc0

Value convert(Value value, int from, int to);                  // between compute types
Value load_value(const void* memory, int dtype, int to);       // storage -> compute
void store_value(void* memory, int dtype, Value v, int from);  // compute -> storage
Value scalar_value(npu_scalar scalar, int to);                 // a constant or parameter as compute type `to`

}  // namespace npu
