// Encodes the few x86-64 instructions that compiled loops are made of: vector instructions, of which AVX-512 and AVX2
// have the same opcodes behind different prefixes, and those on the pointers around them. Numbers and tables that
// instructions read lie behind the code. What only one of the two has is in jit/vectors.h.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

namespace cmodel {

class Encoder {
 public:
  explicit Encoder(bool wide) : wide_(wide) {}
  // AVX-512: 32 registers of 512 bits. Else AVX2: 16 of 256, and no masks.
  bool wide() const { return wide_; }
  int lanes() const { return wide_ ? 16 : 8; }

  enum Map : uint8_t { k0F = 1, k0F38 = 2, k0F3A = 3 };
  enum Prefix : uint8_t { kNo = 0, k66 = 1, kF3 = 2, kF2 = 3 };
  enum Length : uint8_t { kQuarterLength = 0, kHalfLength = 1, kWholeLength = 2 };  // AVX2 takes a quarter as a half
  // Opcodes on vector registers.
  struct Code {
    Map map;
    Prefix prefix;
    uint8_t opcode;
  };
  static constexpr Code kAdd{k0F, kNo, 0x58}, kMul{k0F, kNo, 0x59}, kSub{k0F, kNo, 0x5c}, kDiv{k0F, kNo, 0x5e},
      kMin{k0F, kNo, 0x5d}, kMax{k0F, kNo, 0x5f}, kSqrt{k0F, kNo, 0x51}, kMove{k0F, kNo, 0x28}, kXor{k0F, k66, 0xef},
      kAnd{k0F, k66, 0xdb}, kOr{k0F, k66, 0xeb}, kFma231{k0F38, k66, 0xb8}, kFma213{k0F38, k66, 0xa8},
      kFnma231{k0F38, k66, 0xbc}, kRound{k0F3A, k66, 0x08}, kCompare{k0F, kNo, 0xc2}, kToInt{k0F, kF3, 0x5b},
      kPermute{k0F38, k66, 0x16}, kBroadcast{k0F38, k66, 0x18}, kIntAdd{k0F, k66, 0xfe}, kIntSub{k0F, k66, 0xfa},
      kFromInt{k0F, kNo, 0x5b}, kFromHalf{k0F38, k66, 0x13};

  // reg = op(first, second); unary ones take `second` only. With a mask, elements outside it stay.
  void op(Code code, int reg, int first, int second, int mask = 0, Length length = kWholeLength) {
    head(code.map, code.prefix, reg, first, second, mask, false, length);
    byte(code.opcode);
    modrm_reg(reg, second);
  }
  void op_imm(Code code, int reg, int first, int second, uint8_t imm, Length length = kWholeLength) {
    op(code, reg, first, second, 0, length);
    byte(imm);
  }
  // The second argument is one number for all, or (64 bytes of) a table, behind the code.
  void op_number(Code code, int reg, int first, float number, int mask = 0) {
    op_bits(code, reg, first, bits_of(number), mask);
  }
  void op_bits(Code code, int reg, int first, uint32_t bits, int mask = 0) {
    // vbroadcastss takes one number as it is.
    const bool one = wide_ && code.opcode != kBroadcast.opcode;
    head(code.map, code.prefix, reg, first, 0, mask, false, kWholeLength, one);
    byte(code.opcode);
    behind(reg, {0, number_at(bits), 0, false});
  }
  void op_table(Code code, int reg, int first, const void* table, size_t offset = 0, int mask = 0, bool zero = false,
                Length length = kWholeLength) {
    const auto found = std::find(tables_.begin(), tables_.end(), table);
    const size_t at = static_cast<size_t>(found - tables_.begin());
    if (found == tables_.end()) tables_.push_back(table);
    head(code.map, code.prefix, reg, first, 0, mask, zero, length);
    byte(code.opcode);
    behind(reg, {0, 64 * at + offset, 0, true});
  }

  enum Shift : uint8_t { kRight = 2, kRightSigned = 4, kLeft = 6 };
  void shift(Shift how, int reg, int from, uint8_t by) {
    head(k0F, k66, how, reg, from, 0, false, kWholeLength);
    byte(0x72);
    modrm_reg(how, from);
    byte(by);
  }

