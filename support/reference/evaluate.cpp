#include "support/reference/evaluate.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "support/program/program.h"
#include "support/reference/functions.h"

namespace npu {
namespace {

// Integers compute in the unsigned type of their width, so that every overflow wraps.
template <typename T>
T wrapped(uint64_t bits) {
  return static_cast<T>(static_cast<std::make_unsigned_t<T>>(bits));
}

template <typename T>
T divide(T a, T b) {
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return wrapped<T>(0 - static_cast<uint64_t>(a));
  return static_cast<T>(a / b);
}

template <typename T>
T remainder(T a, T b) {  // sign of a
  if (b == 0) return 0;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return static_cast<T>(a % b);
}

template <typename T>
T power(T base, T exponent) {
  if constexpr (std::is_signed_v<T>)
    if (exponent < 0) return base == 1 ? T{1} : base == -1 ? (exponent & 1 ? T{-1} : T{1}) : T{0};
  uint64_t result = 1, factor = static_cast<uint64_t>(base);
  for (uint64_t left = static_cast<uint64_t>(exponent); left; left >>= 1, factor *= factor)
    if (left & 1) result *= factor;
  return wrapped<T>(result);
}

template <typename T>
T integer(int op, T a, T b, T c) {
  const uint64_t x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b), z = static_cast<uint64_t>(c);
  constexpr T kWidth = sizeof(T) * 8;
  const bool shift_fits = b >= 0 && b < kWidth;
  switch (op) {
    case NPU_OP_ADD:
      return wrapped<T>(x + y);
    case NPU_OP_SUB:
      return wrapped<T>(x - y);
    case NPU_OP_MUL:
      return wrapped<T>(x * y);
    case NPU_OP_FMA:
      return wrapped<T>(x * y + z);
    case NPU_OP_DIV:
      return divide(a, b);
    case NPU_OP_FLOORDIV: {
      const T rest = remainder(a, b);
      return static_cast<T>(divide(a, b) - (rest != 0 && (rest < 0) != (b < 0) ? 1 : 0));
    }
    case NPU_OP_MOD: {
      const T rest = remainder(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? static_cast<T>(rest + b) : rest;
    }
    case NPU_OP_FMOD:
      return remainder(a, b);
    case NPU_OP_NEG:
      return wrapped<T>(0 - x);
    case NPU_OP_ABS:
      return a < 0 ? wrapped<T>(0 - x) : a;
    case NPU_OP_SIGN:
      return static_cast<T>((a > 0) - (a < 0));
    case NPU_OP_MIN:
    case NPU_OP_FMIN:
      return b < a ? b : a;
    case NPU_OP_MAX:
    case NPU_OP_FMAX:
      return b > a ? b : a;
    case NPU_OP_POW:
      return power(a, b);
    case NPU_OP_AND:
      return a & b;
    case NPU_OP_OR:
      return a | b;
    case NPU_OP_XOR:
      return a ^ b;
    case NPU_OP_NOT:
      return static_cast<T>(~a);
    case NPU_OP_SHL:
      return shift_fits ? wrapped<T>(x << b) : T{0};
    case NPU_OP_SHR:
      return shift_fits ? static_cast<T>(a >> b) : a < 0 ? static_cast<T>(-1) : T{0};
    default:
      return 0;
  }
}

// F64, and what has no sequence (codegen/functions.ops): in double, rounded once.
double function(int op, double a, double b) {
  switch (op) {
    case NPU_OP_RSQRT:
      return 1.0 / std::sqrt(a);
    case NPU_OP_POW:
      return std::pow(a, b);
    case NPU_OP_EXP:
      return std::exp(a);
    case NPU_OP_EXP2:
      return std::exp2(a);
    case NPU_OP_EXPM1:
      return std::expm1(a);
    case NPU_OP_LOG:
      return std::log(a);
    case NPU_OP_LOG2:
      return std::log2(a);
    case NPU_OP_LOG10:
      return std::log10(a);
    case NPU_OP_LOG1P:
      return std::log1p(a);
    case NPU_OP_SIN:
      return std::sin(a);
    case NPU_OP_COS:
      return std::cos(a);
    case NPU_OP_TAN:
      return std::tan(a);
    case NPU_OP_ASIN:
      return std::asin(a);
    case NPU_OP_ACOS:
      return std::acos(a);
    case NPU_OP_ATAN:
      return std::atan(a);
    case NPU_OP_ATAN2:
      return std::atan2(a, b);
    case NPU_OP_SINH:
      return std::sinh(a);
    case NPU_OP_COSH:
      return std::cosh(a);
    case NPU_OP_TANH:
      return std::tanh(a);
    case NPU_OP_ASINH:
      return std::asinh(a);
    case NPU_OP_ACOSH:
      return std::acosh(a);
    case NPU_OP_ATANH:
      return std::atanh(a);
    case NPU_OP_SIGMOID:
      return 1.0 / (1.0 + std::exp(-a));
    case NPU_OP_ERF:
      return std::erf(a);
    case NPU_OP_ERFC:
      return std::erfc(a);
    case NPU_OP_ERFINV:
      return erfinv(a);
    case NPU_OP_LGAMMA: {
      int sign;  // std::lgamma writes a global
      return ::lgamma_r(a, &sign);
    }
    case NPU_OP_DIGAMMA:
      return digamma(a);
    case NPU_OP_HYPOT:
      return std::hypot(a, b);
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

template <typename T>
T floor_divide(T a, T b) {
  if (b == 0) return a / b;
  const T rest = std::fmod(a, b);
  T quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(T{0}, a / b);
  const T whole = std::floor(quotient);
  return quotient - whole > T{0.5} ? whole + 1 : whole;
}

template <typename T>
T floating(int op, T a, T b, T c) {
  switch (op) {
    case NPU_OP_ADD:
      return a + b;
    case NPU_OP_SUB:
      return a - b;
    case NPU_OP_MUL:
      return a * b;
    case NPU_OP_DIV:
      return a / b;
    case NPU_OP_FLOORDIV:
      return floor_divide(a, b);
    case NPU_OP_MOD: {
      const T rest = std::fmod(a, b);
      return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
    }
    case NPU_OP_FMOD:
      return std::fmod(a, b);
    case NPU_OP_FMA:
      return std::fma(a, b, c);
    case NPU_OP_NEG:
      return -a;
    case NPU_OP_ABS:
      return std::fabs(a);
    case NPU_OP_SIGN:
      return static_cast<T>((a > 0) - (a < 0));
    case NPU_OP_MIN:
      return std::isnan(a) ? a : std::isnan(b) || b < a ? b : a;
    case NPU_OP_MAX:
      return std::isnan(a) ? a : std::isnan(b) || b > a ? b : a;
    case NPU_OP_FMIN:
      return std::isnan(a) || b < a ? b : a;
    case NPU_OP_FMAX:
      return std::isnan(a) || b > a ? b : a;
    case NPU_OP_FLOOR:
      return std::floor(a);
    case NPU_OP_CEIL:
      return std::ceil(a);
    case NPU_OP_ROUND:
      return std::nearbyint(a);
    case NPU_OP_TRUNC:
      return std::trunc(a);
    case NPU_OP_SQRT:
      return std::sqrt(a);
    case NPU_OP_RECIPROCAL:
      return 1 / a;
    case NPU_OP_COPYSIGN:
      return std::copysign(a, b);
    case NPU_OP_NEXTAFTER:
      return std::nextafter(a, b);
    case NPU_OP_FREXP_M: {
      int exponent;
      return std::frexp(a, &exponent);
    }
    default:
      if constexpr (std::is_same_v<T, float>)
        if (sequence(op)) return run_sequence(op, a, b);
      return static_cast<T>(function(op, a, b));
  }
}

// The one NaN that arithmetic yields; where an instruction only moves a number or its sign, the bits stay.
template <typename T>
T one_nan(int op, T value) {
  const bool moves =
      op == NPU_OP_NEG || op == NPU_OP_ABS || op == NPU_OP_COPYSIGN || op == NPU_OP_FMIN || op == NPU_OP_FMAX;
  return moves ? value : quiet(value);
}

template <typename T>
bool compare(int op, T a, T b) {
  switch (op) {
    case NPU_OP_EQ:
      return a == b;
    case NPU_OP_NE:
      return a != b;
    case NPU_OP_LT:
      return a < b;
    case NPU_OP_LE:
      return a <= b;
    case NPU_OP_GT:
      return a > b;
    default:
      return a >= b;
  }
}

Value bitcast(const npu_instr& in, Value v, int type) {
  unsigned char bytes[8] = {};
  store_value(bytes, static_cast<int>(in.imm & 0xff), v, type);
  return load_value(bytes, static_cast<int>(in.imm >> 8), in.dtype);
}

Value cast(const npu_instr& in, Value v, int type) {
  if (in.imm == NPU_DTYPE_NONE) return convert(v, type, in.dtype);
  unsigned char bytes[8];
  store_value(bytes, static_cast<int>(in.imm), v, type);
  return load_value(bytes, static_cast<int>(in.imm), in.dtype);
}

}  // namespace

Value evaluate(const npu_instr& in, int type, Value a, Value b, Value c) {
  Value out{};
  const int op = in.op;
  if (op >= NPU_OP_EQ && op <= NPU_OP_GE) {
    out.i = type == NPU_F32   ? compare(op, a.f32, b.f32)
            : type == NPU_F64 ? compare(op, a.f64, b.f64)
            : type == NPU_U64 ? compare(op, a.u, b.u)
                              : compare(op, a.i, b.i);
    return out;
  }
  switch (op) {
    case NPU_OP_CAST:
      return cast(in, a, type);
    case NPU_OP_BITCAST:
      return bitcast(in, a, type);
    case NPU_OP_WHERE:
      return a.i ? b : c;
    case NPU_OP_ISNAN:
      out.i = type == NPU_F32 ? std::isnan(a.f32) : std::isnan(a.f64);
      return out;
    case NPU_OP_ISINF:
      out.i = type == NPU_F32 ? std::isinf(a.f32) : std::isinf(a.f64);
      return out;
    case NPU_OP_SIGNBIT:
      out.i = type == NPU_F32   ? std::signbit(a.f32)
              : type == NPU_F64 ? std::signbit(a.f64)
                                : type != NPU_U64 && a.i < 0;
      return out;
    case NPU_OP_LDEXP:
      if (type == NPU_F32)
        out.f32 = quiet(static_cast<float>(std::ldexp(static_cast<double>(a.f32), static_cast<int>(b.i))));
      else
        out.f64 = quiet(std::ldexp(a.f64, static_cast<int>(b.i)));
      return out;
    case NPU_OP_FREXP_E: {
      int exponent = 0;
      const double x = type == NPU_F32 ? a.f32 : a.f64;
      if (std::isfinite(x)) std::frexp(x, &exponent);
      out.i = exponent;
      return out;
    }
    case NPU_OP_PHILOX: {
      uint32_t words[4];
      philox(a.u, b.u, c.u, words);
      out.i = words[in.imm & 3];
      return out;
    }
    default:
      break;
  }
  switch (type) {
    case NPU_F32:
      out.f32 = one_nan(op, floating(op, a.f32, b.f32, c.f32));
      return out;
    case NPU_F64:
      out.f64 = one_nan(op, floating(op, a.f64, b.f64, c.f64));
      return out;
    case NPU_I32:
      out.i = integer(op, static_cast<int32_t>(a.i), static_cast<int32_t>(b.i), static_cast<int32_t>(c.i));
      return out;
    case NPU_I64:
      out.i = integer(op, a.i, b.i, c.i);
      return out;
    case NPU_U64:
      out.u = integer(op, a.u, b.u, c.u);
      return out;
    default:  // BOOL: the low bit of an integer
      out.i = integer(op, a.i, b.i, c.i) & 1;
      return out;
  }
}

}  // namespace npu
