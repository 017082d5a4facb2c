// Encodes the few x86-64 instructions that compiled loops are made of: AVX-512 on 16 F32 values, masks, and the
// pointers around them. Numbers and tables that instructions read lie behind the code.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

namespace cmodel {

class Encoder {
 public:
  enum Map : uint8_t { k0F = 1, k0F38 = 2, k0F3A = 3 };
  enum Prefix : uint8_t { kNo = 0, k66 = 1, kF3 = 2, kF2 = 3 };
  // Opcodes on zmm registers.
  struct Code {
    Map map;
    Prefix prefix;
    uint8_t opcode;
  };
  static constexpr Code kAdd{k0F, kNo, 0x58}, kMul{k0F, kNo, 0x59}, kSub{k0F, kNo, 0x5c}, kDiv{k0F, kNo, 0x5e},
      kMin{k0F, kNo, 0x5d}, kMax{k0F, kNo, 0x5f}, kSqrt{k0F, kNo, 0x51}, kMove{k0F, kNo, 0x28}, kXor{k0F, k66, 0xef},
      kAndNot{k0F, k66, 0xdf}, kAnd{k0F, k66, 0xdb}, kOr{k0F, k66, 0xeb}, kFma231{k0F38, k66, 0xb8},
      kFma213{k0F38, k66, 0xa8}, kFnma231{k0F38, k66, 0xbc}, kScale{k0F38, k66, 0x2c}, kBlend{k0F38, k66, 0x65},
      kRound{k0F3A, k66, 0x08}, kCompare{k0F, kNo, 0xc2}, kToInt{k0F, kF3, 0x5b}, kPermute{k0F38, k66, 0x16},
      kBroadcast{k0F38, k66, 0x18}, kIntAdd{k0F, k66, 0xfe}, kIntSub{k0F, k66, 0xfa}, kFromInt{k0F, kNo, 0x5b},
      kFromHalf{k0F38, k66, 0x13};
  // Into mask registers: where all bits of first & second are 0; the highest bits of `second`.
  static constexpr Code kTestNone{k0F38, kF3, 0x27}, kSigns{k0F38, kF3, 0x39};

  // reg = op(first, second); unary ones take `second` only. With a mask, elements outside it stay (or, zeroing, are 0).
  void op(Code code, int reg, int first, int second, int mask = 0, bool zero = false) {
    evex(code.map, code.prefix, reg, first, second, mask, zero, 2);
    byte(code.opcode);
    modrm_reg(reg, second);
  }
  void op_imm(Code code, int reg, int first, int second, uint8_t imm, int mask = 0) {
    op(code, reg, first, second, mask);
    byte(imm);
  }
  // The second argument is one number for all, or sixteen floats of a table, behind the code.
  void op_number(Code code, int reg, int first, float number, int mask = 0) {
    uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    op_bits(code, reg, first, bits, mask);
  }
  void op_bits(Code code, int reg, int first, uint32_t bits, int mask = 0) {
    const auto found = std::find(numbers_.begin(), numbers_.end(), bits);
    const size_t at = static_cast<size_t>(found - numbers_.begin());
    if (found == numbers_.end()) numbers_.push_back(bits);
    // vbroadcastss takes one number as it is.
    behind(code, reg, first, mask, code.opcode != kBroadcast.opcode, {0, 4 * at, false});
  }
  void op_table(Code code, int reg, int first, const float* table) {
    const auto found = std::find(tables_.begin(), tables_.end(), table);
    const size_t at = static_cast<size_t>(found - tables_.begin());
    if (found == tables_.end()) tables_.push_back(table);
    behind(code, reg, first, 0, false, {0, 64 * at, true});
  }

  enum Shift : uint8_t { kRight = 2, kRightSigned = 4, kLeft = 6 };
  void shift(Shift how, int reg, int from, uint8_t by) {
    evex(k0F, k66, how, reg, from, 0, false, 2);
    byte(0x72);
    modrm_reg(how, from);
    byte(by);
  }

