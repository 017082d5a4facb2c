// Trigonometry, erf, log1p and expm1 as sequences of packets, within the 4 units in the last place that docs/isa.md
// allows.
#include <limits>

#include "drivers/rtl/lower.h"

using namespace npu_hw;

namespace rtl {
namespace {

constexpr uint32_t kSign = 0x80000000;
// 2 / pi behind the point, after a word of zeros.
constexpr uint32_t kTwoOverPi[8] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                    0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
constexpr float kQuarter = 0.785398163f;  // pi / 4

}  // namespace

View Lowering::horner(const View& x, std::initializer_list<float> coefficients) {
  View sum;
  for (const float* c = coefficients.begin(); c != coefficients.end(); c++)
    sum = c == coefficients.begin() ? number(*c) : apply(NPU_F32, VEC_FMA, sum, x, number(*c)).view;
  return sum;
}

// |x| = m 2^(e - 150) with m of 24 bits. Of m 2^(e - 150) 2 / pi only what is below 4 counts: 96 bits of 2 / pi, from
// the weight 2 on, times m, are the quadrant and 62 bits of what is left, enough for every f32.
Lowering::Value Lowering::sine(const View& x, bool cosine) {
  const auto i = [&](uint32_t op, const View& a, const View& b) { return apply(NPU_I32, op, a, b).view; };
  const auto f = [&](uint32_t op, const View& a, const View& b, const View& c = immediate(0)) {
    return apply(NPU_F32, op, a, b, c).view;
  };
  const View size = i(VEC_AND, x, immediate(~kSign));
  const View exponent = i(VEC_SHR, size, immediate(23));
  const View m = i(VEC_OR, i(VEC_AND, x, immediate(0x7fffff)), immediate(0x800000));
  const View first = i(VEC_IMAX, i(VEC_ISUB, exponent, immediate(120)), immediate(0));  // bit of the table
  const View at = i(VEC_SHR, first, immediate(5));
  const View power = i(VEC_SHL, immediate(1), i(VEC_AND, first, immediate(31)));
  View table[4];
  Space row;
  row.rank = 1;
  row.size[0] = 8;
  const View words = contiguous(row, TYPE_I32);
  for (uint32_t k = 0; k < 8; k++) {
    Space one;
    View cell = words;
    cell.addr += k * 4;
    emit(OP_VECTOR, VEC_MOV, one, cell, immediate(kTwoOverPi[k]));
  }
  for (uint32_t k = 0; k < 4; k++) {
    View from;
    from.type = TYPE_I32;
    from.addr = words.addr + k * 4;
    if (at.immediate) {
      table[k] = immediate(kTwoOverPi[at.bits + k]);
      continue;
    }
    const Space space = varying({&at});
    table[k] = contiguous_over(space, TYPE_I32);
    emit(OP_GATHER, VEC_MOV, space, table[k], from, at, immediate(1));
  }
  View part[3];
  for (int k = 0; k < 3; k++) part[k] = i(VEC_OR, i(VEC_IMUL, table[k], power), i(VEC_UMULH, table[k + 1], power));
  const View carried = i(VEC_UMULH, m, part[2]);
  const View low = i(VEC_IADD, i(VEC_IMUL, m, part[1]), carried);
  const View high =
      i(VEC_IADD, i(VEC_IADD, i(VEC_IMUL, m, part[0]), i(VEC_UMULH, m, part[1])), i(VEC_ULT, low, carried));
  // To the nearest quadrant; the rest is signed, in units of 2^-62 right angles.
  View quadrant = i(VEC_SHR, i(VEC_IADD, high, immediate(0x20000000)), immediate(30));
  const View rest = apply(NPU_F32, VEC_L2F, low, i(VEC_ISUB, high, i(VEC_SHL, quadrant, immediate(30)))).view;
  const View small = apply(NPU_BOOL, VEC_LT, size, number(kQuarter)).view;
  const View r = f(VEC_SELECT, small, size, f(VEC_MUL, rest, number(1.57079633f * 0x1p-62f)));
  quadrant = i(VEC_AND, quadrant, i(VEC_ISUB, small, immediate(1)));
  if (cosine) quadrant = i(VEC_IADD, quadrant, immediate(1));
  const View z = f(VEC_MUL, r, r);
  const View odd = f(VEC_MUL, r, f(VEC_MUL, z, horner(z, {1.0f / 362880, -1.0f / 5040, 1.0f / 120, -1.0f / 6})));
  const View sine = f(VEC_ADD, r, odd);
  const View other = horner(z, {-1.0f / 3628800, 1.0f / 40320, -1.0f / 720, 1.0f / 24, -0.5f, 1.0f});
  const View value = f(VEC_SELECT, i(VEC_AND, quadrant, immediate(1)), other, sine);
  View sign = i(VEC_SHL, i(VEC_AND, quadrant, immediate(2)), immediate(30));
  if (!cosine) sign = i(VEC_XOR, sign, i(VEC_AND, x, immediate(kSign)));
  const View finite = apply(NPU_BOOL, VEC_LT, size, number(std::numeric_limits<float>::infinity())).view;
  return apply(NPU_F32, VEC_SELECT, finite, f(VEC_XOR, value, sign), immediate(0x7fc00000));
}

// Below 0.9 a polynomial in x^2 times x; above, 1 - e^-t with t = -log(erfc |x|) as a polynomial, and the sign of x.
Lowering::Value Lowering::erf(const View& x) {
  const auto f = [&](uint32_t op, const View& a, const View& b, const View& c = immediate(0)) {
    return apply(NPU_F32, op, a, b, c).view;
  };
  const View z = f(VEC_MUL, x, x);
  const View p = horner(
      z, {8.53412057e-5f, -8.18078115e-4f, 5.2043316e-3f, -2.68607084e-2f, 0.112837188f, -0.376126349f, 0.128379226f});
  const View near = f(VEC_FMA, x, p, x);
  const View size = f(VEC_AND, x, immediate(~kSign));
  // From 4 on the result is 1; a NaN passes.
  const View t =
      horner(f(VEC_MIN, size, number(4)), {-1.61024047e-6f, 4.55127738e-5f, -5.92092751e-4f, 4.73695062e-3f,
                                           -2.63551213e-2f, 0.109960802f, 0.63195622f, 1.13015509f, -3.00268846e-4f});
  const View far = f(VEC_SUB, number(1), exp(f(VEC_XOR, t, immediate(kSign))).view);
  const View is_far = apply(NPU_BOOL, VEC_LT, number(0.9f), size).view;
  return {f(VEC_SELECT, is_far, f(VEC_OR, far, f(VEC_AND, x, immediate(kSign))), near), NPU_F32};
}

// What 1 + x loses is made good by the ratio of x to what is left of it.
Lowering::Value Lowering::log1p(const View& x) {
  const auto f = [&](uint32_t op, const View& a, const View& b, const View& c = immediate(0)) {
    return apply(NPU_F32, op, a, b, c).view;
  };
  const View u = f(VEC_ADD, x, number(1));
  const View scaled = f(VEC_MUL, log(u).view, f(VEC_DIV, x, f(VEC_SUB, u, number(1))));
  const View same = apply(NPU_BOOL, VEC_EQ, u, number(1)).view;
  const View infinite = apply(NPU_BOOL, VEC_EQ, u, number(std::numeric_limits<float>::infinity())).view;
  const View as_it_is = apply(NPU_BOOL, VEC_OR, same, infinite).view;
  return apply(NPU_F32, VEC_SELECT, as_it_is, x, scaled);
}

// Up to 1 the error of u = e^x is that of log u, so their ratio is good; beyond, nothing is lost by u - 1.
Lowering::Value Lowering::expm1(const View& x) {
  const auto f = [&](uint32_t op, const View& a, const View& b, const View& c = immediate(0)) {
    return apply(NPU_F32, op, a, b, c).view;
  };
  const View u = exp(x).view;
  const View less = f(VEC_SUB, u, number(1));
  const View ratio = f(VEC_MUL, less, f(VEC_DIV, x, log(u).view));
  const View size = f(VEC_AND, x, immediate(~kSign));
  const View near = f(VEC_SELECT, apply(NPU_BOOL, VEC_EQ, u, number(1)).view, x, ratio);
  return apply(NPU_F32, VEC_SELECT, apply(NPU_BOOL, VEC_LE, size, number(1)).view, near, less);
}

}  // namespace rtl
