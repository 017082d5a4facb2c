#include "drivers/cmodel/jit/vectors.h"

#include <cstddef>

namespace cmodel {
namespace {

constexpr int kTailMask = 1;  // k1: of the rest
constexpr uint8_t kUnordered = 3;
constexpr uint32_t kNaN = 0x7fc00000u;

using E = Encoder;
// AVX-512 only: the highest bits into a mask; x * 2^n; bytes; 16 of 32 bits; where not all bits of both are 0.
constexpr E::Code kSigns{E::k0F38, E::kF3, 0x39}, kScale{E::k0F38, E::k66, 0x2c}, kBlendMask{E::k0F38, E::k66, 0x65},
    kLoadBytes{E::k0F, E::kF2, 0x6f}, kStoreBytes{E::k0F, E::kF2, 0x7f}, kToWords{E::k0F38, E::kF3, 0x33},
    kTest{E::k0F38, E::k66, 0x26};
// AVX2 only.
constexpr E::Code kBlend{E::k0F3A, E::k66, 0x4a}, kNearestInt{E::k0F, E::k66, 0x5b}, kGreater{E::k0F, E::k66, 0x66},
    kFromGeneral{E::k0F, E::k66, 0x6e}, kSpread{E::k0F38, E::k66, 0x58}, kMaskLoad{E::k0F38, E::k66, 0x2c},
    kMaskStore{E::k0F38, E::k66, 0x2e}, kUpperHalf{E::k0F3A, E::k66, 0x39}, kPackWords{E::k0F38, E::k66, 0x2b},
    kPackBytes{E::k0F, E::k66, 0x67}, kStoreQuarter{E::k0F, E::k66, 0xd6}, kLoadFlags{E::k0F38, E::k66, 0x31},
    kInsertByte{E::k0F3A, E::k66, 0x20}, kInsertWord{E::k0F, E::k66, 0xc4}, kExtractByte{E::k0F3A, E::k66, 0x14},
    kExtractWord{E::k0F3A, E::k66, 0x15};
// Both: 16 bits to 32, F32 to F16 and back, and ways to memory.
constexpr E::Code kFromWords{E::k0F38, E::k66, 0x33}, kToHalf{E::k0F3A, E::k66, 0x1d}, kLoad{E::k0F, E::kNo, 0x10},
    kStore{E::k0F, E::kNo, 0x11}, kStream{E::k0F, E::kNo, 0x2b}, kStoreWords{E::k0F, E::kF3, 0x7f},
    kStreamWords{E::k0F, E::k66, 0xe7};

alignas(64) constexpr uint8_t kOneBytes[64] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
alignas(64) constexpr int32_t kCount[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

}  // namespace

void Vectors::signs(int mask, int x) {
  wide() ? op(kSigns, mask, 0, x) : shift(kRightSigned, mask, x, 31);
}

void Vectors::logic(Logic how, int to, int a, int b) {
  if (!wide()) {
    if (how == kMaskNot) return op_bits(kXor, to, a, ~0u);
    return op(how == kMaskAnd ? kAnd : how == kMaskOr ? kOr : kXor, to, a, b);
  }
  // Two-byte VEX; `not` has one argument and the short length.
  constexpr uint8_t kOpcode[] = {0x41, 0x44, 0x45, 0x47};
  const bool one = how == kMaskNot;
  bytes({0xc5, static_cast<uint8_t>(0x80 | ((one ? 15 : ~a & 15) << 3) | (one ? 0 : 4)), kOpcode[how]});
  modrm_reg(to, one ? a : b);
}

void Vectors::choose(int to, int mask, int yes, int no) {
  if (wide()) return op(kBlendMask, to, no, yes, mask);
  op_imm(kBlend, to, no, yes, static_cast<uint8_t>(mask << 4));
}

void Vectors::move_where(int mask, int to, int from) {
  wide() ? op(kMove, to, 0, from, mask) : choose(to, mask, from, to);
}

void Vectors::move_where_negative(int x, int to, int from) {
  if (!wide()) return choose(to, x, from, to);  // which looks at these bits alone
  signs(spare_mask(), x);
  move_where(spare_mask(), to, from);
}

void Vectors::op_where(int mask, Code code, int to, int first, int second) {
  if (wide()) return op(code, to, first, second, mask);
  op(code, spare(), first, second);
  choose(to, mask, spare(), to);
}

void Vectors::op_bits_where(int mask, Code code, int to, int first, uint32_t bits) {
  if (wide()) return op_bits(code, to, first, bits, mask);
  op_bits(code, spare(), first, bits);
  choose(to, mask, spare(), to);
}

void Vectors::bits_where(int mask, int to, uint32_t bits) {
  if (wide()) return op_bits(kBroadcast, to, 0, bits, mask);
  head(kBlend.map, kBlend.prefix, to, to, 0, 0, false, kWholeLength);
  byte(kBlend.opcode);
  behind(to, {0, number_at(bits), 1, false});
  byte(static_cast<uint8_t>(mask << 4));
}

void Vectors::number_or_zero(int mask, int to, float number) {
  if (!wide()) return op_number(kAnd, to, mask, number);
  zero(to);
  number_where(mask, to, number);
}

void Vectors::scale(int x, int n, Range range) {
  if (wide()) return op(kScale, x, x, n);
  op(kNearestInt, n, 0, n);
  if (range != kAny) {
    // Added to the exponent; a NaN stays one, since its n is 2^31. Down: at 2^64, where nothing is subnormal.
    if (range == kDown) op_bits(kMul, x, x, (127u + 64u) << 23);
    shift(kLeft, n, n, 23);
    op(kIntAdd, x, x, n);
    if (range == kDown) op_bits(kMul, x, x, (127u - 64u) << 23);
    return;
  }
  // By two powers of two, since one of them may be none that F32 has.
  const int half = spare();
  shift(kRightSigned, half, n, 1);
  op(kIntSub, n, n, half);
  for (const int power : {half, n}) {
    op_bits(kIntAdd, power, power, 127);
    shift(kLeft, power, power, 23);
    op(kMul, x, x, power);
  }
}

void Vectors::to_bfloat(int to, int from) {
  const int mask = spare_mask();
  compare(mask, from, from, kUnordered);
  shift(kRight, to, from, 16);
  op_bits(kAnd, to, to, 1);
  op_bits(kIntAdd, to, to, 0x7fff);
  op(kIntAdd, to, to, from);
  bits_where(mask, to, kNaN);
  shift(kRight, to, to, 16);
}

void Vectors::round_to_bfloat(int to, int from) {
  to_bfloat(to, from);
  shift(kLeft, to, to, 16);
}

void Vectors::to_halves(int to, int from) {
  op_imm(kToHalf, from, 0, to, 0);  // to the nearest
}

void Vectors::round_to_half(int to, int from) {
  to_halves(to, from);
  op(kFromHalf, to, 0, to);
}

// The lower halves of 32-bit elements, which hold nothing else, next to each other.
void Vectors::to_words(int to, int from) {
  if (wide()) return op(kToWords, from, 0, to);
  const int upper = spare_mask();
  op_imm(kUpperHalf, from, 0, upper, 1);
  op(kPackWords, to, from, upper, 0, kHalfLength);
}

int32_t Vectors::rest_at(int rest) {
  return static_cast<int32_t>(offsetof(LoopArguments, rest) + sizeof(int32_t) * 8 * static_cast<size_t>(rest));
}

void Vectors::begin_rest() {
  if (wide()) {
    bytes({0xbf, 0xff, 0xff, 0xff, 0xff});  // mov edi, -1
    bytes({0xc4, 0xe2, 0x68, 0xf5, 0xff});  // bzhi edi, edi, edx
    bytes({0xc5, 0xf8, 0x92, 0xcf});        // kmovw k1, edi
    return;
  }
  const int count = spare(), mask = spare_mask();
  op(kFromGeneral, count, 0, kRdx, 0, kHalfLength);
  op(kSpread, count, 0, count);
  for (int part = 0; part < per_unit(); ++part) {
    op_table(kGreater, mask, count, kCount, 32 * static_cast<size_t>(part));
    store(kRsi, mask, rest_at(part));
  }
}

void Vectors::load_mask_of_rest(int rest) {
  load(spare(), kRsi, rest_at(rest));
}

template <class F>
void Vectors::each_of_rest(int rest, F f) {
  size_t ends[8];
  for (int i = 0; i < 8; ++i) {
    compare(kRdx, static_cast<int8_t>(8 * rest + i));
    ends[i] = jump(kNotGreater);
    f(i);
  }
  for (const size_t end : ends) land(end);
}

void Vectors::load_each(int reg, int base, int32_t at, int size, int rest) {
  zero(reg);
  each_of_rest(rest, [&](int i) {
    memory(size == 1 ? kInsertByte : kInsertWord, reg, reg, base, at + size * i, 0, false, kHalfLength);
    byte(static_cast<uint8_t>(i));
  });
}

void Vectors::store_each(int base, int reg, int32_t at, int size, int rest) {
  each_of_rest(rest, [&](int i) {
    memory(size == 1 ? kExtractByte : kExtractWord, reg, 0, base, at + size * i, 0, false, kHalfLength);
    byte(static_cast<uint8_t>(i));
  });
}

void Vectors::load_value(int reg, Storage storage, int base, int32_t at, int rest) {
  const bool all = rest == kAll;
  const int mask = all ? 0 : kTailMask;
  if (storage == kSame) return broadcast(reg, base, at);
  if (storage == kOwn) {
    if (all || wide()) return memory(kLoad, reg, 0, base, at, mask, true);
    load_mask_of_rest(rest);
    return memory(kMaskLoad, reg, spare(), base, at);
  }
  const Code convert = storage == kHalf ? kFromHalf : kFromWords;
  if (all || wide()) {
    memory(convert, reg, 0, base, at, mask, true);
  } else {
    load_each(reg, base, at, 2, rest);
    op(convert, reg, 0, reg);
  }
  if (storage == kBFloat) shift(kLeft, reg, reg, 16);
}

void Vectors::store_value(int base, int reg, Storage storage, int32_t at, int rest, bool streams) {
  const bool all = rest == kAll;
  const int mask = all ? 0 : kTailMask;
  if (storage == kOwn) {
    if (all && streams) return memory(kStream, reg, 0, base, at);
    if (all || wide()) return memory(kStore, reg, 0, base, at, mask);
    load_mask_of_rest(rest);
    return memory(kMaskStore, reg, spare(), base, at);
  }
  const int words = spare();
  if (storage == kHalf) {
    if ((all && !streams) || (!all && wide())) {
      memory(kToHalf, reg, 0, base, at, mask);
      return byte(0);  // to the nearest
    }
    to_halves(words, reg);
  } else {
    to_bfloat(words, reg);
    if (wide() && !(all && streams)) return memory(kToWords, words, 0, base, at, mask);
    to_words(words, words);
  }
  if (!all) return store_each(base, words, at, 2, rest);
  memory(streams ? kStreamWords : kStoreWords, words, 0, base, at, 0, false, kHalfLength);
}

void Vectors::load_flags(int reg, int base, int32_t at, int rest) {
  if (wide()) {
    memory(kLoadBytes, spare(), 0, base, at, rest == kAll ? 0 : kTailMask, true, kQuarterLength);
    return op(kTest, reg, spare(), spare(), 0, kQuarterLength);
  }
  if (rest == kAll) {
    memory(kLoadFlags, reg, 0, base, at);
  } else {
    load_each(reg, base, at, 1, rest);
    op(kLoadFlags, reg, 0, reg);
  }
  // The highest bit of 0 - x, for x in [0, 255].
  zero(spare());
  op(kIntSub, reg, spare(), reg);
  shift(kRightSigned, reg, reg, 31);
}

void Vectors::store_flags(int base, int reg, int32_t at, int rest) {
  const int flags = spare();
  if (wide()) {
    op_table(kLoadBytes, flags, 0, kOneBytes, 0, reg, true, kQuarterLength);
    return memory(kStoreBytes, flags, 0, base, at, rest == kAll ? 0 : kTailMask, false, kQuarterLength);
  }
  shift(kRight, flags, reg, 31);
  to_words(flags, flags);
  op(kPackBytes, flags, flags, flags, 0, kHalfLength);
  if (rest != kAll) return store_each(base, flags, at, 1, rest);
  memory(kStoreQuarter, flags, 0, base, at, 0, false, kHalfLength);
}

void Vectors::keep(int base, int reg, int32_t at, bool flag) {
  if (!flag || !has_masks()) return store(base, reg, at);
  bytes({0xc4, 0xe1, 0x78, 0x91});  // kmovw
  modrm_memory(reg, base, at);
}

void Vectors::fetch(int reg, int base, int32_t at, bool flag) {
  if (!flag || !has_masks()) return load(reg, base, at);
  bytes({0xc4, 0xe1, 0x78, 0x90});
  modrm_memory(reg, base, at);
}

void Vectors::add_to(int sum, int value, int rest) {
  if (wide() || rest == kAll) return op(kAdd, sum, sum, value, rest == kAll ? 0 : kTailMask);
  op_memory(kAnd, spare(), value, kRsi, rest_at(rest));
  op(kAdd, sum, sum, spare());
}

void Vectors::add_to_memory(int base, int32_t at, int value, int rest) {
  load(spare(), base, at);
  if (rest == kAll || wide()) {
    add_to(spare(), value, rest);
  } else {
    op_memory(kAnd, spare(), value, kRsi, rest_at(rest));
    op_memory(kAdd, spare(), spare(), base, at);
  }
  store(base, spare(), at);
}

}  // namespace cmodel