  // A vector, `at` bytes behind the address in general register `base`.
  void load(int reg, int base, int32_t at = 0) { memory({k0F, kNo, 0x10}, reg, 0, base, at); }
  void store(int base, int reg, int32_t at = 0) { memory({k0F, kNo, 0x11}, reg, 0, base, at); }
  void op_memory(Code code, int reg, int first, int base, int32_t at) { memory(code, reg, first, base, at); }
  void broadcast(int reg, int base, int32_t at) { memory(kBroadcast, reg, 0, base, at); }

  // General registers.
  static constexpr int kRdx = 2, kRsi = 6, kRdi = 7;
  void load_pointer(int reg, int base, int32_t offset) { general(0x8b, reg, base, offset); }   // mov reg, [..]
  void store_pointer(int base, int32_t offset, int reg) { general(0x89, reg, base, offset); }  // mov [..], reg
  void add_memory(int reg, int base, int32_t offset) { general(0x03, reg, base, offset); }     // add reg, [..]
  void add_to_memory(int base, int32_t offset, int reg) { general(0x01, reg, base, offset); }  // add [..], reg
  void add_to_memory_number(int base, int32_t offset, int8_t by) {
    bytes({static_cast<uint8_t>(0x48 | base >> 3), 0x83});
    modrm_memory(0, base, offset);
    byte(static_cast<uint8_t>(by));
  }
  void prefetch(int base, int index, int8_t at) {  // [base + index + at], into the second cache
    bytes({static_cast<uint8_t>(0x40 | (index >> 3) << 1 | base >> 3), 0x0f, 0x18, 0x54,
           static_cast<uint8_t>((index & 7) << 3 | (base & 7)), static_cast<uint8_t>(at)});
  }
  void add(int reg, int8_t by) { small(reg, 0, by); }
  void sub(int reg, int8_t by) { small(reg, 5, by); }
  void compare(int reg, int8_t with) { small(reg, 7, with); }
  void push(int reg) {
    if (reg >= 8) byte(0x41);
    byte(static_cast<uint8_t>(0x50 | (reg & 7)));
  }
  void pop(int reg) {
    if (reg >= 8) byte(0x41);
    byte(static_cast<uint8_t>(0x58 | (reg & 7)));
  }
  void finish() {
    bytes({0xc5, 0xf8, 0x77, 0xc3});  // vzeroupper, ret
    code.resize((code.size() + 63) / 64 * 64);
    const size_t tables = code.size();
    for (const void* table : tables_) {
      const auto* from = static_cast<const uint8_t*>(table);
      code.insert(code.end(), from, from + 64);
    }
    const size_t numbers = code.size();
    for (uint32_t bits : numbers_)
      for (int i = 0; i < copies(); ++i) word(static_cast<int32_t>(bits));
    for (const Behind& b : behind_) set_distance(b.from, (b.table ? tables : numbers) + b.offset - b.beyond);
  }

  enum Condition : uint8_t { kLess = 0x8c, kNotLess = 0x8d, kNotGreater = 0x8e, kEqual = 0x84, kNotEqual = 0x85 };
  // A jump to `target`, or to a place that land() sets later: returns where the distance is.
  size_t jump(Condition condition, size_t target = 0) {
    bytes({0x0f, condition, 0, 0, 0, 0});
    const size_t at = code.size() - 4;
    set_distance(at, target);
    return at;
  }
  void land(size_t at) { set_distance(at, code.size()); }

  std::vector<uint8_t> code;

