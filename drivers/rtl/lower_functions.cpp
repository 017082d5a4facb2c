// Functions as fixed sequences of packets: what the vector unit rounds correctly (div, sqrt) as it is, exp and log by
// series that stay within the 4 units in the last place that docs/isa.md allows.
#include <bit>
#include <limits>

#include "drivers/rtl/lower.h"

using namespace npu_hw;

namespace rtl {
namespace {

constexpr uint32_t kSign = 0x80000000;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
// ln 2 in two parts: products of the first with a small integer are exact.
constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;

}  // namespace

View number(float value) {
  return immediate(std::bit_cast<uint32_t>(value));
}

// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its series to r^7; 2^n as two factors, so that neither overflows.
Lowering::Value Lowering::exp(const View& x) {
  const auto f = [&](uint32_t op, const View& a, const View& b, const View& c = immediate(0)) {
    return apply(NPU_F32, op, a, b, c).view;
  };
  // Beyond these the result is infinite or 0; a NaN passes both.
  const View clamped = f(VEC_MAX, f(VEC_MIN, x, number(90)), number(-105));
  const View n = f(VEC_ROUND, f(VEC_MUL, clamped, number(1.44269504f)), immediate(0));
  const View r = f(VEC_FMA, n, number(-kLn2Low), f(VEC_FMA, n, number(-kLn2High), clamped));
  View p = f(VEC_FMA, r, number(1.0f / 5040), f(VEC_MOV, number(1.0f / 720), immediate(0)));
  for (float c : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) p = f(VEC_FMA, p, r, number(c));
  const auto i = [&](uint32_t op, const View& a, const View& b) { return apply(NPU_I32, op, a, b).view; };
  const View whole = i(VEC_F2I, n, immediate(0)), half = i(VEC_SHR, whole, immediate(1));
  const auto power = [&](const View& e) { return i(VEC_SHL, i(VEC_IADD, e, immediate(127)), immediate(23)); };
  const View scaled = f(VEC_MUL, f(VEC_MUL, p, power(half)), power(i(VEC_ISUB, whole, half)));
  return {scaled, NPU_F32};
}

// x = m 2^e with m in [sqrt(1/2), sqrt(2)); log m = 2 artanh(s) with s = (m - 1) / (m + 1).
Lowering::Value Lowering::log(const View& x) {
  const auto f = [&](uint32_t op, const View& a, const View& b, const View& c = immediate(0)) {
    return apply(NPU_F32, op, a, b, c).view;
  };
  const auto i = [&](uint32_t op, const View& a, const View& b, const View& c = immediate(0)) {
    return apply(NPU_I32, op, a, b, c).view;
  };
  constexpr uint32_t root_half = 0x3f3504f3, one = 0x3f800000;
  const View tiny = i(VEC_LT, x, immediate(0x00800000));
  const View large = f(VEC_SELECT, tiny, f(VEC_MUL, x, number(0x1p23f)), x);
  const View shifted = i(VEC_IADD, large, immediate(one - root_half));
  const View exponent =
      i(VEC_ISUB, i(VEC_ISUB, i(VEC_SHR, shifted, immediate(23)), immediate(127)), i(VEC_IMUL, tiny, immediate(23)));
  const View m = i(VEC_IADD, i(VEC_AND, shifted, immediate(0x7fffff)), immediate(root_half));
  const View s = f(VEC_DIV, f(VEC_SUB, m, number(1)), f(VEC_ADD, m, number(1)));
  const View z = f(VEC_MUL, s, s);
  View p = f(VEC_MUL, z, number(2.0f / 9));
  p = f(VEC_MUL, f(VEC_ADD, p, number(2.0f / 7)), z);
  p = f(VEC_MUL, f(VEC_ADD, p, number(2.0f / 5)), z);
  p = f(VEC_MUL, f(VEC_ADD, p, number(2.0f / 3)), z);
  const View mantissa = f(VEC_FMA, s, p, f(VEC_ADD, s, s));
  const View k = f(VEC_I2F, exponent, immediate(0));
  const View sum = f(VEC_FMA, k, number(kLn2High), f(VEC_FMA, k, number(kLn2Low), mantissa));
  const View positive = f(VEC_SELECT, i(VEC_EQ, x, number(kInfinity)), x, sum);
  const View other = f(VEC_SELECT, i(VEC_EQ, x, immediate(0)), number(-kInfinity), immediate(0x7fc00000));
  return {f(VEC_SELECT, i(VEC_LT, immediate(0), x), positive, other), NPU_F32};
}

// Below 0.55 by its series in x^2, which keeps small arguments exact; above by e^2|x|, with the sign of x.
Lowering::Value Lowering::tanh(const View& x) {
  const auto f = [&](uint32_t op, const View& a, const View& b, const View& c = immediate(0)) {
    return apply(NPU_F32, op, a, b, c).view;
  };
  const View z = f(VEC_MUL, x, x);
  View p = f(VEC_MUL, z, number(-929569.0f / 638512875));
  for (float c : {21844.0f / 6081075, -1382.0f / 155925, 62.0f / 2835, -17.0f / 315, 2.0f / 15, -1.0f / 3})
    p = f(VEC_MUL, f(VEC_ADD, p, number(c)), z);
  const View near = f(VEC_FMA, x, p, x);
  const View size = f(VEC_AND, x, immediate(~kSign));
  const View e = exp(f(VEC_ADD, size, size)).view;
  const View far = f(VEC_SUB, number(1), f(VEC_DIV, number(2), f(VEC_ADD, e, number(1))));
  const View is_far = apply(NPU_BOOL, VEC_LT, number(0.55f), size).view;
  return {f(VEC_OR, f(VEC_SELECT, is_far, far, near), f(VEC_AND, x, immediate(kSign))), NPU_F32};
}

Lowering::Value Lowering::compute_function(const npu_instr& in, const Value* v) {
  const View &a = v[0].view, &b = v[1].view;
  const auto f = [&](uint32_t op, const View& x, const View& y) { return apply(NPU_F32, op, x, y); };
  switch (in.op) {
    case NPU_OP_DIV:
      return f(VEC_DIV, a, b);
    case NPU_OP_RECIPROCAL:
      return f(VEC_DIV, number(1), a);
    case NPU_OP_SQRT:
      return f(VEC_SQRT, a, immediate(0));
    case NPU_OP_RSQRT:
      return f(VEC_DIV, number(1), f(VEC_SQRT, a, immediate(0)).view);
    case NPU_OP_EXP:
      return exp(a);
    case NPU_OP_LOG:
      return log(a);
    case NPU_OP_TANH:
      return tanh(a);
    case NPU_OP_SIN:
      return sine(a, false);
    case NPU_OP_COS:
      return sine(a, true);
    case NPU_OP_ERF:
      return erf(a);
    case NPU_OP_LOG1P:
      return log1p(a);
    case NPU_OP_EXPM1:
      return expm1(a);
    case NPU_OP_FMIN:
    case NPU_OP_FMAX: {
      // A NaN loses: equal to itself is what is none.
      const View best = f(in.op == NPU_OP_FMIN ? VEC_MIN : VEC_MAX, a, b).view;
      const View one = apply(NPU_F32, VEC_SELECT, apply(NPU_BOOL, VEC_EQ, b, b).view, best, a).view;
      return apply(NPU_F32, VEC_SELECT, apply(NPU_BOOL, VEC_EQ, a, a).view, one, b);
    }
    case NPU_OP_SIGMOID: {
      // By e^-|x|, which does not overflow.
      const View e = exp(f(VEC_OR, a, immediate(kSign)).view).view;
      const View negative = apply(NPU_BOOL, VEC_LT, a, immediate(0)).view;
      const View above = apply(NPU_F32, VEC_SELECT, negative, e, number(1)).view;
      return f(VEC_DIV, above, f(VEC_ADD, e, number(1)).view);
    }
    case NPU_OP_FLOOR:
      return f(VEC_FLOOR, a, immediate(0));
    case NPU_OP_ROUND:
      return f(VEC_ROUND, a, immediate(0));
    case NPU_OP_CEIL:
      return f(VEC_XOR, f(VEC_FLOOR, f(VEC_XOR, a, immediate(kSign)).view, immediate(0)).view, immediate(kSign));
    case NPU_OP_TRUNC:
      return f(VEC_OR, f(VEC_FLOOR, f(VEC_AND, a, immediate(~kSign)).view, immediate(0)).view,
               f(VEC_AND, a, immediate(kSign)).view);
    case NPU_OP_COPYSIGN:
      return f(VEC_OR, f(VEC_AND, a, immediate(~kSign)).view, f(VEC_AND, b, immediate(kSign)).view);
    case NPU_OP_SIGN: {
      const View more = apply(NPU_I32, VEC_LT, immediate(0), a).view,
                 less = apply(NPU_I32, VEC_LT, a, immediate(0)).view;
      return f(VEC_I2F, apply(NPU_I32, VEC_ISUB, more, less).view, immediate(0));
    }
    case NPU_OP_ISINF:
      return apply(NPU_BOOL, VEC_IEQ, apply(NPU_I32, VEC_AND, a, immediate(~kSign)).view, number(kInfinity));
    default:
      throw Unsupported{std::string("the instruction ") + npu::op_name(in.op)};
  }
}

}  // namespace rtl
