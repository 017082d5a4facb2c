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

/* clang-format off */
#define ONE(T, N, NAME, EXPR) static inline T NAME##_##N(T x) { return (T)(EXPR); }
#define TWO(T, N, NAME, EXPR) static inline T NAME##_##N(T x, T y) { return (T)(EXPR); }
#define THREE(T, N, NAME, EXPR) static inline T NAME##_##N(T x, T y, T z) { return (T)(EXPR); }
#define ASK_ONE(T, N, NAME, EXPR) static inline uint8_t NAME##_##N(T x) { return (EXPR) != 0; }
#define ASK_TWO(T, N, NAME, EXPR) static inline uint8_t NAME##_##N(T x, T y) { return (EXPR) != 0; }

/* What every type has. */
#define ALL(T, N)                                                   \
  ASK_TWO(T, N, eq, x == y)                                         \
  ASK_TWO(T, N, ne, x != y)                                         \
  ASK_TWO(T, N, lt, x < y)                                          \
  ASK_TWO(T, N, le, x <= y)                                         \
  ASK_TWO(T, N, gt, x > y)                                          \
  ASK_TWO(T, N, ge, x >= y)                                         \
  static inline T where_##N(uint8_t x, T y, T z) { return x ? y : z; }

/* f32 and f64. F(f): the function of math.h for this type. */
#define REALS(T, N, F)                                              \
  ALL(T, N)                                                         \
  TWO(T, N, add, x + y)                                             \
  TWO(T, N, sub, x - y)                                             \
  TWO(T, N, mul, x * y)                                             \
  TWO(T, N, div, x / y)                                             \
  TWO(T, N, fmod, F(fmod)(x, y))                                    \
  THREE(T, N, fma, F(fma)(x, y, z))                                 \
  static inline T mod_##N(T x, T y) {                               \
    const T rest = F(fmod)(x, y);                                   \
    return rest != 0 && (y < 0) != (rest < 0) ? rest + y : rest;    \
  }                                                                 \
  static inline T floordiv_##N(T x, T y) {                          \
    if (y == 0) return x / y;                                       \
    const T rest = F(fmod)(x, y);                                   \
    T q = (x - rest) / y;                                           \
    if (rest != 0 && (y < 0) != (rest < 0)) q -= 1;                 \
    if (q == 0) return F(copysign)(0, x / y);                       \
    const T whole = F(floor)(q);                                    \
    return q - whole > (T)0.5 ? whole + 1 : whole;                  \
  }                                                                 \
  ONE(T, N, neg, -x)                                                \
  ONE(T, N, abs, F(fabs)(x))                                        \
  ONE(T, N, sign, (x > 0) - (x < 0))                                \
  TWO(T, N, min, x != x ? x : y != y || y < x ? y : x)              \
  TWO(T, N, max, x != x ? x : y != y || y > x ? y : x)              \
  TWO(T, N, fmin, x != x || y < x ? y : x)                          \
  TWO(T, N, fmax, x != x || y > x ? y : x)                          \
  ONE(T, N, floor, F(floor)(x))                                     \
  ONE(T, N, ceil, F(ceil)(x))                                       \
  ONE(T, N, round, F(nearbyint)(x))                                 \
  ONE(T, N, trunc, F(trunc)(x))                                     \
  ONE(T, N, sqrt, F(sqrt)(x))                                       \
  ONE(T, N, reciprocal, 1 / x)                                      \
  TWO(T, N, copysign, F(copysign)(x, y))                            \
  TWO(T, N, nextafter, F(nextafter)(x, y))                          \
  ASK_ONE(T, N, isnan, x != x)                                      \
  ASK_ONE(T, N, isinf, isinf(x))                                    \
  ASK_ONE(T, N, signbit, signbit(x))

