#include "program/convert.h"

#include "program/half.h"

value lane_get(const lanes* from, int i, int compute) {
  value v = {.u64 = 0};
  memcpy(&v, (const char*)from + i * lane_width(compute), (size_t)lane_width(compute));
  return v;
}

void lane_put(lanes* to, int i, int compute, value v) {
  memcpy((char*)to + i * lane_width(compute), &v, (size_t)lane_width(compute));
}

void lane_spread(lanes* lane, int n, int compute) {
  const value v = lane_get(lane, 0, compute);
  for (int i = 1; i < n; i++) lane_put(lane, i, compute, v);
}

/* Towards zero; what does not fit, and a NaN, becomes the smallest integer. */
static int64_t to_i64(double v) { return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN; }
static int32_t to_i32(double v) { return v > -0x1p31 - 1 && v < 0x1p31 ? (int32_t)v : INT32_MIN; }
static uint64_t to_u64(double v) { return v >= 0x1p63 && v < 0x1p64 ? (uint64_t)v : (uint64_t)to_i64(v); }
static float to_f32(double v) { return v == v ? (float)v : float_of(0x7fc00000u); }
static double to_f64(float v) { return v == v ? (double)v : (double)NAN; }

/* out[i] = EXPR of v = in[i], in the arrays of two types. */
#define EACH(OUT, IN, EXPR)                      \
  for (int i = 0; i < n; i++) {                  \
    const __typeof__(in->IN[0]) v = in->IN[i];   \
    out->OUT[i] = (__typeof__(out->OUT[0]))EXPR; \
  }                                              \
  break

/* From an integer type or bool: integers wrap, floats are rounded once. */
#define FROM_INTEGER(IN)                  \
  switch (to) {                           \
    case NPU_BOOL: EACH(b, IN, (v != 0)); \
    case NPU_I32: EACH(i32, IN, v);       \
    case NPU_I64: EACH(i64, IN, v);       \
    case NPU_U64: EACH(u64, IN, v);       \
    case NPU_F32: EACH(f32, IN, v);       \
    default: EACH(f64, IN, v);            \
  }                                       \
  break

void convert(int n, lanes* out, int to, const lanes* in, int from) {
  switch (from) {
    case NPU_BOOL: FROM_INTEGER(b);
    case NPU_I32: FROM_INTEGER(i32);
    case NPU_I64: FROM_INTEGER(i64);
    case NPU_U64: FROM_INTEGER(u64);
    case NPU_F32:
      switch (to) {
        case NPU_BOOL: EACH(b, f32, (v != 0));
        case NPU_I32: EACH(i32, f32, to_i32(v));
        case NPU_I64: EACH(i64, f32, to_i64(v));
        case NPU_U64: EACH(u64, f32, to_u64(v));
        default: EACH(f64, f32, to_f64(v));
      }
      break;
    default:
      switch (to) {
        case NPU_BOOL: EACH(b, f64, (v != 0));
        case NPU_I32: EACH(i32, f64, to_i32(v));
        case NPU_I64: EACH(i64, f64, to_i64(v));
        case NPU_U64: EACH(u64, f64, to_u64(v));
        default: EACH(f32, f64, to_f32(v));
      }
  }
}

void broadcast(int n, lanes* out, int type, npu_scalar scalar) {
  lanes one;
  const int from = dtype_class(type) == IS_FLOAT ? NPU_F64 : NPU_I64;
  one.u64[0] = scalar.u;
  if (type == from)
    out->u64[0] = scalar.u;
  else
    convert(1, out, type, &one, from);
  lane_spread(out, n, type);
}