  // Sixteen floats, or sixteen bytes, `at` bytes behind the address in general register `base`.
  void load(int reg, int base, int mask, int32_t at = 0) { memory(k0F, kNo, 0x10, reg, base, at, mask, true, 2); }
  void store(int base, int reg, int mask, int32_t at = 0) { memory(k0F, kNo, 0x11, reg, base, at, mask, false, 2); }
  // Past the caches; the address is a multiple of 64.
  void stream(int base, int reg, int32_t at) { memory(k0F, kNo, 0x2b, reg, base, at, 0, false, 2); }
  void store_at(int base, int32_t offset, int reg) { memory(k0F, kNo, 0x11, reg, base, offset, 0, false, 2); }
  void load_bytes(int reg, int base, int mask, int32_t at) { memory(k0F, kF2, 0x6f, reg, base, at, mask, true, 0); }
  void store_bytes(int base, int reg, int mask, int32_t at) { memory(k0F, kF2, 0x7f, reg, base, at, mask, false, 0); }
  // Sixteen numbers of 16 bits: as whole numbers, or F16 to and from F32.
  void load_words(int reg, int base, int mask, int32_t at) { memory(k0F38, k66, 0x33, reg, base, at, mask, true, 2); }
  void store_words(int base, int reg, int mask, int32_t at) { memory(k0F38, kF3, 0x33, reg, base, at, mask, false, 2); }
  void load_halves(int reg, int base, int mask, int32_t at) { memory(k0F38, k66, 0x13, reg, base, at, mask, true, 2); }
  void store_halves(int base, int reg, int mask, int32_t at) {
    memory(k0F3A, k66, 0x1d, reg, base, at, mask, false, 2);
    byte(0);  // to the nearest
  }
  void to_words(int reg, int from) {
    evex(k0F38, kF3, from, 0, reg, 0, false, 2);
    byte(0x33);
    modrm_reg(from, reg);
  }
  // Past the caches: sixteen numbers of 16 bits, to a multiple of 32.
  void stream_words(int base, int reg, int32_t at) { memory(k0F, k66, 0xe7, reg, base, at, 0, false, 1); }
  void to_halves(int reg, int from) {
    evex(k0F3A, k66, from, 0, reg, 0, false, 2);
    byte(0x1d);
    modrm_reg(from, reg);
    byte(0);
  }
  void broadcast(int reg, int base, int32_t offset) { memory(k0F38, k66, 0x18, reg, base, offset, 0, false, 2); }
  // The same 32 bits in all sixteen places. Changes rdi.
  void broadcast_bits(int reg, uint32_t bits) {
    byte(0xbf);  // mov edi, bits
    word(static_cast<int32_t>(bits));
    evex(k0F38, k66, reg, 0, 7, 0, false, 2);
    byte(0x7c);
    modrm_reg(reg, 7);
  }
  // Mask bits: where a byte is not 0; and bytes of `ones` where the mask is set, else 0.
  void test_bytes(int mask, int reg) {
    evex(k0F38, k66, mask, reg, reg, 0, false, 0);
    byte(0x26);
    modrm_reg(mask, reg);
  }
  void keep_bytes(int reg, int ones, int mask) {
    evex(k0F, kF2, reg, 0, ones, mask, true, 0);
    byte(0x6f);
    modrm_reg(reg, ones);
  }
  enum MaskCode : uint8_t { kMaskAnd = 0x41, kMaskNot = 0x44, kMaskOr = 0x45, kMaskXor = 0x47 };
  void mask(MaskCode code, int to, int a, int b) {
    // Two-byte VEX; `not` has one argument and the short length.
    const bool one = code == kMaskNot;
    bytes({0xc5, static_cast<uint8_t>(0x80 | ((one ? 15 : ~a & 15) << 3) | (one ? 0 : 4)), code});
    modrm_reg(to, one ? a : b);
  }

  // General registers.
  void load_pointer(int reg, int base, int32_t offset) {  // mov reg, [base + offset]
    bytes({static_cast<uint8_t>(0x48 | (reg >> 3) << 2 | base >> 3), 0x8b});
    modrm_memory(reg, base, offset);
  }
  void add_memory(int reg, int base, int32_t offset) {  // add reg, [base + offset]
    bytes({static_cast<uint8_t>(0x48 | (reg >> 3) << 2 | base >> 3), 0x03});
    modrm_memory(reg, base, offset);
  }
  void add_to_memory(int base, int32_t offset, int reg) {  // add [base + offset], reg
    bytes({static_cast<uint8_t>(0x48 | (reg >> 3) << 2 | base >> 3), 0x01});
    modrm_memory(reg, base, offset);
  }
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
  // Mask 1: the lowest rdx of sixteen elements. Changes rdi.
  void mask_of_rest() {
    bytes({0xbf, 0xff, 0xff, 0xff, 0xff});  // mov edi, -1
    bytes({0xc4, 0xe2, 0x68, 0xf5, 0xff});  // bzhi edi, edi, edx
    bytes({0xc5, 0xf8, 0x92, 0xcf});        // kmovw k1, edi
  }
  void finish() {
    bytes({0xc5, 0xf8, 0x77, 0xc3});  // vzeroupper, ret
    code.resize((code.size() + 63) / 64 * 64);
    const size_t tables = code.size();
    for (const float* table : tables_) {
      const auto* from = reinterpret_cast<const uint8_t*>(table);
      code.insert(code.end(), from, from + 64);
    }
    const size_t numbers = code.size();
    for (uint32_t bits : numbers_) word(static_cast<int32_t>(bits));
    for (const Behind& b : behind_) set_distance(b.from, (b.table ? tables : numbers) + b.offset);
  }

