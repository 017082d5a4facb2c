// Folds and scans of 64 bits are custom ones of words.
#include <bit>
#include <limits>

#include "support/legalise/numbers/in_words.h"
#include "support/program/op_info.h"

namespace npu::legalise {
namespace {

bool arg_kind(int kind) {
  return kind == NPU_FOLD_ARGMAX || kind == NPU_FOLD_ARGMIN;
}

// The bits of what leaves every other number as it is.
uint64_t identity(int kind, int type) {
  const bool low = kind == NPU_FOLD_MAX || kind == NPU_FOLD_ARGMAX;
  const bool high = kind == NPU_FOLD_MIN || kind == NPU_FOLD_ARGMIN;
  const double inf = std::numeric_limits<double>::infinity();
  const double real = low ? -inf : high ? inf : kind == NPU_FOLD_PROD ? 1 : 0;
  if (type == NPU_F64) return std::bit_cast<uint64_t>(real);
  if (type == NPU_F32) return std::bit_cast<uint32_t>(static_cast<float>(real));
  if (kind == NPU_FOLD_PROD) return 1;
  const bool ones = kind == NPU_FOLD_AND || (high && (type == NPU_U64 || type == NPU_BOOL));
  if (ones) return type == NPU_BOOL ? 1 : ~uint64_t{0};
  if (type == NPU_U64 || type == NPU_BOOL || (!low && !high)) return 0;
  const uint64_t least = type == NPU_I64 ? uint64_t{1} << 63 : uint64_t{1} << 31;
  return low ? least : least - 1;
}

}  // namespace

// Which words the tuple of a fold, scan or combine segment has. A tuple of narrow numbers stays as it is.
InWords::Tuple InWords::layout(const npu_instr& in) {
  Tuple tuple;
  tuple.kind = fold_kind(in);
  tuple.scan = in.op == NPU_OP_SCAN;
  const uint16_t ids[] = {in.a, in.b, in.c};
  for (int k = 0, first = 0; k < tuple_size(in); ++k) {
    const int type = tuple.kind == NPU_FOLD_WELFORD ? int{in.dtype} : int{at(ids[k]).dtype};
    tuple.members.push_back({type, first, is_wide(type) ? 2 : 1, 0, {}});
    first += tuple.members.back().words;
  }
  return tuple;
}

void InWords::fold(uint16_t id) {
  const npu_instr& in = at(id);
  Tuple tuple = layout(in);
  bool wide = false;
  std::vector<Number> values;
  for (const uint16_t argument : {in.a, in.b, in.c}) {
    if (argument == NPU_NO_VALUE) break;
    values.push_back(number(argument));
    wide |= is_wide(values.back().type);
  }
  uint32_t imm = in.imm;
  if (wide && tuple.kind != NPU_FOLD_CUSTOM) {
    const int64_t inner = folded_points();
    arrange(tuple, values, in.mask != NPU_NO_VALUE || inner == 0);
    if (!keeps_kind(tuple, values[0], inner)) {
      imm = NPU_FOLD_CUSTOM | static_cast<uint32_t>(combines_.size() + made_combines_.size()) << 8;
      made_combines_.push_back(tuple);
    }
  }
  if (wide && tuple.words() > NPU_MAX_TUPLE) throw Unsupported{};
  std::vector<uint16_t> words;
  for (size_t k = 0; k < values.size(); ++k)
    for (const uint16_t word : given(tuple, k, values[k])) words.push_back(word);
  const int type = writer_.type(words[0]);
  words.resize(NPU_MAX_TUPLE, NPU_NO_VALUE);
  tuple.id = writer_.emit(static_cast<npu_op>(in.op), type, words[0], words[1], words[2], imm, mask(in));
  tuples_[id] = tuple;
}

int64_t InWords::folded_points() const {
  const npu_command& command = source_.command;
  int64_t points = 1;
  for (int d = command.rank - command.inner_rank; d < command.rank; ++d) points *= command.size[d];
  return points;
}

// How a native fold of 64 bits lies in a custom one. `empty`: a row may have no element.
void InWords::arrange(Tuple& tuple, const std::vector<Number>& values, bool empty) {
  if (tuple.kind == NPU_FOLD_WELFORD) throw Unsupported{};
  const auto shorten = [&](size_t k) {
    if (values[k].type != NPU_I64 || !values[k].range.in_word()) return;
    tuple.members[k].words = 1;
    tuple.members[k].range = values[k].range;
  };
  if (empty) tuple.members[0].flipped = identity(tuple.kind, values[0].type);
  if (!arg_kind(tuple.kind)) return;
  if (empty) tuple.members[1].flipped = ~uint64_t{0};
  if (!empty) shorten(0);
  shorten(1);
  tuple.members[1].first = tuple.members[0].words;
}

// A sum that stays in a word is one of i32, and so is an extreme of words where no row is empty.
bool InWords::keeps_kind(Tuple& tuple, const Number& value, int64_t inner) {
  if (value.type != NPU_I64 || !value.range.in_word() || inner > INT32_MAX) return false;
  Range range = value.range;
  const bool extreme = tuple.kind == NPU_FOLD_MAX || tuple.kind == NPU_FOLD_MIN;
  if (tuple.kind == NPU_FOLD_SUM) {
    range = {std::min<int64_t>(0, range.least * inner), std::max<int64_t>(0, range.most * inner)};
  } else if (!extreme || tuple.members[0].flipped) {
    return false;
  }
  if (!range.in_word()) return false;
  tuple.members[0].words = 1;
  tuple.members[0].range = range;
  return true;
}

// A member as the words that a tuple holds.
std::vector<uint16_t> InWords::given(const Tuple& tuple, size_t member, const Number& value) {
  const Member& to = tuple.members[member];
  std::vector<uint16_t> words = {value.low};
  if (to.words == 2) words.push_back(value.high);
  if (!to.flipped) return words;
  const int type = writer_.type(words[0]);
  if (type == NPU_F32)
    words[0] = emit_.op(NPU_OP_BITCAST, NPU_I32, words[0], NPU_NO_VALUE, NPU_NO_VALUE, NPU_F32 | NPU_I32 << 8);
  if (type == NPU_BOOL) return {inverted(words[0])};
  for (size_t k = 0; k < words.size(); ++k)
    words[k] =
        emit_.same(NPU_OP_XOR, words[k], word(static_cast<int64_t>(part_of(to.flipped, k ? Part::kHigh : Part::kLow))));
  return words;
}

// And back.
Number InWords::taken(const Tuple& tuple, size_t member, const std::vector<uint16_t>& all) {
  const Member& from = tuple.members[member];
  uint16_t words[2];
  for (int k = 0; k < from.words; ++k) {
    words[k] = all[static_cast<size_t>(from.first + k)];
    if (!from.flipped) continue;
    const auto bits = static_cast<int64_t>(part_of(from.flipped, k ? Part::kHigh : Part::kLow));
    words[k] = from.type == NPU_BOOL ? inverted(words[k]) : emit_.same(NPU_OP_XOR, words[k], word(bits));
  }
  if (from.flipped && from.type == NPU_F32)
    words[0] = emit_.op(NPU_OP_BITCAST, NPU_F32, words[0], NPU_NO_VALUE, NPU_NO_VALUE, NPU_I32 | NPU_F32 << 8);
  if (!is_wide(from.type)) return {from.type, words[0]};
  if (from.words == 1) return extended(words[0], from.flipped ? Range{INT32_MIN, INT32_MAX} : from.range);
  return {from.type, words[0], words[1], {}};
}

Number InWords::member(uint16_t id, uint32_t k) {
  const Tuple& tuple = tuples_[id];
  std::vector<uint16_t> words;
  for (size_t m = 0; m < tuple.members.size(); ++m)
    for (int w = 0; w < tuple.members[m].words; ++w) {
      const Member& one = tuple.members[m];
      const bool as_bits = is_wide(one.type) || (one.flipped && one.type == NPU_F32);
      // The members of a fold are named, not computed: what is not used is not in the program.
      words.push_back(static_cast<uint32_t>(m) == k
                          ? emit_.op(NPU_OP_GET, as_bits ? int{NPU_I32} : one.type, tuple.id, NPU_NO_VALUE,
                                     NPU_NO_VALUE, static_cast<uint32_t>(one.first + w))
                          : uint16_t{NPU_NO_VALUE});
    }
  Number value = taken(tuple, k, words);
  // The fold of isa.md starts at +0, a custom one at its first element: a sum of negative zeros is +0.
  if (tuple.kind == NPU_FOLD_SUM && value.type == NPU_F64) {
    const uint16_t rest = emit_.same(NPU_OP_OR, value.low, emit_.same(NPU_OP_XOR, value.high, word(INT32_MIN)));
    value.high = choose(is(NPU_OP_EQ, rest, word(0)), word(0), value.high);
  }
  return value;
}

// `arg` k of the source's combine segment: a member of the left tuple, or of the right one.
Number InWords::argument(const npu_instr& in) {
  const Tuple& tuple = combines_[combine_ - 1];
  const auto count = static_cast<uint32_t>(tuple.members.size());
  const Member& one = tuple.members[in.imm % count];
  const auto first = static_cast<uint32_t>(one.first + (in.imm < count ? 0 : tuple.words()));
  const int type = is_wide(one.type) ? int{NPU_I32} : one.type;
  Number out{one.type, emit_.op(NPU_OP_ARG, type, NPU_NO_VALUE, NPU_NO_VALUE, NPU_NO_VALUE, first)};
  if (is_wide(one.type)) out.high = emit_.op(NPU_OP_ARG, type, NPU_NO_VALUE, NPU_NO_VALUE, NPU_NO_VALUE, first + 1);
  return out;
}

void InWords::yield(const npu_instr& in) {
  const Tuple& tuple = combines_[combine_ - 1];
  const Number value = number(in.a);
  auto place = static_cast<uint32_t>(tuple.members[in.imm].first);
  for (const uint16_t word : given(tuple, in.imm, value))
    writer_.emit(NPU_OP_YIELD, NPU_DTYPE_NONE, word, NPU_NO_VALUE, NPU_NO_VALUE, place++);
}

void InWords::write_combines() {
  for (const Tuple& tuple : made_combines_) {
    writer_.segment(NPU_SEGMENT_COMBINE);
    emit_.segment();
    std::vector<Number> sides[2];
    for (int side = 0; side < 2; ++side) {
      std::vector<uint16_t> words;
      for (const Member& one : tuple.members)
        for (int w = 0; w < one.words; ++w) {
          const bool as_bits = is_wide(one.type) || (one.flipped && one.type == NPU_F32);
          words.push_back(emit_.op(NPU_OP_ARG, as_bits ? int{NPU_I32} : one.type, NPU_NO_VALUE, NPU_NO_VALUE,
                                   NPU_NO_VALUE, static_cast<uint32_t>(one.first + w + side * tuple.words())));
        }
      for (size_t k = 0; k < tuple.members.size(); ++k) sides[side].push_back(taken(tuple, k, words));
    }
    const std::vector<Number> out = combined(tuple, sides[0], sides[1]);
    for (size_t k = 0; k < out.size(); ++k) {
      auto place = static_cast<uint32_t>(tuple.members[k].first);
      for (const uint16_t word : given(tuple, k, out[k]))
        writer_.emit(NPU_OP_YIELD, NPU_DTYPE_NONE, word, NPU_NO_VALUE, NPU_NO_VALUE, place++);
    }
  }
}

std::vector<Number> InWords::combined(const Tuple& tuple, const std::vector<Number>& left,
                                      const std::vector<Number>& right) {
  static constexpr int kOp[] = {NPU_OP_ADD, NPU_OP_MUL, NPU_OP_MAX, NPU_OP_MIN, NPU_OP_AND, NPU_OP_OR, NPU_OP_XOR};
  if (!arg_kind(tuple.kind)) return {arithmetic(kOp[tuple.kind], {left[0], right[0]})};
  const int type = left[0].type;
  const auto both = [&](npu_op op, uint16_t a, uint16_t b) { return emit_.op(op, NPU_BOOL, a, b); };
  const uint16_t earlier = compare(NPU_OP_LT, right[1], left[1]);
  const uint16_t better = compare(tuple.kind == NPU_FOLD_ARGMAX ? NPU_OP_GT : NPU_OP_LT, right[0], left[0]);
  const uint16_t equal = compare(NPU_OP_EQ, right[0], left[0]);
  uint16_t takes = both(NPU_OP_OR, better, both(NPU_OP_AND, equal, earlier));
  if (type == NPU_F32 || type == NPU_F64) {
    const auto nan = [&](const Number& a) {
      return type == NPU_F64 ? test(NPU_OP_ISNAN, a) : emit_.op(NPU_OP_ISNAN, NPU_BOOL, a.low);
    };
    const uint16_t new_nan = nan(right[0]), held_nan = nan(left[0]);
    const uint16_t wins = both(NPU_OP_OR, inverted(held_nan), earlier);
    takes = choose(new_nan, wins, both(NPU_OP_AND, inverted(held_nan), takes));
  }
  return {choose(takes, right[0], left[0]), choose(takes, right[1], left[1])};
}

}  // namespace npu::legalise
