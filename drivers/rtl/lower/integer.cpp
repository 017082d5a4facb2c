// Integers of 64 bits. Most of them are coordinates, sizes and checked indices, whose range is known here and fits a
// lane: these are computed as i32. Others are pairs of words. Results are those of 64 bits in either case.
#include <algorithm>
#include <bit>

#include "drivers/rtl/lower/lower.h"

using namespace npu_hw;

namespace rtl {
namespace {

using Wide = __int128;

struct WideRange {
  Wide least, most;
  bool fits() const { return least >= INT32_MIN && most <= INT32_MAX; }
};

int64_t clamp(Wide value) {
  return static_cast<int64_t>(std::clamp(value, Wide{INT64_MIN}, Wide{INT64_MAX}));
}

bool is_zero(const View& word) {
  return word.immediate && word.bits == 0;
}

}  // namespace

Lowering::Range Lowering::range_of(const Value& value) {
  if (value.dtype == NPU_BOOL && !value.view.immediate) return {0, 1};
  if (!value.view.immediate) return value.wide ? Range{INT64_MIN, INT64_MAX} : value.range;
  const int64_t low = static_cast<int32_t>(value.view.bits);
  if (!value.wide) return {low, low};
  if (!value.high.immediate) return {INT64_MIN, INT64_MAX};
  const auto both = static_cast<int64_t>(uint64_t{value.high.bits} << 32 | value.view.bits);
  return {both, both};
}

Lowering::Value Lowering::integer(int64_t value, int dtype) {
  Value made{immediate(static_cast<uint32_t>(value)), dtype};
  made.range = {value, value};
  made.wide = dtype == NPU_I64 && !made.range.fits();
  if (made.wide) made.high = immediate(static_cast<uint32_t>(static_cast<uint64_t>(value) >> 32));
  return made;
}

View Lowering::high_word(const Value& value) {
  if (value.wide) return value.high;
  if (range_of(value).least >= 0) return immediate(0);
  return apply(NPU_I32, VEC_SHR, value.view, immediate(31)).view;
}

Lowering::Value Lowering::add(const Value& a, const Value& b) {
  const Range x = range_of(a), y = range_of(b);
  const WideRange sum{Wide{x.least} + y.least, Wide{x.most} + y.most};
  Value made = apply(NPU_I64, VEC_IADD, a.view, b.view);
  made.range = {clamp(sum.least), clamp(sum.most)};
  made.wide = a.wide || b.wide || !sum.fits();
  if (made.wide) {
    const View carry =
        is_zero(a.view) || is_zero(b.view) ? immediate(0) : apply(NPU_I32, VEC_ULT, made.view, b.view).view;
    const View high = apply(NPU_I32, VEC_IADD, high_word(a), high_word(b)).view;
    made.high = apply(NPU_I32, VEC_IADD, high, carry).view;
  }
  return made;
}

Lowering::Value Lowering::subtract(const Value& a, const Value& b) {
  const Range x = range_of(a), y = range_of(b);
  const WideRange rest{Wide{x.least} - y.most, Wide{x.most} - y.least};
  Value made = apply(NPU_I64, VEC_ISUB, a.view, b.view);
  made.range = {clamp(rest.least), clamp(rest.most)};
  made.wide = a.wide || b.wide || !rest.fits();
  if (made.wide) {
    const View borrow = apply(NPU_I32, VEC_ULT, a.view, b.view).view;
    const View high = apply(NPU_I32, VEC_ISUB, high_word(a), high_word(b)).view;
    made.high = apply(NPU_I32, VEC_ISUB, high, borrow).view;
  }
  return made;
}

Lowering::Value Lowering::multiply(const Value& a, const Value& b) {
  const Range x = range_of(a), y = range_of(b);
  const auto corners = {Wide{x.least} * y.least, Wide{x.least} * y.most, Wide{x.most} * y.least, Wide{x.most} * y.most};
  const WideRange product{std::min(corners), std::max(corners)};
  Value made = apply(NPU_I64, VEC_IMUL, a.view, b.view);
  made.range = {clamp(product.least), clamp(product.most)};
  made.wide = a.wide || b.wide || !product.fits();
  if (made.wide) {
    const auto word = [&](uint32_t op, const View& p, const View& q) { return apply(NPU_I32, op, p, q).view; };
    const View crossed = word(VEC_IADD, word(VEC_IMUL, a.view, high_word(b)), word(VEC_IMUL, high_word(a), b.view));
    made.high = word(VEC_IADD, word(VEC_UMULH, a.view, b.view), crossed);
  }
  return made;
}

Lowering::Value Lowering::less(const Value& a, const Value& b) {
  const Range x = range_of(a), y = range_of(b);
  if (x.most < y.least) return integer(1, NPU_BOOL);
  if (x.least >= y.most) return integer(0, NPU_BOOL);
  if (!a.wide && !b.wide) return apply(NPU_BOOL, VEC_ILT, a.view, b.view);
  const View p = high_word(a), q = high_word(b);
  const View below = apply(NPU_BOOL, VEC_ULT, a.view, b.view).view;
  const View same = apply(NPU_BOOL, VEC_IEQ, p, q).view;
  const View high = apply(NPU_BOOL, VEC_ILT, p, q).view;
  return apply(NPU_BOOL, VEC_OR, high, apply(NPU_BOOL, VEC_AND, same, below).view);
}

Lowering::Value Lowering::equal(const Value& a, const Value& b) {
  const Range x = range_of(a), y = range_of(b);
  if (x.most < y.least || y.most < x.least) return integer(0, NPU_BOOL);
  const Value low = apply(NPU_BOOL, VEC_IEQ, a.view, b.view);
  if (!a.wide && !b.wide) return low;
  return apply(NPU_BOOL, VEC_AND, low.view, apply(NPU_BOOL, VEC_IEQ, high_word(a), high_word(b)).view);
}

// By a number that is the same everywhere: the high word of a product with its reciprocal. With s the bits of d - 1 and
// m = floor(2^(31 + s) / d) + 1, x / d is x * m >> (31 + s) for all x below 2^31.
Lowering::Value Lowering::divide(int op, const Value& a, const Value& b) {
  const int dtype = a.dtype;
  const Range x = range_of(a), y = range_of(b);
  if (a.wide || y.least != y.most || y.least < 0 || y.most > INT32_MAX)
    throw Unsupported{"a division of integers by other than a positive number of 31 bits, the same everywhere"};
  const int64_t d = y.least;
  if (d == 0) return integer(0, dtype);
  const auto word = [&](uint32_t p, const View& l, const View& r) { return apply(NPU_I32, p, l, r).view; };
  const bool floor = op == NPU_OP_FLOORDIV || op == NPU_OP_MOD;
  // Of a negative number floor(a / d) is ~(~a / d); towards zero it is one more, unless nothing is left.
  const View sign = x.least >= 0 ? immediate(0) : word(VEC_SHR, a.view, immediate(31));
  const View magnitude = x.least >= 0 ? a.view : word(VEC_XOR, a.view, sign);
  View q = magnitude;
  if (d > 1) {
    const int s = std::bit_width(static_cast<uint64_t>(d - 1));
    const auto m = static_cast<uint32_t>((uint64_t{1} << (31 + s)) / static_cast<uint64_t>(d) + 1);
    q = word(VEC_UMULH, magnitude, immediate(m));
    if (s > 1) q = word(VEC_SHR, q, immediate(static_cast<uint32_t>(s - 1)));
  }
  if (x.least < 0) q = word(VEC_XOR, q, sign);
  const View by = immediate(static_cast<uint32_t>(d));
  View rest = word(VEC_ISUB, a.view, word(VEC_IMUL, q, by));
  if (x.least < 0 && !floor) {
    const View up = word(VEC_AND, sign, word(VEC_ILT, immediate(0), rest));
    q = word(VEC_IADD, q, up);
    rest = word(VEC_ISUB, rest, word(VEC_IMUL, up, by));
  }
  const auto down = [&](int64_t n) { return n / d - (floor && n % d < 0); };
  if (op == NPU_OP_DIV || op == NPU_OP_FLOORDIV) return {q, dtype, {down(x.least), down(x.most)}};
  return {rest, dtype, {floor || x.least >= 0 ? 0 : 1 - d, floor || x.most > 0 ? d - 1 : 0}};
}

// Bits: word by word. Of two numbers of 32 bits the result is one.
Lowering::Value Lowering::words(int dtype, uint32_t op, const Value& a, const Value& b) {
  Value made = apply(dtype, op, a.view, b.view);
  const Range x = range_of(a), y = range_of(b);
  if (op == VEC_AND && (x.least >= 0 || y.least >= 0)) {
    made.range = {0, x.least < 0 ? y.most : y.least < 0 ? x.most : std::min(x.most, y.most)};
    if (made.range.fits()) return made;
  }
  made.wide = a.wide || b.wide;
  if (!made.wide) return made;
  const bool clears = op == VEC_AND && ((a.wide && is_zero(a.high)) || (b.wide && is_zero(b.high)));
  made.high = clears ? immediate(0) : apply(NPU_I32, op, high_word(a), high_word(b)).view;
  return made;
}

// By a number of bits that is the same everywhere.
Lowering::Value Lowering::shift(int op, const Value& a, const Value& b) {
  const Range by = range_of(b);
  if (op == NPU_OP_SHR && !a.wide && !b.wide) {  // 32 and more leaves the sign, of 32 bits as of 64
    Value made = apply(NPU_I64, VEC_SHR, a.view, b.view);
    const Range x = range_of(a);
    const int64_t count = std::min<int64_t>(by.least, 63);
    if (by.least == by.most && count >= 0) made.range = {x.least >> count, x.most >> count};
    return made;
  }
  if (by.least != by.most || (op == NPU_OP_SHR && by.least < 32))
    throw Unsupported{"a shift of an i64 by other than the same number everywhere, which is 32 or more to the right"};
  const int64_t count = by.least;
  if (op == NPU_OP_SHR)
    return apply(NPU_I64, VEC_SHR, high_word(a), immediate(static_cast<uint32_t>(std::min<int64_t>(count - 32, 31))));
  if (count < 0 || count > 63) return integer(0);
  if (count < 32) return multiply(a, integer(int64_t{1} << count));
  Value made{immediate(0), NPU_I64};
  made.wide = true;
  made.high = count == 32 ? a.view : apply(NPU_I32, VEC_SHL, a.view, immediate(static_cast<uint32_t>(count - 32))).view;
  return made;
}

// Philox4x32-10: docs/isa.md, "Random".
Lowering::Value Lowering::philox(const Value& seed, const Value& offset, const Value& subsequence, uint32_t word) {
  const auto i = [&](uint32_t op, const View& a, const View& b) { return apply(NPU_I32, op, a, b).view; };
  View x[4] = {offset.view, high_word(offset), subsequence.view, high_word(subsequence)};
  View key[2] = {seed.view, high_word(seed)};
  for (int round = 0; round < 10; round++) {
    const View p = immediate(0xD2511F53), q = immediate(0xCD9E8D57);
    const View next[4] = {i(VEC_XOR, i(VEC_XOR, i(VEC_UMULH, x[2], q), x[1]), key[0]), i(VEC_IMUL, x[2], q),
                          i(VEC_XOR, i(VEC_XOR, i(VEC_UMULH, x[0], p), x[3]), key[1]), i(VEC_IMUL, x[0], p)};
    std::copy(next, next + 4, x);
    key[0] = i(VEC_IADD, key[0], immediate(0x9E3779B9));
    key[1] = i(VEC_IADD, key[1], immediate(0xBB67AE85));
  }
  Value made{x[word], NPU_I64};
  made.wide = true;
  made.high = immediate(0);
  return made;
}

Lowering::Value Lowering::compute_long(const npu_instr& in, const Value* v) {
  const Value &a = v[0], &b = v[1];
  switch (in.op) {
    case NPU_OP_ADD:
      return add(a, b);
    case NPU_OP_SUB:
      return subtract(a, b);
    case NPU_OP_MUL:
      return multiply(a, b);
    case NPU_OP_FMA:
      return add(multiply(a, b), v[2]);
    case NPU_OP_NEG:
      return subtract(integer(0), a);
    case NPU_OP_ABS:
      return range_of(a).least >= 0 ? a : select(less(a, integer(0)), subtract(integer(0), a), a);
    case NPU_OP_MIN:
    case NPU_OP_MAX:
    case NPU_OP_FMIN:
    case NPU_OP_FMAX: {
      const bool least = in.op == NPU_OP_MIN || in.op == NPU_OP_FMIN;
      Value made = select(least ? less(b, a) : less(a, b), b, a);
      const Range x = range_of(a), y = range_of(b);
      if (!made.wide)
        made.range = least ? Range{std::min(x.least, y.least), std::min(x.most, y.most)}
                           : Range{std::max(x.least, y.least), std::max(x.most, y.most)};
      return made;
    }
    case NPU_OP_EQ:
      return equal(a, b);
    case NPU_OP_NE:
      return invert(equal(a, b));
    case NPU_OP_LT:
      return less(a, b);
    case NPU_OP_GT:
      return less(b, a);
    case NPU_OP_LE:
      return invert(less(b, a));
    case NPU_OP_GE:
      return invert(less(a, b));
    case NPU_OP_SIGNBIT:
      return less(a, integer(0));
    case NPU_OP_SIGN:
      return subtract(convert(less(integer(0), a), NPU_I64), convert(less(a, integer(0)), NPU_I64));
    case NPU_OP_AND:
      return words(NPU_I64, VEC_AND, a, b);
    case NPU_OP_OR:
      return words(NPU_I64, VEC_OR, a, b);
    case NPU_OP_XOR:
      return words(NPU_I64, VEC_XOR, a, b);
    case NPU_OP_NOT:
      return words(NPU_I64, VEC_XOR, a, integer(-1));
    case NPU_OP_SHR:
    case NPU_OP_SHL:
      return shift(in.op, a, b);
    case NPU_OP_DIV:
    case NPU_OP_FLOORDIV:
    case NPU_OP_MOD:
    case NPU_OP_FMOD:
      return divide(in.op, a, b);
    case NPU_OP_PHILOX:
      return philox(a, b, v[2], in.imm);
    default:
      break;
  }
  throw Unsupported{std::string("the instruction ") + npu::op_name(in.op) + " of type i64"};
}

Lowering::Value Lowering::convert_long(const Value& value, int dtype) {
  if (dtype == NPU_I64) {
    if (value.dtype != NPU_F32) return {value.view, dtype, range_of(value)};
    Value made = apply(dtype, VEC_F2L, value.view);
    made.wide = true;
    made.high = apply(NPU_I32, VEC_F2H, value.view).view;
    return made;
  }
  if (dtype == NPU_I32) return {value.view, dtype, value.wide ? Range{} : range_of(value)};
  if (dtype == NPU_BOOL) {
    const View any = value.wide ? apply(NPU_I32, VEC_OR, value.view, value.high).view : value.view;
    return invert(apply(dtype, VEC_IEQ, any, immediate(0)));
  }
  return value.wide ? apply(dtype, VEC_L2F, value.view, value.high) : apply(dtype, VEC_I2F, value.view);
}

}  // namespace rtl
