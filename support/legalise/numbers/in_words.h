// A program whose numbers of 64 bits are pairs of words: i64, u64 and f64 become two i32, low and high, in memory as in
// values. docs/design/legalisation.md, "Numbers".
//
//   Draft made(kind, sizes);
//   if (!InWords(refused, made).run()) ...   // an instruction has no form in words
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "support/legalise/draft/draft.h"
#include "support/legalise/numbers/emitter.h"

namespace npu::legalise {

// What an integer may be, as far as the program tells.
struct Range {
  int64_t least = INT64_MIN, most = INT64_MAX;
  bool in_word() const { return least >= INT32_MIN && most <= INT32_MAX; }
};

// A value of the refused program: a value here, or two words.
struct Number {
  int type = NPU_DTYPE_NONE;
  uint16_t low = NPU_NO_VALUE;   // of a narrow type: the value
  uint16_t high = NPU_NO_VALUE;  // of a narrow type: none
  Range range{};                 // of an i64
};

inline bool is_wide(int compute) {
  return compute == NPU_I64 || compute == NPU_U64 || compute == NPU_F64;
}
// Has it elements of 64 bits, or such that only 64 bits hold in a program?
inline bool in_wide_storage(int dtype) {
  return is_wide(compute_dtype(dtype));
}
// Word 0 (low) or 1 (high) of every element, as an i32.
Operand word_of(const Operand& operand, int word);

class InWords {
 public:
  // Both live as long as this does. `target` has kind, sizes and `u`; of a product also its inputs as operands.
  InWords(const Draft& source, Draft& target);
  // False: an instruction has no form in words. Otherwise the target has its program.
  bool run();

 private:
  // How a member of a fold's tuple lies in the one that is made.
  struct Member {
    int type;
    int first;         // its word, or the low one
    int words;         // that are kept: an index below 2^31 needs one
    uint64_t flipped;  // bits that are stored inverted, so that 0, which an empty fold yields, is the identity
    Range range;       // of an i64 that is kept in one word
  };
  struct Tuple {
    uint16_t id = NPU_NO_VALUE;  // of the fold that is made; none: of a combine segment
    int kind = NPU_FOLD_CUSTOM;
    bool scan = false;
    std::vector<Member> members;
    int words() const { return members.back().first + members.back().words; }
  };
  struct Unsupported {};

  const npu_instr& at(uint16_t id) const { return source_.program->instrs[id]; }
  void instruction(uint16_t id);
  void sink(const npu_instr& in);
  void begin(const npu_instr& in);
  Number defined(uint16_t id);
  Number copied(const npu_instr& in);
  // What stands for a value of the source, in the segment that is written.
  Number number(uint16_t id);
  uint16_t mask(const npu_instr& in) { return in.mask == NPU_NO_VALUE ? in.mask : number(in.mask).low; }

  // Sources (in_words.cpp).
  Number constant(const npu_instr& in);
  Number param(const npu_instr& in);
  Number coordinate(const npu_instr& in);

  // Values of 64 bits (arithmetic.cpp).
  uint16_t word(int64_t value) { return emit_.word(value); }
  uint16_t is(npu_op op, uint16_t a, uint16_t b) { return emit_.op(op, NPU_BOOL, a, b); }
  uint16_t inverted(uint16_t condition) { return emit_.op(NPU_OP_NOT, NPU_BOOL, condition); }
  uint16_t sign_of(uint16_t low) { return emit_.same(NPU_OP_SHR, low, word(31)); }
  Number integer(int64_t value);               // an i64
  Number extended(uint16_t low, Range range);  // an i64 of an i32 with that range
  Number called(const std::string& name, int type, const std::vector<Number>& arguments);
  uint16_t choose(uint16_t condition, uint16_t yes, uint16_t no);
  Number choose(uint16_t condition, const Number& yes, const Number& no);
  uint16_t compare(int op, const Number& a, const Number& b);
  Number arithmetic(int op, const std::vector<Number>& a);
  std::optional<Number> in_one_word(int op, const std::vector<Number>& a);
  std::optional<Number> by_power(const Number& a, const Number& b);
  Number extreme(int op, const Number& a, const Number& b);
  Number word_by_word(int op, const Number& a, const Number& b);
  Number power(const Number& base, const Number& exponent);
  uint16_t test(int op, const Number& a);  // isnan, isinf, signbit
  Number philox(const npu_instr& in);
  Number check_index(const npu_instr& in);

  // Conversions (casts.cpp).
  Number convert(const Number& value, int to);
  Number cast(const Number& value, int through, int to);
  Number bitcast(const npu_instr& in);

  // Memory (memory.cpp).
  Number load(const npu_instr& in);
  void store(const npu_instr& in);
  uint16_t offset(const Number& elements, const Operand& operand, bool doubled, uint16_t mask);

  // Folds and scans (folds.cpp).
  void fold(uint16_t id);
  Number member(uint16_t tuple, uint32_t k);
  Number argument(const npu_instr& in);
  void yield(const npu_instr& in);
  void write_combines();
  Tuple layout(const npu_instr& in);
  int64_t folded_points() const;
  static void arrange(Tuple& tuple, const std::vector<Number>& values, bool empty);
  static bool keeps_kind(Tuple& tuple, const Number& value, int64_t inner);
  Number taken(const Tuple& tuple, size_t member, const std::vector<uint16_t>& words);
  std::vector<uint16_t> given(const Tuple& tuple, size_t member, const Number& value);
  std::vector<Number> combined(const Tuple& tuple, const std::vector<Number>& left, const std::vector<Number>& right);

  const Draft& source_;
  Draft& target_;
  Writer writer_;
  Emitter emit_;
  std::vector<Number> numbers_;
  std::vector<Tuple> tuples_;         // of folds and scans, by their id
  std::vector<Tuple> combines_;       // of the source's combine segments, in order
  std::vector<Tuple> made_combines_;  // of folds that become custom ones
  size_t combine_ = 0;                // how many of the source's have begun
};

}  // namespace npu::legalise