/* Functions that a chip may approximate: in double, rounded once. */
#define FUNCTIONS(T, N)                                             \
  ONE(T, N, rsqrt, 1 / sqrt((double)x))                             \
  ONE(T, N, exp, exp((double)x))                                    \
  ONE(T, N, exp2, exp2((double)x))                                  \
  ONE(T, N, expm1, expm1((double)x))                                \
  ONE(T, N, log, log((double)x))                                    \
  ONE(T, N, log2, log2((double)x))                                  \
  ONE(T, N, log10, log10((double)x))                                \
  ONE(T, N, log1p, log1p((double)x))                                \
  ONE(T, N, sin, sin((double)x))                                    \
  ONE(T, N, cos, cos((double)x))                                    \
  ONE(T, N, tan, tan((double)x))                                    \
  ONE(T, N, asin, asin((double)x))                                  \
  ONE(T, N, acos, acos((double)x))                                  \
  ONE(T, N, atan, atan((double)x))                                  \
  ONE(T, N, sinh, sinh((double)x))                                  \
  ONE(T, N, cosh, cosh((double)x))                                  \
  ONE(T, N, tanh, tanh((double)x))                                  \
  ONE(T, N, asinh, asinh((double)x))                                \
  ONE(T, N, acosh, acosh((double)x))                                \
  ONE(T, N, atanh, atanh((double)x))                                \
  ONE(T, N, erf, erf((double)x))                                    \
  ONE(T, N, erfc, erfc((double)x))                                  \
  ONE(T, N, sigmoid, 1 / (1 + exp(-(double)x)))                     \
  TWO(T, N, atan2, atan2((double)x, (double)y))                     \
  TWO(T, N, hypot, hypot((double)x, (double)y))                     \
  TWO(T, N, pow, pow((double)x, (double)y))

/* Integers compute in the unsigned type U, where overflow wraps. BELOW(x): x < 0, where there is such. */
#define INTEGERS(T, U, N, BELOW)                                    \
  ALL(T, N)                                                         \
  TWO(T, N, add, (U)x + (U)y)                                       \
  TWO(T, N, sub, (U)x - (U)y)                                       \
  TWO(T, N, mul, (U)x * (U)y)                                       \
  THREE(T, N, fma, (U)x * (U)y + (U)z)                              \
  TWO(T, N, div, y == 0 ? 0 : BELOW(y) && y == (T)-1 ? (T)(0 - (U)x) : (T)(x / y)) \
  TWO(T, N, fmod, y == 0 || (BELOW(y) && y == (T)-1) ? 0 : (T)(x % y)) \
  static inline int turns_##N(T x, T y) {                           \
    const T rest = fmod_##N(x, y);                                  \
    return rest != 0 && BELOW(rest) != BELOW(y);                    \
  }                                                                 \
  TWO(T, N, floordiv, (U)div_##N(x, y) - (U)turns_##N(x, y))        \
  TWO(T, N, mod, (U)fmod_##N(x, y) + (turns_##N(x, y) ? (U)y : 0))  \
  ONE(T, N, neg, 0 - (U)x)                                          \
  ONE(T, N, abs, BELOW(x) ? 0 - (U)x : (U)x)                        \
  ONE(T, N, sign, (x > 0) - BELOW(x))                               \
  TWO(T, N, min, y < x ? y : x)                                     \
  TWO(T, N, max, y > x ? y : x)                                     \
  TWO(T, N, fmin, y < x ? y : x)                                    \
  TWO(T, N, fmax, y > x ? y : x)                                    \
  TWO(T, N, and, (U)x & (U)y)                                       \
  TWO(T, N, or, (U)x | (U)y)                                        \
  TWO(T, N, xor, (U)x ^ (U)y)                                       \
  ONE(T, N, not, ~(U)x)                                             \
  TWO(T, N, shl, (uint64_t)y < sizeof(T) * 8 ? (T)(U)((uint64_t)x << y) : 0) \
  TWO(T, N, shr, (uint64_t)y < sizeof(T) * 8 ? (T)(x >> y) : BELOW(x) ? (T)-1 : 0) \
  ASK_ONE(T, N, signbit, BELOW(x))
/* clang-format on */

#define F32(X) X##f
#define F64(X) X
REALS(float, f32, F32)
REALS(double, f64, F64)
FUNCTIONS(float, f32)
FUNCTIONS(double, f64)

#define BELOW_ZERO(x) ((x) < 0)
#define NEVER(x) ((void)(x), 0)
INTEGERS(int32_t, uint32_t, i32, BELOW_ZERO)
INTEGERS(int64_t, uint64_t, i64, BELOW_ZERO)
INTEGERS(uint64_t, uint64_t, u64, NEVER)

ALL(uint8_t, bool)
TWO(uint8_t, bool, and, x& y)
TWO(uint8_t, bool, or, x | y)
TWO(uint8_t, bool, xor, x ^ y)
TWO(uint8_t, bool, min, x& y)
TWO(uint8_t, bool, max, x | y)
ONE(uint8_t, bool, not, !x)

#endif
