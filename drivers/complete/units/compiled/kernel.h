/* What a kernel calls: an instruction `op` of compute type `t` is the function op_t. This text stands in front of every
 * kernel, behind that of program/half.h. CHIP: what your compiler has for these. */
#ifndef UNITS_COMPILED_KERNEL_H
#define UNITS_COMPILED_KERNEL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef union scalar {
  int64_t i;
  uint64_t u;
  double f;
} scalar;

/* What a kernel is given: where each operand begins, its strides in bytes, the sizes to walk, and those of the command.
 */
typedef struct walk {
  char* at[64];
  int64_t stride[64][8];
  int64_t size[8], shape[8];
  const scalar* params;
} walk;

/* Elements need no alignment. */
#define ELEMENT(TYPE, NAME)                        \
  static inline TYPE read_##NAME(const char* at) { \
    TYPE v;                                        \
    memcpy(&v, at, sizeof v);                      \
    return v;                                      \
  }                                                \
  static inline void write_##NAME(char* at, TYPE v) { memcpy(at, &v, sizeof v); }
ELEMENT(uint8_t, u8)
ELEMENT(int8_t, i8)
ELEMENT(uint16_t, u16)
ELEMENT(int16_t, i16)
ELEMENT(uint32_t, u32)
ELEMENT(int32_t, i32)
ELEMENT(uint64_t, u64)
ELEMENT(int64_t, i64)
ELEMENT(float, f32)
ELEMENT(double, f64)

/* Conversions that C leaves open. */
static inline int64_t to_i64(double v) { return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN; }
static inline int32_t to_i32(double v) { return v > -0x1p31 - 1 && v < 0x1p31 ? (int32_t)v : INT32_MIN; }
static inline uint64_t to_u64(double v) { return v >= 0x1p63 && v < 0x1p64 ? (uint64_t)v : (uint64_t)to_i64(v); }
static inline float to_f32(double v) { return v == v ? (float)v : (float)NAN; }
static inline double to_f64(float v) { return v == v ? (double)v : (double)NAN; }

/* clang-format off: a line per group of instructions */
#define ONE(T, N, NAME, EXPR) \
  static inline T NAME##_##N(T x) { return (T)(EXPR); }
#define TWO(T, N, NAME, EXPR) \
  static inline T NAME##_##N(T x, T y) { return (T)(EXPR); }
#define ASK(T, N, NAME, EXPR) \
  static inline uint8_t NAME##_##N(T x, T y) { return (EXPR) != 0; }
#define ALL(T, N)                                                                                                  \
  ASK(T, N, eq, x == y)                                                                                            \
  ASK(T, N, ne, x != y)                                                                                            \
  ASK(T, N, lt, x < y) ASK(T, N, le, x <= y) ASK(T, N, gt, x > y) ASK(T, N, ge, x >= y) static inline T where_##N( \
      uint8_t x, T y, T z) {                                                                                       \
    return x ? y : z;                                                                                              \
  }

/* f32 and f64. F(f): the function of math.h for this type. */
#define REALS(T, N, F)                                                                                                \
  ALL(T, N)                                                                                                           \
  TWO(T, N, add, x + y)                                                                                               \
  TWO(T, N, sub, x - y)                                                                                               \
  TWO(T, N, mul, x* y) TWO(T, N, div, x / y) TWO(T, N, fmod, F(fmod)(x, y)) static inline T fma_##N(T x, T y, T z) {  \
    return F(fma)(x, y, z);                                                                                           \
  }                                                                                                                   \
  static inline T mod_##N(T x, T y) {                                                                                 \
    const T rest = F(fmod)(x, y);                                                                                     \
    return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;                                                      \
  }                                                                                                                   \
  static inline T floordiv_##N(T x, T y) {                                                                            \
    if (y == 0) return x / y;                                                                                         \
    const T rest = F(fmod)(x, y);                                                                                     \
    T q = (x - rest) / y;                                                                                             \
    if (rest != 0 && (y < 0) != (rest < 0)) q -= 1;                                                                   \
    if (q == 0) return F(copysign)(0, x / y);                                                                         \
    const T whole = F(floor)(q);                                                                                      \
    return q - whole > (T)0.5 ? whole + 1 : whole;                                                                    \
  }                                                                                                                   \
  ONE(T, N, neg, -x)                                                                                                  \
  ONE(T, N, abs, F(fabs)(x))                                                                                          \
  ONE(T, N, sign, (x > 0) - (x < 0)) TWO(T, N, min,                                                                   \
                                         x != x            ? x                                                        \
                                         : y != y || y < x ? y                                                        \
                                                           : x) TWO(T, N, max,                                        \
                                                                    x != x            ? x                             \
                                                                    : y != y || y > x ? y                             \
                                                                                      : x)                            \
      TWO(T, N, fmin, x != x || y < x ? y : x) TWO(T, N, fmax, x != x || y > x ? y : x) ONE(T, N, floor, F(floor)(x)) \
          ONE(T, N, ceil, F(ceil)(x)) ONE(T, N, round, F(nearbyint)(x)) ONE(T, N, trunc, F(trunc)(x))                 \
              ONE(T, N, sqrt, F(sqrt)(x)) ONE(T, N, reciprocal, 1 / x) TWO(T, N, copysign, F(copysign)(x, y))         \
                  TWO(T, N, nextafter, F(nextafter)(x, y)) static inline uint8_t                                      \
                  isnan_##N(T x) {                                                                                    \
    return x != x;                                                                                                    \
  }                                                                                                                   \
  static inline uint8_t isinf_##N(T x) { return isinf(x) != 0; }                                                      \
  static inline uint8_t signbit_##N(T x) { return signbit(x) != 0; }                                                  \
  ONE(T, N, rsqrt, 1 / sqrt((double)x))                                                                               \
  ONE(T, N, exp, exp((double)x))                                                                                      \
  ONE(T, N, exp2, exp2((double)x)) ONE(T, N, expm1, expm1((double)x)) ONE(T, N, log, log((double)x))                  \
      ONE(T, N, log2, log2((double)x)) ONE(T, N, log10, log10((double)x)) ONE(T, N, log1p, log1p((double)x))          \
          ONE(T, N, sin, sin((double)x)) ONE(T, N, cos, cos((double)x)) ONE(T, N, tan, tan((double)x))                \
              ONE(T, N, asin, asin((double)x)) ONE(T, N, acos, acos((double)x)) ONE(T, N, atan, atan((double)x))      \
                  ONE(T, N, sinh, sinh((double)x)) ONE(T, N, cosh, cosh((double)x)) ONE(T, N, tanh, tanh((double)x))  \
                      ONE(T, N, asinh, asinh((double)x)) ONE(T, N, acosh, acosh((double)x))                           \
                          ONE(T, N, atanh, atanh((double)x)) ONE(T, N, erf, erf((double)x))                           \
                              ONE(T, N, erfc, erfc((double)x)) ONE(T, N, sigmoid, 1 / (1 + exp(-(double)x)))          \
                                  TWO(T, N, atan2, atan2((double)x, (double)y))                                       \
                                      TWO(T, N, hypot, hypot((double)x, (double)y))                                   \
                                          TWO(T, N, pow, pow((double)x, (double)y))
