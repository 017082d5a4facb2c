#include "support/legalise/rules/folds/combine.h"

#include <limits>

#include "support/program/op_info.h"

namespace npu::legalise {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool is_arg(int kind) {
  return kind == NPU_FOLD_ARGMAX || kind == NPU_FOLD_ARGMIN;
}

// -infinity, or the smallest number.
uint16_t lowest(Writer& writer, int dtype) {
  if (is_float(dtype)) return writer.real(dtype, -kInfinity);
  if (dtype == NPU_I32) return writer.integer(dtype, std::numeric_limits<int32_t>::min());
  return writer.integer(dtype, dtype == NPU_I64 ? std::numeric_limits<int64_t>::min() : 0);
}

uint16_t highest(Writer& writer, int dtype) {
  if (is_float(dtype)) return writer.real(dtype, kInfinity);
  if (dtype == NPU_I32) return writer.integer(dtype, std::numeric_limits<int32_t>::max());
  if (dtype == NPU_I64) return writer.integer(dtype, std::numeric_limits<int64_t>::max());
  return writer.integer(dtype, dtype == NPU_BOOL ? 1 : -1);
}

// Is the index of an argmax or argmin the coordinate along this dimension?
bool rises(const Program& program, const Plain& plain, int along) {
  if (!is_arg(plain.kind) || along < 0) return false;
  const npu_instr& place = program.instrs[plain.instr.b];
  return place.op == NPU_OP_INDEX && static_cast<int>(place.imm) == along;
}

npu_op simple_op(int kind) {
  constexpr npu_op kOps[] = {NPU_OP_ADD, NPU_OP_MUL, NPU_OP_MAX, NPU_OP_MIN, NPU_OP_AND, NPU_OP_OR, NPU_OP_XOR};
  return kOps[kind];
}

}  // namespace

uint16_t number(Writer& writer, int dtype, int value) {
  return is_float(dtype) ? writer.real(dtype, value) : writer.integer(dtype, value);
}

uint16_t identity(Writer& writer, const Plain& plain, uint32_t member) {
  const int type = plain.types[member];
  if (is_arg(plain.kind) && member == 1) return writer.integer(type, -1);
  switch (plain.kind) {
    case NPU_FOLD_PROD:
      return number(writer, type, 1);
    case NPU_FOLD_MAX:
    case NPU_FOLD_ARGMAX:
      return lowest(writer, type);
    case NPU_FOLD_MIN:
    case NPU_FOLD_ARGMIN:
      return highest(writer, type);
    case NPU_FOLD_AND:
      return writer.integer(type, type == NPU_BOOL ? 1 : -1);
    default:
      return number(writer, type, 0);
  }
}

Combiner::Combiner(Writer& writer, const Draft& source, const Plain& plain, int along)
    : writer_(writer), program_(*source.program), plain_(plain), rising_(rises(program_, plain, along)) {}

bool Combiner::flagged(const Plain& plain) {
  return plain.masked() && (is_arg(plain.kind) || plain.kind == NPU_FOLD_CUSTOM);
}

std::vector<int> Combiner::types(const Plain& plain) {
  std::vector<int> types = plain.types;
  if (flagged(plain)) types.push_back(NPU_BOOL);
  return types;
}

Tuple Combiner::identity() {
  Tuple out;
  for (uint32_t k = 0; k < plain_.types.size(); ++k) out.push_back(npu::legalise::identity(writer_, plain_, k));
  if (flagged(plain_)) out.push_back(writer_.integer(NPU_BOOL, 0));
  return out;
}

Tuple Combiner::element() {
  const npu_instr& instr = plain_.instr;
  const uint16_t a = writer_.value(instr.a);
  Tuple out = {a};
  if (plain_.kind == NPU_FOLD_WELFORD && instr.b == NPU_NO_VALUE)  // a - a: an infinity has no variance
    out = {a, op(NPU_OP_SUB, a, a), number(writer_, instr.dtype, 1)};
  if (instr.b != NPU_NO_VALUE) out.push_back(writer_.value(instr.b));
  if (instr.c != NPU_NO_VALUE) out.push_back(writer_.value(instr.c));
  const uint16_t mask = writer_.value(instr.mask);
  if (flagged(plain_)) out.push_back(mask);
  if (mask != NPU_NO_VALUE) out = choose(mask, out, identity());
  return out;
}

uint16_t Combiner::where(uint16_t condition, uint16_t yes, uint16_t no) {
  return yes == no ? yes : writer_.emit(NPU_OP_WHERE, writer_.type(yes), condition, yes, no);
}

Tuple Combiner::choose(uint16_t condition, const Tuple& yes, const Tuple& no) {
  Tuple out;
  for (size_t k = 0; k < yes.size(); ++k) out.push_back(where(condition, yes[k], no[k]));
  return out;
}

