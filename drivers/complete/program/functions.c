/* The table of functions. f32 is computed in double and rounded once, far inside the budget of docs/isa.md. */
#define _DEFAULT_SOURCE /* lgamma_r */
#include "program/functions.h"

#include <math.h>

#include "npu/program.h"

static double rsqrt(double x) { return 1 / sqrt(x); }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double gamma_log(double x) {
  int sign; /* lgamma would write a global */
  return lgamma_r(x, &sign);
}

/* Behind each: how many units in the last place it may differ from the true value (docs/isa.md, "Functions"), and how
 * much absolutely where the argument is large or the result near 0. */
static const function table[NPU_OP_COUNT] = {
    [NPU_OP_RSQRT] = {rsqrt, 0},      /* 4 */
    [NPU_OP_EXP] = {exp, 0},          /* 4 */
    [NPU_OP_EXP2] = {exp2, 0},        /* 4 */
    [NPU_OP_EXPM1] = {expm1, 0},      /* 4 */
    [NPU_OP_LOG] = {log, 0},          /* 4 */
    [NPU_OP_LOG2] = {log2, 0},        /* 4 */
    [NPU_OP_LOG10] = {log10, 0},      /* 4 */
    [NPU_OP_LOG1P] = {log1p, 0},      /* 4 */
    [NPU_OP_SIN] = {sin, 0},          /* 4, 1e-6 beyond 2^20 */
    [NPU_OP_COS] = {cos, 0},          /* 4, 1e-6 beyond 2^20 */
    [NPU_OP_TAN] = {tan, 0},          /* 16, 1e-6 beyond 2^20 */
    [NPU_OP_ASIN] = {asin, 0},        /* 4 */
    [NPU_OP_ACOS] = {acos, 0},        /* 4 */
    [NPU_OP_ATAN] = {atan, 0},        /* 4 */
    [NPU_OP_ATAN2] = {0, atan2},      /* 4 */
    [NPU_OP_SINH] = {sinh, 0},        /* 4 */
    [NPU_OP_COSH] = {cosh, 0},        /* 4 */
    [NPU_OP_TANH] = {tanh, 0},        /* 4 */
    [NPU_OP_ASINH] = {asinh, 0},      /* 4 */
    [NPU_OP_ACOSH] = {acosh, 0},      /* 4 */
    [NPU_OP_ATANH] = {atanh, 0},      /* 4 */
    [NPU_OP_SIGMOID] = {sigmoid, 0},  /* 4 */
    [NPU_OP_ERF] = {erf, 0},          /* 4 */
    [NPU_OP_ERFC] = {erfc, 0},        /* 4 */
    [NPU_OP_ERFINV] = {erfinv, 0},    /* 16 */
    [NPU_OP_LGAMMA] = {gamma_log, 0}, /* 16, 1e-6 near its zeros */
    [NPU_OP_DIGAMMA] = {digamma, 0},  /* 16, 1e-6 near its zeros */
    [NPU_OP_HYPOT] = {0, hypot},      /* 4 */
    [NPU_OP_POW] = {0, pow},          /* 16 */
};

const function* function_of(int op) { return table[op].one || table[op].two ? &table[op] : 0; }

static const double pi = 3.14159265358979323846;

/* Up by the recurrence until the asymptotic series is exact enough; negative arguments by reflection. */
double digamma(double x) {
  if (x == 0) return copysign(INFINITY, -x);
  if (x < 0) {
    double whole;
    const double rest = modf(x, &whole);
    return rest == 0 ? NAN : digamma(1 - x) - pi / tan(pi * rest);
  }
  double below = 0;
  for (; x < 10; x += 1) below += 1 / x;
  /* Bernoulli numbers B(2k) / 2k */
  static const double term[] = {1. / 12, -1. / 120, 1. / 252, -1. / 240, 1. / 132, -691. / 32760, 1. / 12};
  const double square = 1 / (x * x);
  double series = 0;
  for (int k = 6; k >= 0; k--) series = (series + term[k]) * square;
  return log(x) - 0.5 / x - series - below;
}

/* Winitzki's guess, then Halley's steps on erf; near 1 on erfc, which keeps its digits there. */
double erfinv(double x) {
  const double size = fabs(x), a = 0.147;
  if (!(size <= 1)) return NAN;
  if (size == 1) return copysign(INFINITY, x);
  if (x == 0) return x;
  const double l = log1p(-size * size), t = 2 / (pi * a) + l / 2;
  double y = size < 1e-3 ? size * sqrt(pi) / 2 : sqrt(sqrt(t * t - l / a) - t);
  for (int step = 0; step < 4; step++) {
    const double error = size < 0.5 ? erf(y) - size : (1 - size) - erfc(y);
    const double newton = error / (2 / sqrt(pi) * exp(-y * y));
    y -= newton / (1 + y * newton);
  }
  return copysign(y, x);
}

uint32_t philox(uint64_t seed, uint64_t offset, uint64_t subsequence, int word) {
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  uint32_t x[4] = {(uint32_t)offset, (uint32_t)(offset >> 32), (uint32_t)subsequence, (uint32_t)(subsequence >> 32)};
  for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t p = 0xD2511F53ull * x[0], q = 0xCD9E8D57ull * x[2];
    const uint32_t x1 = x[1], x3 = x[3];
    x[0] = (uint32_t)(q >> 32) ^ x1 ^ k0;
    x[1] = (uint32_t)q;
    x[2] = (uint32_t)(p >> 32) ^ x3 ^ k1;
    x[3] = (uint32_t)p;
  }
  return x[word];
}