/* memcpy because elements need no alignment beyond a byte. */
#define WIDEN(TYPE, OUT, EXPR)                                   \
  if (offsets) {                                                 \
    for (int i = 0; i < n; i++) {                                \
      TYPE v;                                                    \
      memcpy(&v, at + offsets[i] * (int64_t)sizeof v, sizeof v); \
      out->OUT[i] = EXPR;                                        \
    }                                                            \
  } else {                                                       \
    for (int i = 0; i < n; i++) {                                \
      TYPE v;                                                    \
      memcpy(&v, at + (int64_t)i * (int64_t)sizeof v, sizeof v); \
      out->OUT[i] = EXPR;                                        \
    }                                                            \
  }                                                              \
  break

void widen(int n, lanes* out, int dtype, const char* at, const int64_t* offsets) {
  switch (dtype) {
    case NPU_BOOL: WIDEN(uint8_t, b, v != 0);
    case NPU_U8: WIDEN(uint8_t, i32, v);
    case NPU_I8: WIDEN(int8_t, i32, v);
    case NPU_U16: WIDEN(uint16_t, i32, v);
    case NPU_I16: WIDEN(int16_t, i32, v);
    case NPU_U32: WIDEN(uint32_t, i64, v);
    case NPU_I32: WIDEN(int32_t, i32, v);
    case NPU_U64: WIDEN(uint64_t, u64, v);
    case NPU_I64: WIDEN(int64_t, i64, v);
    case NPU_F16: WIDEN(uint16_t, f32, f16_to_f32(v));
    case NPU_BF16: WIDEN(uint16_t, f32, bf16_to_f32(v));
    case NPU_F32: WIDEN(float, f32, v);
    default: WIDEN(double, f64, v);
  }
}

#define NARROW(TYPE, IN, EXPR)                                                  \
  if (offsets) {                                                                \
    for (int i = 0; i < n; i++) {                                               \
      const __typeof__(in->IN[0]) v = in->IN[i];                                \
      const TYPE stored = (TYPE)EXPR;                                           \
      memcpy(at + offsets[i] * (int64_t)sizeof stored, &stored, sizeof stored); \
    }                                                                           \
  } else {                                                                      \
    for (int i = 0; i < n; i++) {                                               \
      const __typeof__(in->IN[0]) v = in->IN[i];                                \
      const TYPE stored = (TYPE)EXPR;                                           \
      memcpy(at + (int64_t)i * (int64_t)sizeof stored, &stored, sizeof stored); \
    }                                                                           \
  }                                                                             \
  break

void narrow(int n, const lanes* in, int dtype, char* at, const int64_t* offsets) {
  switch (dtype) {
    case NPU_BOOL: NARROW(uint8_t, b, v);
    case NPU_U8:
    case NPU_I8: NARROW(uint8_t, i32, v);
    case NPU_U16:
    case NPU_I16: NARROW(uint16_t, i32, v);
    case NPU_U32: NARROW(uint32_t, i64, v);
    case NPU_I32: NARROW(int32_t, i32, v);
    case NPU_U64: NARROW(uint64_t, u64, v);
    case NPU_I64: NARROW(int64_t, i64, v);
    case NPU_F16: NARROW(uint16_t, f32, f32_to_f16(v));
    case NPU_BF16: NARROW(uint16_t, f32, f32_to_bf16(v));
    case NPU_F32: NARROW(float, f32, v);
    default: NARROW(double, f64, v);
  }
}

void load_lanes(int n, lanes* out, int type, int dtype, const char* at, const int64_t* offsets) {
  const int exact = compute_dtype(dtype);
  if (exact == type) {
    widen(n, out, dtype, at, offsets);
  } else {
    lanes loaded;
    widen(n, &loaded, dtype, at, offsets);
    convert(n, out, type, &loaded, exact);
  }
}

void store_lanes(int n, const lanes* in, int type, int dtype, char* at, const int64_t* offsets) {
  const int exact = compute_dtype(dtype);
  if (exact == type) {
    narrow(n, in, dtype, at, offsets);
  } else {
    lanes exactly;
    convert(n, &exactly, exact, in, type);
    narrow(n, &exactly, dtype, at, offsets);
  }
}
