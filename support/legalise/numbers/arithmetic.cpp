// Arithmetic of 64 bits: by sequences of words.npu, or in one word where the numbers are known to fit.
#include <algorithm>

#include "support/legalise/numbers/in_words.h"
#include "support/program/op_info.h"

namespace npu::legalise {

Number InWords::integer(int64_t value) {
  return {NPU_I64, word(value), word(value >> 32), {value, value}};
}

Number InWords::extended(uint16_t low, Range range) {
  const uint16_t high = range.least >= 0 ? word(0) : range.most < 0 ? word(-1) : sign_of(low);
  return {NPU_I64, low, high, range};
}

// Sequences of i64 serve u64 where the bits are the same.
Number InWords::called(const std::string& name, int type, const std::vector<Number>& arguments) {
  const int first = arguments[0].type;
  std::string full = name.find("_of_") != name.npos ? name : name + "_" + dtype_name(first);
  if (!has_sequence(full) && first == NPU_U64 && is_wide(type)) full = name + "_i64";
  if (!has_sequence(full)) throw Unsupported{};
  std::vector<uint16_t> words;
  for (const Number& argument : arguments) {
    words.push_back(argument.low);
    if (is_wide(argument.type)) words.push_back(argument.high);
  }
  const std::vector<uint16_t> out = emit_.call(full, words);
  return {type, out[0], out.size() > 1 ? out[1] : uint16_t{NPU_NO_VALUE}, {}};
}

uint16_t InWords::choose(uint16_t condition, uint16_t yes, uint16_t no) {
  return emit_.op(NPU_OP_WHERE, writer_.type(yes), condition, yes, no);
}

Number InWords::choose(uint16_t condition, const Number& yes, const Number& no) {
  Number out = yes;
  out.low = choose(condition, yes.low, no.low);
  if (is_wide(yes.type)) out.high = choose(condition, yes.high, no.high);
  out.range = {std::min(yes.range.least, no.range.least), std::max(yes.range.most, no.range.most)};
  return yes.type == NPU_I64 && out.range.in_word() ? extended(out.low, out.range) : out;
}

uint16_t InWords::compare(int op, const Number& a, const Number& b) {
  if (!is_wide(a.type)) return is(static_cast<npu_op>(op), a.low, b.low);
  if (a.type == NPU_I64 && a.range.in_word() && b.range.in_word()) return is(static_cast<npu_op>(op), a.low, b.low);
  const bool real = a.type == NPU_F64;
  switch (op) {
    case NPU_OP_EQ:
      return real ? called("eq", NPU_BOOL, {a, b}).low : emit_.call("eq_i64", {a.low, a.high, b.low, b.high})[0];
    case NPU_OP_NE:
      return inverted(compare(NPU_OP_EQ, a, b));
    case NPU_OP_LT:
      return called("lt", NPU_BOOL, {a, b}).low;
    case NPU_OP_GT:
      return called("lt", NPU_BOOL, {b, a}).low;
    case NPU_OP_LE:
      return real ? called("le", NPU_BOOL, {a, b}).low : inverted(compare(NPU_OP_LT, b, a));
    default:
      return real ? called("le", NPU_BOOL, {b, a}).low : inverted(compare(NPU_OP_LT, a, b));
  }
}

uint16_t InWords::test(int op, const Number& a) {
  if (op != NPU_OP_SIGNBIT) return called(op_name(op), NPU_BOOL, {a}).low;
  if (a.type == NPU_U64) return emit_.op(NPU_OP_NE, NPU_BOOL, word(0), word(0));
  return is(NPU_OP_LT, a.high, word(0));
}

// The products and sums of words are below 2^63, so that their ranges do not overflow.
std::optional<Number> InWords::in_one_word(int op, const std::vector<Number>& a) {
  for (const Number& one : a)
    if (one.type != NPU_I64 || !one.range.in_word()) return std::nullopt;
  const Range x = a[0].range, y = a.back().range;
  Range out;
  switch (op) {
    case NPU_OP_ADD:
      out = {x.least + y.least, x.most + y.most};
      break;
    case NPU_OP_SUB:
      out = {x.least - y.most, x.most - y.least};
      break;
    case NPU_OP_MUL: {
      const auto [least, most] = std::minmax({x.least * y.least, x.least * y.most, x.most * y.least, x.most * y.most});
      out = {least, most};
      break;
    }
    case NPU_OP_MIN:
    case NPU_OP_FMIN:
      out = {std::min(x.least, y.least), std::min(x.most, y.most)};
      break;
    case NPU_OP_MAX:
    case NPU_OP_FMAX:
      out = {std::max(x.least, y.least), std::max(x.most, y.most)};
      break;
    case NPU_OP_DIV:
    case NPU_OP_FLOORDIV:
    case NPU_OP_MOD:
    case NPU_OP_FMOD: {
      // The least word by -1 is no word.
      const int64_t size = std::max({-x.least, x.most, -y.least, y.most});
      if (size > INT32_MAX) return std::nullopt;
      out = {-size, size};
      if (x.least >= 0 && y.least >= 0) out.least = 0;
      break;
    }
    default:
      return std::nullopt;
  }
  if (!out.in_word()) return std::nullopt;
  return extended(emit_.same(static_cast<npu_op>(op), a[0].low, a[1].low), out);
}

Number InWords::arithmetic(int op, const std::vector<Number>& a) {
  const int type = a[0].type;
  const bool real = type == NPU_F64, signed_ = type == NPU_I64;
  if (op == NPU_OP_FMA && !real) return arithmetic(NPU_OP_ADD, {arithmetic(NPU_OP_MUL, {a[0], a[1]}), a[2]});
  if (const std::optional<Number> short_ = in_one_word(op, a)) return *short_;
  switch (op) {
    case NPU_OP_AND:
    case NPU_OP_OR:
    case NPU_OP_XOR:
    case NPU_OP_NOT:
      return word_by_word(op, a[0], a.back());
    case NPU_OP_MIN:
    case NPU_OP_MAX:
    case NPU_OP_FMIN:
    case NPU_OP_FMAX:
      return extreme(op, a[0], a[1]);
    case NPU_OP_ABS:
      if (type == NPU_U64) return a[0];
      break;
    case NPU_OP_FLOORDIV:
    case NPU_OP_MOD:
      if (real) throw Unsupported{};
      if (!signed_) return called(op == NPU_OP_MOD ? "fmod" : "div", type, a);
      break;
    case NPU_OP_MUL:
      if (const std::optional<Number> scaled = real ? by_power(a[0], a[1]) : std::nullopt) return *scaled;
      break;
    case NPU_OP_RECIPROCAL:
      return called("div", type, {convert({NPU_I32, word(1)}, NPU_F64), a[0]});
    case NPU_OP_POW:
      if (real) throw Unsupported{};
      return power(a[0], a[1]);
    default:
      break;
  }
  return called(op_name(op), op == NPU_OP_FREXP_E ? int{NPU_I32} : type, a);
}

// A product with a power of 2 that is known is a third of any other. Uniform numbers are made by one.
std::optional<Number> InWords::by_power(const Number& a, const Number& b) {
  const std::optional<Value> low = emit_.known(b.low), high = emit_.known(b.high);
  if (!low || !high) return emit_.known(a.low) && emit_.known(a.high) ? by_power(b, a) : std::nullopt;
  const auto bits = static_cast<uint32_t>(high->i);
  const int exponent = static_cast<int>(bits >> 20 & 2047);
  if (low->i != 0 || bits & 0xfffff || exponent == 0 || exponent == 2047) return std::nullopt;
  const Number scaled = called("ldexp", NPU_F64, {a, {NPU_I32, word(exponent - 1023)}});
  return bits >> 31 ? called("neg", NPU_F64, {scaled}) : scaled;
}

Number InWords::word_by_word(int op, const Number& a, const Number& b) {
  Number out{a.type};
  const auto each = [&](uint16_t x, uint16_t y) {
    return op == NPU_OP_NOT ? emit_.op(NPU_OP_NOT, NPU_I32, x) : emit_.same(static_cast<npu_op>(op), x, y);
  };
  out.low = each(a.low, b.low);
  out.high = each(a.high, b.high);
  return out;
}

Number InWords::extreme(int op, const Number& a, const Number& b) {
  const bool least = op == NPU_OP_MIN || op == NPU_OP_FMIN;
  const uint16_t beats = compare(least ? NPU_OP_LT : NPU_OP_GT, b, a);
  if (a.type != NPU_F64) return choose(beats, b, a);
  const uint16_t a_nan = test(NPU_OP_ISNAN, a);
  if (op == NPU_OP_FMIN || op == NPU_OP_FMAX) return choose(emit_.op(NPU_OP_OR, NPU_BOOL, a_nan, beats), b, a);
  const uint16_t either = emit_.op(NPU_OP_OR, NPU_BOOL, test(NPU_OP_ISNAN, b), beats);
  return choose(emit_.op(NPU_OP_AND, NPU_BOOL, inverted(a_nan), either), b, a);
}

// By squares, with an exponent that is known: that of one that is not would take 128 products.
Number InWords::power(const Number& base, const Number& exponent) {
  const std::optional<Value> low = emit_.known(exponent.low), high = emit_.known(exponent.high);
  if (!low || !high) throw Unsupported{};
  uint64_t left = static_cast<uint32_t>(low->i) | static_cast<uint64_t>(high->i) << 32;
  if (base.type == NPU_I64 && static_cast<int64_t>(left) < 0) throw Unsupported{};
  Number result{base.type, word(1), word(0), {}}, factor = base;
  for (; left; left >>= 1) {
    if (left & 1) result = arithmetic(NPU_OP_MUL, {result, factor});
    if (left > 1) factor = arithmetic(NPU_OP_MUL, {factor, factor});
  }
  return result;
}

Number InWords::philox(const npu_instr& in) {
  std::vector<uint16_t> words;
  for (const uint16_t id : {in.a, in.b, in.c}) {
    const Number argument = number(id);
    words.insert(words.end(), {argument.low, argument.high});
  }
  return {NPU_I64, emit_.call("philox", words)[in.imm], word(0), {0, UINT32_MAX}};
}

// A word can show what fits it; what does not fit is shown as the nearest that does.
Number InWords::check_index(const npu_instr& in) {
  const Number index = number(in.a), size = number(in.b);
  const uint16_t where = mask(in);
  const bool wraps = in.flags & NPU_INDEX_WRAP, checks = in.flags & NPU_INDEX_CHECK;
  const auto emit = [&](uint16_t a, uint16_t b, uint16_t masked) {
    return writer_.emit(NPU_OP_CHECK_INDEX, NPU_I32, a, b, NPU_NO_VALUE, 0, masked, in.flags);
  };
  Range range = index.range;
  if (wraps) range.most = std::max(range.most, size.range.most - 1);
  if (checks && where == NPU_NO_VALUE) range = {0, std::max<int64_t>(size.range.most - 1, 0)};
  if (index.type == NPU_I32) return {NPU_I32, emit(index.low, size.low, where)};
  if (index.range.in_word() && size.range.in_word()) return extended(emit(index.low, size.low, where), range);
  const auto nearest = [&](const Number& a) {
    const uint16_t limit = emit_.same(NPU_OP_XOR, sign_of(a.high), word(INT32_MAX));
    return choose(is(NPU_OP_EQ, a.high, sign_of(a.low)), a.low, limit);
  };
  if (checks && size.range.in_word()) {
    const Number result = extended(emit(nearest(index), size.low, where), range);
    return where == NPU_NO_VALUE ? result : choose(where, result, index);
  }
  const Number zero = integer(0);
  Number result = index;
  if (wraps) result = choose(compare(NPU_OP_LT, index, zero), arithmetic(NPU_OP_ADD, {index, size}), index);
  if (checks) {
    uint16_t bad = emit_.op(NPU_OP_OR, NPU_BOOL, compare(NPU_OP_LT, result, zero), compare(NPU_OP_GE, result, size));
    if (where != NPU_NO_VALUE) bad = emit_.op(NPU_OP_AND, NPU_BOOL, bad, where);
    emit(nearest(index), nearest(size), bad);
  }
  if (where != NPU_NO_VALUE) return choose(where, result, index);
  result.range = range;
  return range.in_word() ? extended(result.low, range) : result;
}

}  // namespace npu::legalise
