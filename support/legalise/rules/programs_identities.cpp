// Instructions that a chip lacks, by others that give the same bits; and functions of f64, which have no sequence.
#include <map>
#include <string>

#include "support/legalise/rules/inline.h"
#include "support/legalise/rules/parts.h"
#include "support/program/formula.h"
#include "support/program/op_info.h"

namespace npu::legalise {
namespace {

enum Group : uint8_t { kHard, kRounding, kChoice, kWhole };

struct Identity {
  Group group;
  npu_op op;
  uint8_t types;  // of its first argument: sets of op_info.h; kFloat may be f64 alone
  bool only_f64;
  const char* formula;  // operands: the arguments, then the result
};

// Horner's form of e^r for |r| < ln 2 / 2, and for up to 0.7 as (e^r - 1) / r: Taylor's series, cut where it is below a
// quarter of the last place.
#define NPU_EXP_BODY                                                                                            \
  "  %n = round(%y * 1.4426950408889634)\n"                                                                     \
  "  %r = fma(%n, -1.9082149292705877e-10, fma(%n, -0.6931471803691238, %y))\n"                                 \
  "  %p = fma(fma(fma(fma(fma(fma(1.605904383682161e-10, %r, 2.08767569878681e-9), %r, 2.505210838544172e-8), " \
  "%r, 2.755731922398589e-7), %r, 2.755731922398589e-6), %r, 2.48015873015873e-5), %r, 1.984126984126984e-4)\n" \
  "  %q = fma(fma(fma(fma(fma(fma(%p, %r, 1.388888888888889e-3), %r, 8.333333333333333e-3), %r, "               \
  "4.1666666666666664e-2), %r, 0.16666666666666666), %r, 0.5), %r, 1)\n"                                        \
  "  %e = ldexp(fma(%q, %r, 1), i32(%n))\n"

const Identity kIdentities[] = {
    // A Newton iteration for 1 / sqrt of the mantissa; the residues of the last two steps are exact.
    {kHard, NPU_OP_SQRT, kFloat, false,
     "formula sqrt(x, out)\neach:\n"
     "  %e = frexp_e(x)\n  %h = shr(%e, 1)\n  %m = frexp_m(x)\n"
     "  %z = where(%e - %h * 2 == 1, %m + %m, %m)\n"
     "  %y0 = fma(fma(0.24, %z, -1.1), %z, 1.9)\n  %w = %z * 0.5\n"
     "  %y1 = %y0 * (1.5 - %w * %y0 * %y0)\n  %y2 = %y1 * (1.5 - %w * %y1 * %y1)\n"
     "  %y3 = %y2 * (1.5 - %w * %y2 * %y2)\n  %y4 = %y3 * (1.5 - %w * %y3 * %y3)\n"
     "  %y5 = %y4 * (1.5 - %w * %y4 * %y4)\n  %g0 = %z * %y5\n  %k = %y5 * 0.5\n"
     "  %g1 = fma(fma(-%g0, %g0, %z), %k, %g0)\n  %g2 = fma(fma(-%g1, %g1, %z), %k, %g1)\n"
     "  %zero = x - x\n"
     "  out = where(x > 0, where(x == x * 0.5, x, ldexp(%g2, %h)), where(x == 0, x, %zero / %zero))\n"},
    {kHard, NPU_OP_RSQRT, kFloat, true, "formula rsqrt(x, out)\neach:\n  out = 1 / sqrt(x)\n"},
    {kHard, NPU_OP_EXP, kFloat, true,
     "formula exp(x, out)\neach:\n  %y = max(min(x, 710), -746)\n" NPU_EXP_BODY "  out = %e\n"},
    {kHard, NPU_OP_SIGMOID, kFloat, true,
     "formula sigmoid(x, out)\neach:\n  %y = max(0 - abs(x), -746)\n" NPU_EXP_BODY
     "  out = where(x < 0, %e, 1) / (1 + %e)\n"},
    {kHard, NPU_OP_LOG, kFloat, true,
     "formula log(x, out)\neach:\n  %m = frexp_m(x)\n  %low = %m < 0.7071067811865476\n"
     "  %k = number(frexp_e(x)) - where(%low, 1, 0)\n  %f = where(%low, %m + %m, %m) - 1\n"
     "  %s = %f / (2 + %f)\n  %z = %s * %s\n"
     "  %p = fma(fma(fma(fma(fma(0.08, %z, 0.08695652173913043), %z, 0.09523809523809523), %z, 0.10526315789473684), "
     "%z, 0.11764705882352941), %z, 0.13333333333333333)\n"
     "  %r = %z * fma(fma(fma(fma(fma(fma(%p, %z, 0.15384615384615385), %z, 0.18181818181818182), %z, "
     "0.2222222222222222), %z, 0.2857142857142857), %z, 0.4), %z, 0.6666666666666666)\n"
     "  %half = 0.5 * %f * %f\n"
     "  %log = %k * 0.6931471803691238 - (%half - fma(%k, 1.9082149292705877e-10, %s * (%half + %r)) - %f)\n"
     "  %zero = x - x\n"
     "  out = where(x > 0, where(x == x * 0.5, x, %log), where(x == 0, -1 / abs(x), %zero / %zero))\n"},
    {kHard, NPU_OP_TANH, kFloat, true,
     "formula tanh(x, out)\neach:\n  %a = abs(x)\n  %y = min(%a + %a, 50)\n" NPU_EXP_BODY "  %u = min(%y, 0.7)\n"
     "  %v = fma(fma(fma(fma(fma(2.8114572543455206e-15, %u, 4.779477332387385e-14), %u, 7.647163731819816e-13), %u, "
     "1.1470745597729725e-11), %u, 1.605904383682161e-10), %u, 2.08767569878681e-9)\n"
     "  %t = fma(fma(fma(fma(fma(fma(%v, %u, 2.505210838544172e-8), %u, 2.755731922398589e-7), %u, "
     "2.755731922398589e-6), %u, 2.48015873015873e-5), %u, 1.984126984126984e-4), %u, 1.388888888888889e-3)\n"
     "  %d = %u * fma(fma(fma(fma(fma(%t, %u, 8.333333333333333e-3), %u, 4.1666666666666664e-2), %u, "
     "0.16666666666666666), %u, 0.5), %u, 1)\n"
     "  out = copysign(where(%y < 0.7, %d / (%d + 2), 1 - 2 / (%e + 1)), x)\n"},
    {kRounding, NPU_OP_CEIL, kFloat, false, "formula ceil(x, out)\neach:\n  out = -floor(-x)\n"},
    {kRounding, NPU_OP_TRUNC, kFloat, false, "formula trunc(x, out)\neach:\n  out = where(x < 0, ceil(x), floor(x))\n"},
    {kRounding, NPU_OP_FLOOR, kFloat, false,
     "formula floor(x, out)\neach:\n  %r = round(x)\n  out = where(%r > x, %r - 1, %r)\n"},
    {kRounding, NPU_OP_RECIPROCAL, kFloat, false, "formula reciprocal(x, out)\neach:\n  out = 1 / x\n"},
    {kChoice, NPU_OP_MIN, kFloat, false,
     "formula min(a, b, out)\neach:\n  out = where(a != a, a, where(b != b, b, where(b < a, b, a)))\n"},
    {kChoice, NPU_OP_MAX, kFloat, false,
     "formula max(a, b, out)\neach:\n  out = where(a != a, a, where(b != b, b, where(b > a, b, a)))\n"},
    {kChoice, NPU_OP_MIN, kInt, false, "formula min(a, b, out)\neach:\n  out = where(b < a, b, a)\n"},
    {kChoice, NPU_OP_MAX, kInt, false, "formula max(a, b, out)\neach:\n  out = where(b > a, b, a)\n"},
    {kChoice, NPU_OP_FMIN, kFloat, false,
     "formula fmin(a, b, out)\neach:\n  out = where(a != a, b, where(b != b, a, where(b < a, b, a)))\n"},
    {kChoice, NPU_OP_FMAX, kFloat, false,
     "formula fmax(a, b, out)\neach:\n  out = where(a != a, b, where(b != b, a, where(b > a, b, a)))\n"},
    {kChoice, NPU_OP_FMIN, kInt, false, "formula fmin(a, b, out)\neach:\n  out = where(b < a, b, a)\n"},
    {kChoice, NPU_OP_FMAX, kInt, false, "formula fmax(a, b, out)\neach:\n  out = where(b > a, b, a)\n"},
    {kChoice, NPU_OP_SIGN, kNumber, false,
     "formula sign(x, out)\neach:\n  out = where(x > 0, 1, where(x < 0, -1, 0))\n"},
    {kChoice, NPU_OP_GT, kAny, false, "formula gt(a, b, out)\neach:\n  out = b < a\n"},
    {kChoice, NPU_OP_GE, kAny, false, "formula ge(a, b, out)\neach:\n  out = b <= a\n"},
    {kChoice, NPU_OP_LE, kAny, false, "formula le(a, b, out)\neach:\n  out = a < b or a == b\n"},
    {kChoice, NPU_OP_NE, kAny, false, "formula ne(a, b, out)\neach:\n  out = not a == b\n"},
    {kChoice, NPU_OP_ISNAN, kFloat, false, "formula isnan(x, out)\neach:\n  out = x != x\n"},
    {kChoice, NPU_OP_ISINF, kFloat, false, "formula isinf(x, out)\neach:\n  out = x == x * 0.5 and x != 0\n"},
    {kWhole, NPU_OP_FLOORDIV, kInt, false,
     "formula floordiv(a, b, out)\neach:\n  %q = a / b\n"
     "  out = where(b != 0 and a != %q * b and (a < 0) != (b < 0), %q - 1, %q)\n"},
    {kWhole, NPU_OP_MOD, kInt, false, "formula mod(a, b, out)\neach:\n  out = where(b == 0, 0, a - a // b * b)\n"},
    {kWhole, NPU_OP_FMOD, kInt, false, "formula fmod(a, b, out)\neach:\n  out = where(b == 0, 0, a - a / b * b)\n"},
    {kWhole, NPU_OP_FMA, kInt, false, "formula fma(a, b, c, out)\neach:\n  out = a * b + c\n"},
    {kWhole, NPU_OP_NEG, kInt, false, "formula neg(x, out)\neach:\n  out = 0 - x\n"},
    {kWhole, NPU_OP_SUB, kFloat, false, "formula sub(a, b, out)\neach:\n  out = a + (-b)\n"},
    {kWhole, NPU_OP_ABS, kInt, false, "formula abs(x, out)\neach:\n  out = where(x < 0, 0 - x, x)\n"},
};

// By squaring: a factor for each bit of the exponent.
std::string power(int type) {
  std::string text = "formula pow(x, y, out)\neach:\n  %b0 = x * 1\n  %r0 = y - y + 1\n";
  const int bits = 8 * dtype_size(type);
  for (int k = 0; k < bits; ++k) {
    const std::string now = std::to_string(k), next = std::to_string(k + 1);
    text +=
        "  %r" + next + " = where((shr(y, " + now + ") and 1) == 1, %r" + now + " * %b" + now + ", %r" + now + ")\n";
    if (k + 1 < bits) text += "  %b" + next + " = %b" + now + " * %b" + now + "\n";
  }
  const std::string result = "%r" + std::to_string(bits);
  if (type == NPU_U64) return text + "  out = " + result + "\n";
  return text + "  out = where(y < 0, where(x == 1, 1, where(x == -1, where((y and 1) == 0, 1, -1), 0)), " + result +
         ")\n";
}

// By op and the type of its first argument.
struct Known {
  Group group;
  Program program;
};
using Programs = std::map<std::pair<int, int>, Known>;

const Programs& programs() {
  static const Programs all = [] {
    Programs made;
    const auto add = [&](Group group, int op, int type, const std::string& formula) {
      made[{op, type}] = {group, parse(formula_text(formula, dtype_name(type)))};
    };
    for (const int type : {NPU_BOOL, NPU_I32, NPU_I64, NPU_U64, NPU_F32, NPU_F64})
      for (const Identity& identity : kIdentities)
        if ((dtype_class(type) & identity.types) && (!identity.only_f64 || type == NPU_F64))
          add(identity.group, identity.op, type, identity.formula);
    for (const int type : {NPU_I32, NPU_I64, NPU_U64}) add(kHard, NPU_OP_POW, type, power(type));
    return made;
  }();
  return all;
}

template <Group group>
bool by_identity(const Draft& refused, Script& script) {
  if (!refused.program) return false;
  const std::vector<npu_instr>& instrs = refused.program->instrs;
  const auto known = [&](const npu_instr& in) -> const Known* {
    if (in.a == NPU_NO_VALUE) return nullptr;
    const auto found = programs().find({in.op, instrs[in.a].dtype});
    return found == programs().end() || found->second.group != group ? nullptr : &found->second;
  };
  int op = -1, type = 0;
  for (const npu_instr& in : instrs)
    if (op < 0 && known(in)) op = in.op, type = instrs[in.a].dtype;
  if (op < 0) return false;
  script.add(inlined_where(refused, programs().at({op, type}).program,
                           [&](const npu_instr& in) { return in.op == op && instrs[in.a].dtype == type; }));
  return true;
}

constexpr Rule identity(const char* name, const char* why, bool (*make)(const Draft&, Script&)) {
  return {.name = name,
          .why = why,
          .price = Price::kPass,
          .kinds = kAnyKind & ~for_kind(NPU_COPY) & ~for_kind(NPU_SORT),
          .repeats = true,
          .make = make};
}

constexpr Rule kRules[] = {
    identity("roots, powers and functions of f64",
             "Newton's iteration with exact residues, squaring, and series within the budget of f64",
             by_identity<kHard>),
    identity("rounding by another", "floor, ceil and trunc differ from each other by one or a sign",
             by_identity<kRounding>),
    identity("comparison and choice", "min, max, sign and comparisons are choices by lt and eq", by_identity<kChoice>),
    identity("whole numbers", "rests are what division leaves; all wraps alike", by_identity<kWhole>),
};

}  // namespace

const std::span<const Rule> identity_rules = kRules;

}  // namespace npu::legalise