#define F32(X) X##f
#define F64(X) X
REALS(float, f32, F32)
REALS(double, f64, F64)

/* Integers compute in the unsigned type U, where overflow wraps. */
#define INTEGERS(T, U, N, IS_SIGNED)                                                                                  \
  ALL(T, N)                                                                                                           \
  TWO(T, N, add, (U)x + (U)y)                                                                                         \
  TWO(T, N, sub, (U)x - (U)y) TWO(T, N, mul, (U)x*(U)y) static inline T fma_##N(T x, T y, T z) {                      \
    return (T)((U)x * (U)y + (U)z);                                                                                   \
  }                                                                                                                   \
  TWO(T, N, div, y == 0 ? 0 : IS_SIGNED && y == (T) - 1 ? (T)(0 - (U)x) : (T)(x / y))                                 \
  TWO(T, N, fmod, y == 0 || (IS_SIGNED && y == (T) - 1) ? 0 : (T)(x % y))                                             \
  static inline int turns_##N(T x, T y) {                                                                             \
    const T rest = fmod_##N(x, y);                                                                                    \
    return IS_SIGNED && rest != 0 && ((int64_t)rest < 0) != ((int64_t)y < 0);                                         \
  }                                                                                                                   \
  TWO(T, N, floordiv, (U)div_##N(x, y) - (U)turns_##N(x, y))                                                          \
  TWO(T, N, mod, (U)fmod_##N(x, y) + (turns_##N(x, y) ? (U)y : 0))                                                    \
  ONE(T, N, neg, 0 - (U)x)                                                                                            \
  ONE(T, N, abs, IS_SIGNED && (int64_t)x < 0 ? 0 - (U)x : (U)x)                                                       \
  ONE(T, N, sign, (x > 0) - (IS_SIGNED && (int64_t)x < 0))                                                            \
  TWO(T, N, min, y < x ? y : x) TWO(T, N, max, y > x ? y : x) TWO(T, N, fmin, y < x ? y : x)                          \
      TWO(T, N, fmax, y > x ? y : x) TWO(T, N, and, (U)x&(U)y) TWO(T, N, or, (U)x | (U)y) TWO(T, N, xor, (U)x ^ (U)y) \
          ONE(T, N, not, ~(U)x) TWO(T, N, shl, (uint64_t)y < sizeof(T) * 8 ? (T)(U)((uint64_t)x << y) : 0)            \
              TWO(T, N, shr,                                                                                          \
                  (uint64_t)y < sizeof(T) * 8   ? (T)(x >> y)                                                         \
                  : IS_SIGNED && (int64_t)x < 0 ? (T) - 1                                                             \
                                                : 0) static inline uint8_t                                            \
              signbit_##N(T x) {                                                                                      \
    return IS_SIGNED && (int64_t)x < 0;                                                                               \
  }
INTEGERS(int32_t, uint32_t, i32, 1)
INTEGERS(int64_t, uint64_t, i64, 1)
INTEGERS(uint64_t, uint64_t, u64, 0)

ALL(uint8_t, bool)
TWO(uint8_t, bool, and, x& y)
TWO(uint8_t, bool, or, x | y)
TWO(uint8_t, bool, xor, x ^ y)
TWO(uint8_t, bool, min, x& y)
TWO(uint8_t, bool, max, x | y)
ONE(uint8_t, bool, not, !x)
/* clang-format on */

#endif