 protected:
  static uint32_t bits_of(float number) {
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    return bits;
  }
  void byte(uint8_t b) { code.push_back(b); }
  void bytes(std::initializer_list<uint8_t> list) { code.insert(code.end(), list); }
  void word(int32_t w) {
    for (int i = 0; i < 4; ++i) byte(static_cast<uint8_t>(static_cast<uint32_t>(w) >> (8 * i)));
  }
  // `rm` is a vector register (5 bits, its highest in X) or the base of an address (4 bits). one: the argument in
  // memory is one number for all.
  void head(Map map, Prefix prefix, int reg, int vvvv, int rm, int mask, bool zero, Length length, bool one = false) {
    if (!wide_) {  // VEX
      byte(0xc4);
      byte(static_cast<uint8_t>((reg & 8 ? 0 : 0x80) | 0x40 | (rm & 8 ? 0 : 0x20) | map));
      byte(static_cast<uint8_t>((~vvvv & 15) << 3 | (length == kWholeLength ? 4 : 0) | prefix));
      return;
    }
    byte(0x62);  // EVEX
    byte(static_cast<uint8_t>((reg & 8 ? 0 : 0x80) | (rm & 16 ? 0 : 0x40) | (rm & 8 ? 0 : 0x20) |
                              (reg & 16 ? 0 : 0x10) | map));
    byte(static_cast<uint8_t>((~vvvv & 15) << 3 | 4 | prefix));
    byte(static_cast<uint8_t>((zero ? 0x80 : 0) | length << 5 | (one ? 0x10 : 0) | (vvvv & 16 ? 0 : 8) | mask));
  }
  void modrm_reg(int reg, int rm) { byte(static_cast<uint8_t>(0xc0 | (reg & 7) << 3 | (rm & 7))); }
  // A SIB byte without an index, and 8 or 32 bits of offset. EVEX instructions scale the short one: it is 0.
  void modrm_memory(int reg, int base, int32_t offset, bool scales = false) {
    const bool small_one = offset == 0 || (!scales && offset == static_cast<int8_t>(offset));
    byte(static_cast<uint8_t>((small_one ? 0x40 : 0x80) | (reg & 7) << 3 | 4));
    byte(static_cast<uint8_t>(0x20 | (base & 7)));
    small_one ? byte(static_cast<uint8_t>(offset)) : word(offset);
  }
  void memory(Code code_of, int reg, int first, int base, int32_t at, int mask = 0, bool zero = false,
              Length length = kWholeLength) {
    head(code_of.map, code_of.prefix, reg, first, base, mask, zero && mask, length);
    byte(code_of.opcode);
    modrm_memory(reg, base, at, wide_);
  }
  // An instruction's second argument in the memory behind the code, `offset` bytes into the tables or the numbers. The
  // distance counts from the end of the instruction, which is `beyond` bytes behind the end of the distance.
  struct Behind {
    size_t from, offset, beyond;
    bool table;
  };
  void behind(int reg, Behind where) {
    byte(static_cast<uint8_t>((reg & 7) << 3 | 5));
    where.from = code.size();
    behind_.push_back(where);
    word(0);
  }
  // Only AVX-512 instructions spread one number in memory themselves.
  int copies() const { return wide_ ? 1 : lanes(); }
  size_t number_at(uint32_t bits) {
    const auto found = std::find(numbers_.begin(), numbers_.end(), bits);
    const size_t at = static_cast<size_t>(found - numbers_.begin());
    if (found == numbers_.end()) numbers_.push_back(bits);
    return at * sizeof bits * static_cast<size_t>(copies());
  }

 private:
  // Between a general register and [base + offset], in 64 bits.
  void general(uint8_t opcode, int reg, int base, int32_t offset) {
    bytes({static_cast<uint8_t>(0x48 | (reg >> 3) << 2 | base >> 3), opcode});
    modrm_memory(reg, base, offset);
  }
  void set_distance(size_t at, size_t target) {
    const int32_t distance = static_cast<int32_t>(target) - static_cast<int32_t>(at) - 4;
    for (size_t i = 0; i < 4; ++i) code[at + i] = static_cast<uint8_t>(static_cast<uint32_t>(distance) >> (8 * i));
  }
  void small(int reg, int extension, int8_t by) {
    bytes({static_cast<uint8_t>(0x48 | reg >> 3), 0x83, static_cast<uint8_t>(0xc0 | extension << 3 | (reg & 7)),
           static_cast<uint8_t>(by)});
  }

  const bool wide_;
  std::vector<const void*> tables_;
  std::vector<uint32_t> numbers_;
  std::vector<Behind> behind_;
};

}  // namespace cmodel
