#include "support/reference/value.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "support/program/program.h"

namespace npu {
namespace {

template <typename T>
T read(const void* memory) {
  T out;
  std::memcpy(&out, memory, sizeof(T));
  return out;
}

template <typename T>
void write(void* memory, T value) {
  std::memcpy(memory, &value, sizeof(T));
}

// Towards zero; what does not fit becomes the smallest integer, as x86 does.
int64_t to_i64(double v) {
  if (!(v >= -0x1p63 && v < 0x1p63)) return std::numeric_limits<int64_t>::min();
  return static_cast<int64_t>(v);
}

int64_t to_i32(double v) {
  if (!(v > -0x1p31 - 1 && v < 0x1p31)) return std::numeric_limits<int32_t>::min();
  return static_cast<int64_t>(v);
}

uint64_t to_u64(double v) {
  if (v >= 0x1p63 && v < 0x1p64) return static_cast<uint64_t>(v);
  return static_cast<uint64_t>(to_i64(v));
}

float to_f32(double v) {
  return std::isnan(v) ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(v);
}

int64_t wrap32(uint64_t v) {
  return static_cast<int32_t>(static_cast<uint32_t>(v));
}

Value from_float(double v, int to) {
  Value out{};
  switch (to) {
    case NPU_BOOL:
      out.i = !(v == 0);
      break;
    case NPU_I32:
      out.i = to_i32(v);
      break;
    case NPU_I64:
      out.i = to_i64(v);
      break;
    case NPU_U64:
      out.u = to_u64(v);
      break;
    case NPU_F32:
      out.f32 = to_f32(v);
      break;
    default:
      out.f64 = std::isnan(v) ? std::numeric_limits<double>::quiet_NaN() : v;
  }
  return out;
}

Value from_integer(Value v, bool is_unsigned, int to) {
  Value out{};
  switch (to) {
    case NPU_BOOL:
      out.i = v.u != 0;
      break;
    case NPU_I32:
      out.i = wrap32(v.u);
      break;
    case NPU_I64:
    case NPU_U64:
      out.u = v.u;
      break;
    case NPU_F32:
      out.f32 = is_unsigned ? static_cast<float>(v.u) : static_cast<float>(v.i);
      break;
    default:
      out.f64 = is_unsigned ? static_cast<double>(v.u) : static_cast<double>(v.i);
  }
  return out;
}

}  // namespace

float f16_to_f32(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
  float magnitude;
  if (exponent == 31)
    magnitude = fraction ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  else if (exponent == 0)
    magnitude = static_cast<float>(fraction) * 0x1p-24f;
  else
    magnitude = std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
  return bits & 0x8000 && !(exponent == 31 && fraction) ? -magnitude : magnitude;
}

float bf16_to_f32(uint16_t bits) {
  uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float out;
  std::memcpy(&out, &wide, sizeof(out));
  return std::isnan(out) ? std::numeric_limits<float>::quiet_NaN() : out;
}

uint16_t f32_to_f16(float value) {
  if (std::isnan(value)) return 0x7e00;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  if (magnitude < 0x1p-14f)  // subnormal: a multiple of 2^-24; nearbyint rounds half to even
    return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));
  bits &= 0x7fffffff;
  bits += 0xfff + ((bits >> 13) & 1);  // half to even; a carry runs into the exponent, as it should
  return sign | static_cast<uint16_t>((bits >> 13) - (112 << 10));
}

uint16_t f32_to_bf16(float value) {
  if (std::isnan(value)) return 0x7fc0;
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

Value convert(Value value, int from, int to) {
  if (from == to) return value;
  if (from == NPU_F32) return from_float(value.f32, to);
  if (from == NPU_F64) return from_float(value.f64, to);
  return from_integer(value, from == NPU_U64, to);
}

Value load_value(const void* memory, int dtype, int to) {
  Value v{};
  switch (dtype) {
    case NPU_BOOL:
      v.i = read<uint8_t>(memory) != 0;
      break;
    case NPU_U8:
      v.i = read<uint8_t>(memory);
      break;
    case NPU_I8:
      v.i = read<int8_t>(memory);
      break;
    case NPU_U16:
      v.i = read<uint16_t>(memory);
      break;
    case NPU_I16:
      v.i = read<int16_t>(memory);
      break;
    case NPU_U32:
      v.i = read<uint32_t>(memory);
      break;
    case NPU_I32:
      v.i = read<int32_t>(memory);
      break;
    case NPU_U64:
    case NPU_I64:
      v.u = read<uint64_t>(memory);
      break;
    case NPU_F16:
      v.f32 = f16_to_f32(read<uint16_t>(memory));
      break;
    case NPU_BF16:
      v.f32 = bf16_to_f32(read<uint16_t>(memory));
      break;
    case NPU_F32:
      v.f32 = read<float>(memory);
      break;
    default:
      v.f64 = read<double>(memory);
  }
  return convert(v, compute_dtype(dtype), to);
}

void store_value(void* memory, int dtype, Value value, int from) {
  const Value v = convert(value, from, compute_dtype(dtype));
  switch (dtype) {
    case NPU_BOOL:
    case NPU_U8:
    case NPU_I8:
      return write(memory, static_cast<uint8_t>(v.u));
    case NPU_U16:
    case NPU_I16:
      return write(memory, static_cast<uint16_t>(v.u));
    case NPU_U32:
    case NPU_I32:
      return write(memory, static_cast<uint32_t>(v.u));
    case NPU_U64:
    case NPU_I64:
      return write(memory, v.u);
    case NPU_F16:
      return write(memory, f32_to_f16(v.f32));
    case NPU_BF16:
      return write(memory, f32_to_bf16(v.f32));
    case NPU_F32:
      return write(memory, v.f32);
    default:
      return write(memory, v.f64);
  }
}

Value scalar_value(npu_scalar scalar, int to) {
  Value v{};
  if (to == NPU_F32 || to == NPU_F64) {
    v.f64 = scalar.f;
    return convert(v, NPU_F64, to);
  }
  v.i = scalar.i;
  return convert(v, NPU_I64, to);
}

}  // namespace npu