  enum Condition : uint8_t { kLess = 0x8c, kNotLess = 0x8d, kEqual = 0x84, kNotEqual = 0x85 };
  // A jump to `target`, or to a place that land() sets later: returns where the distance is.
  size_t jump(Condition condition, size_t target = 0) {
    bytes({0x0f, condition, 0, 0, 0, 0});
    const size_t at = code.size() - 4;
    set_distance(at, target);
    return at;
  }
  void land(size_t at) { set_distance(at, code.size()); }

  std::vector<uint8_t> code;

 private:
  void byte(uint8_t b) { code.push_back(b); }
  void bytes(std::initializer_list<uint8_t> list) { code.insert(code.end(), list); }
  void word(int32_t w) {
    for (int i = 0; i < 4; ++i) byte(static_cast<uint8_t>(static_cast<uint32_t>(w) >> (8 * i)));
  }
  void set_distance(size_t at, size_t target) {
    const int32_t distance = static_cast<int32_t>(target) - static_cast<int32_t>(at) - 4;
    for (size_t i = 0; i < 4; ++i) code[at + i] = static_cast<uint8_t>(static_cast<uint32_t>(distance) >> (8 * i));
  }
  void small(int reg, int extension, int8_t by) {
    bytes({static_cast<uint8_t>(0x48 | reg >> 3), 0x83, static_cast<uint8_t>(0xc0 | extension << 3 | (reg & 7)),
           static_cast<uint8_t>(by)});
  }
  // An instruction's second argument in the memory behind the code, `offset` bytes into the tables or the numbers. The
  // distance counts from the end of the instruction, which is the end of the distance.
  struct Behind {
    size_t from, offset;
    bool table;
  };
  void behind(Code code_of, int reg, int first, int mask, bool one, Behind where) {
    evex(code_of.map, code_of.prefix, reg, first, 0, mask, false, 2, one);
    byte(code_of.opcode);
    byte(static_cast<uint8_t>((reg & 7) << 3 | 5));
    where.from = code.size();
    behind_.push_back(where);
    word(0);
  }
  // `rm` is a vector register (5 bits, its highest in X) or the base of an address (4 bits). length: 0 is 128 bits, 2
  // is 512. one: the argument in memory is one number for all.
  void evex(Map map, Prefix prefix, int reg, int vvvv, int rm, int mask, bool zero, int length, bool one = false) {
    byte(0x62);
    byte(static_cast<uint8_t>((reg & 8 ? 0 : 0x80) | (rm & 16 ? 0 : 0x40) | (rm & 8 ? 0 : 0x20) |
                              (reg & 16 ? 0 : 0x10) | map));
    byte(static_cast<uint8_t>((~vvvv & 15) << 3 | 4 | prefix));
    byte(static_cast<uint8_t>((zero ? 0x80 : 0) | length << 5 | (one ? 0x10 : 0) | (vvvv & 16 ? 0 : 8) | mask));
  }
  void modrm_reg(int reg, int rm) { byte(static_cast<uint8_t>(0xc0 | (reg & 7) << 3 | (rm & 7))); }
  void modrm_memory(int reg, int base, int32_t offset) {
    // A SIB byte without an index, and 8 or 32 bits of offset. Vector instructions scale the short one: it is 0.
    byte(static_cast<uint8_t>((offset ? 0x80 : 0x40) | (reg & 7) << 3 | 4));
    byte(static_cast<uint8_t>(0x20 | (base & 7)));
    offset ? word(offset) : byte(0);
  }
  void memory(Map map, Prefix prefix, uint8_t opcode, int reg, int base, int32_t offset, int mask, bool zero,
              int length) {
    evex(map, prefix, reg, 0, base, mask, zero && mask, length);
    byte(opcode);
    modrm_memory(reg, base, offset);
  }

  std::vector<const float*> tables_;
  std::vector<uint32_t> numbers_;
  std::vector<Behind> behind_;
};

}  // namespace cmodel
