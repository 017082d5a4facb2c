// What AVX-512 and AVX2 do differently: BOOL values, elements that are left alone, the last points of a loop, and
// numbers of 8 and 16 bits. With AVX-512 a BOOL value is a mask register; with AVX2 it is a vector whose elements are
// all ones or all zeros.
#pragma once
#include "drivers/cmodel/jit/encoder.h"
#include "drivers/cmodel/jit/jit.h"

namespace cmodel {

class Vectors : public Encoder {
 public:
  using Encoder::Encoder;

  // Vector registers that are free for values: these methods use the ones behind them. Masks are registers 2 to 6.
  int values() const { return wide() ? 31 : 14; }
  bool has_masks() const { return wide(); }
  // A BOOL value that nothing keeps: for emit_instruction.
  int spare_mask() const { return wide() ? 7 : 14; }

  // BOOL values. Predicates are those of vcmpps.
  void compare(int mask, int a, int b, uint8_t predicate) { op_imm(kCompare, mask, a, b, predicate); }
  using Encoder::compare;
  void signs(int mask, int x);  // where the highest bits are set
  enum Logic : uint8_t { kMaskAnd, kMaskNot, kMaskOr, kMaskXor };
  void logic(Logic how, int to, int a, int b);
  // Where the mask is set; elsewhere `to` keeps what it has, or is 0.
  void move_where(int mask, int to, int from);
  void move_where_negative(int x, int to, int from);  // where the highest bits of x are set
  void op_where(int mask, Code code, int to, int first, int second);
  void op_bits_where(int mask, Code code, int to, int first, uint32_t bits);
  void bits_where(int mask, int to, uint32_t bits);
  void number_where(int mask, int to, float number) { bits_where(mask, to, bits_of(number)); }
  void number_or_zero(int mask, int to, float number);
  void choose(int to, int mask, int yes, int no);

  void zero(int to) { op(kXor, to, to, to); }
  void number(int to, float number) { op_number(kBroadcast, to, 0, number); }
  // x *= 2^n for whole numbers n in [-252, 254], rounded once. Changes n. Of x in [0.5, 2): kDown: n is in [-160, 60];
  // kNormal: the result is neither subnormal nor infinite.
  enum Range : uint8_t { kAny, kDown, kNormal };
  void scale(int x, int n, Range range = kAny);
  void round_to_bfloat(int to, int from);
  void round_to_half(int to, int from);

  // The points of a loop come in units of sixteen: one vector, or two. `rest`: which vector of the last, incomplete
  // unit this is, of which only elements below the loop's count (rdx) are read, written and added; kAll: all elements.
  static constexpr int kAll = -1;
  int per_unit() const { return 16 / lanes(); }
  void begin_rest();  // to be called before the last unit
  void load_value(int reg, Storage storage, int base, int32_t at, int rest);
  void load_flags(int reg, int base, int32_t at, int rest);
  // streams: past the caches, to multiples of 64, 32 and 16 bytes.
  void store_value(int base, int reg, Storage storage, int32_t at, int rest, bool streams);
  void store_flags(int base, int reg, int32_t at, int rest);
  // A value that waits in memory, 64 bytes of it.
  void keep(int base, int reg, int32_t at, bool flag);
  void fetch(int reg, int base, int32_t at, bool flag);
  void add_to(int sum, int value, int rest);
  void add_to_memory(int base, int32_t at, int value, int rest);
  using Encoder::add_to_memory;

 private:
  int spare() const { return wide() ? 31 : 15; }
  // F32 to the 16 bits of a bf16, in the lower half of each element.
  void to_bfloat(int to, int from);
  void to_halves(int to, int from);
  void to_words(int to, int from);
  // Elements of 8 or 16 bits one by one, as far as there are any: zeros behind them.
  template <class F>
  void each_of_rest(int rest, F f);
  void load_each(int reg, int base, int32_t at, int size, int rest);
  void store_each(int base, int reg, int32_t at, int size, int rest);
  void load_mask_of_rest(int rest);
  static int32_t rest_at(int rest);
};

}  // namespace cmodel