Tuple Combiner::combine(const Tuple& left, const Tuple& right) {
  if (!flagged(plain_)) return members(left, right);
  const uint16_t there = left.back(), comes = right.back();
  Tuple out = members({left.begin(), left.end() - 1}, {right.begin(), right.end() - 1});
  out.push_back(writer_.integer(NPU_BOOL, 1));
  return choose(there, choose(comes, out, left), right);
}

Tuple Combiner::members(const Tuple& left, const Tuple& right) {
  if (plain_.kind <= NPU_FOLD_XOR) return {op(simple_op(plain_.kind), left[0], right[0])};
  if (plain_.kind == NPU_FOLD_WELFORD) return moments(left, right);
  return plain_.kind == NPU_FOLD_CUSTOM ? custom(left, right) : extreme(left, right);
}

// A NaN beats every number; of equals, and of NaNs, the lowest index.
Tuple Combiner::extreme(const Tuple& left, const Tuple& right) {
  if (rising_) {
    uint16_t stays = is(plain_.kind == NPU_FOLD_ARGMAX ? NPU_OP_GE : NPU_OP_LE, left[0], right[0]);
    if (is_float(plain_.types[0])) stays = op(NPU_OP_OR, stays, is(NPU_OP_ISNAN, left[0]));
    return choose(stays, left, right);
  }
  uint16_t better = is(plain_.kind == NPU_FOLD_ARGMAX ? NPU_OP_GT : NPU_OP_LT, right[0], left[0]);
  uint16_t same = is(NPU_OP_EQ, right[0], left[0]);
  if (is_float(plain_.types[0])) {
    const uint16_t nan = is(NPU_OP_ISNAN, right[0]), held = is(NPU_OP_ISNAN, left[0]);
    better = op(NPU_OP_OR, better, is(NPU_OP_GT, nan, held));
    same = op(NPU_OP_OR, same, op(NPU_OP_AND, nan, held));
  }
  const uint16_t lower = is(NPU_OP_LT, right[1], left[1]);
  return choose(op(NPU_OP_OR, better, op(NPU_OP_AND, same, lower)), right, left);
}

Tuple Combiner::moments(const Tuple& left, const Tuple& right) {
  const uint16_t count = op(NPU_OP_ADD, left[2], right[2]);
  const uint16_t weight = op(NPU_OP_DIV, right[2], count), d = op(NPU_OP_SUB, right[0], left[0]);
  const uint16_t mean = op(NPU_OP_ADD, left[0], op(NPU_OP_MUL, d, weight));
  const uint16_t between = op(NPU_OP_MUL, op(NPU_OP_MUL, op(NPU_OP_MUL, d, d), left[2]), weight);
  const uint16_t m2 = op(NPU_OP_ADD, op(NPU_OP_ADD, left[1], right[1]), between);
  const bool never_empty = !plain_.masked() && plain_.instr.b == NPU_NO_VALUE;
  if (never_empty) return {mean, m2, count};
  return choose(is(NPU_OP_EQ, count, number(writer_, plain_.types[2], 0)), left, {mean, m2, count});
}

Tuple Combiner::custom(const Tuple& left, const Tuple& right) {
  const Segment segment = combines_of(program_)[static_cast<size_t>(fold_combine(plain_.instr))];
  const auto members = static_cast<uint32_t>(left.size());
  writer_.forget();
  Tuple out(members);
  for (uint16_t id = segment.begin; id < segment.end; ++id) {
    const npu_instr& instr = program_.instrs[id];
    if (instr.op == NPU_OP_ARG) writer_.provide(id, instr.imm < members ? left[instr.imm] : right[instr.imm - members]);
    if (instr.op == NPU_OP_YIELD) out[instr.imm] = writer_.value(instr.a);
  }
  writer_.forget();
  return out;
}

int combine_length(const Draft& source, const Plain& plain, int along) {
  // As they are written. A scan's moments are merged one by one, those of a fold's block are its sums.
  constexpr int kMomentsOfValues = 4, kMoments = 8, kMerge = 14, kExtreme = 13, kRising = 4;
  const auto members = static_cast<int>(plain.types.size());
  const int left_out = plain.masked() ? 4 * (members + 1) : 0;
  if (plain.kind <= NPU_FOLD_XOR) return left_out + 1;
  if (plain.kind == NPU_FOLD_WELFORD && source.command.kind == NPU_SCAN) return kMerge;
  if (plain.kind == NPU_FOLD_WELFORD) return left_out + (plain.instr.b == NPU_NO_VALUE ? kMomentsOfValues : kMoments);
  if (plain.kind != NPU_FOLD_CUSTOM) return left_out + (rises(*source.program, plain, along) ? kRising : kExtreme);
  const Segment segment = combines_of(*source.program)[static_cast<size_t>(fold_combine(plain.instr))];
  return left_out + segment.end - segment.begin;
}

}  // namespace npu::legalise
