// Folds and scans of a kind that a chip may lack, from those of kinds that most have.
#include <functional>
#include <limits>

#include "support/legalise/rules/folds/pieces.h"
#include "support/legalise/rules/parts.h"
#include "support/program/op_info.h"

namespace npu::legalise {
namespace {

using Change = std::function<uint16_t(Writer&, uint16_t)>;

// The same with a fold of another kind: of changed values, its result changed back.
void with_kind(const Draft& refused, const Plain& fold, npu_fold kind, const Change& before, const Change& after,
               Script& script) {
  const Program& program = *refused.program;
  Draft draft(static_cast<npu_command_kind>(refused.command.kind), refused.size(), refused.command.inner_rank);
  Writer writer(refused, draft);
  copy_segment(writer, program, segments_of(program)[0], needs(program, {fold.id}));
  const uint16_t value = before(writer, writer.value(fold.instr.a)), mask = writer.value(fold.instr.mask);
  const uint16_t made = writer.emit(static_cast<npu_op>(fold.instr.op), writer.type(value), value, NPU_NO_VALUE,
                                    NPU_NO_VALUE, kind, mask);
  writer.segment(refused.command.kind == NPU_REDUCE ? NPU_SEGMENT_ROW : NPU_SEGMENT_EACH);
  const uint16_t result = after(writer, made);
  for (const Stored& stored : fold.stores) writer.store(stored.to, result);
  writer.finish(program.name);
  script.add(draft);
}

uint16_t same(Writer&, uint16_t value) {
  return value;
}

// Turns the order of all numbers around, the smallest integer included, and leaves a NaN one.
uint16_t turned(Writer& writer, uint16_t value) {
  return writer.emit(is_float(writer.type(value)) ? NPU_OP_NEG : NPU_OP_NOT, writer.type(value), value);
}

uint16_t compared(Writer& writer, npu_op op, uint16_t value, int with) {
  return writer.emit(op, NPU_BOOL, value, number(writer, writer.type(value), with));
}

bool min_as_max(const Draft& refused, Script& script) {
  const std::optional<Plain> fold = plain(refused, script);
  if (!fold || (fold->kind != NPU_FOLD_MIN && fold->kind != NPU_FOLD_MAX)) return false;
  with_kind(refused, *fold, fold->kind == NPU_FOLD_MIN ? NPU_FOLD_MAX : NPU_FOLD_MIN, turned, turned, script);
  return true;
}

bool logic_as_extremes(const Draft& refused, Script& script) {
  const std::optional<Plain> fold = plain(refused, script);
  if (!fold || fold->types[0] != NPU_BOOL || (fold->kind != NPU_FOLD_AND && fold->kind != NPU_FOLD_OR)) return false;
  with_kind(refused, *fold, fold->kind == NPU_FOLD_AND ? NPU_FOLD_MIN : NPU_FOLD_MAX, same, same, script);
  return true;
}

bool logic_as_count(const Draft& refused, Script& script) {
  const std::optional<Plain> fold = plain(refused, script);
  if (!fold || fold->types[0] != NPU_BOOL || fold->kind > NPU_FOLD_XOR) return false;
  const bool all = fold->kind == NPU_FOLD_AND || fold->kind == NPU_FOLD_MIN, odd = fold->kind == NPU_FOLD_XOR;
  const Change counted = [all](Writer& writer, uint16_t value) {
    if (all) value = writer.emit(NPU_OP_NOT, NPU_BOOL, value);
    return writer.emit(NPU_OP_CAST, NPU_I64, value, NPU_NO_VALUE, NPU_NO_VALUE, NPU_DTYPE_NONE);
  };
  const Change judged = [all, odd](Writer& writer, uint16_t count) {
    if (odd) count = writer.emit(NPU_OP_AND, NPU_I64, count, writer.integer(NPU_I64, 1));
    return compared(writer, all ? NPU_OP_EQ : NPU_OP_NE, count, 0);
  };
  with_kind(refused, *fold, NPU_FOLD_SUM, counted, judged, script);
  return true;
}

// A REDUCE of several segments in the making, each of which folds the same elements.
class Phases {
 public:
  Phases(const Draft& refused, const Plain& fold)
      : refused_(refused),
        fold_(fold),
        draft_(NPU_REDUCE, refused.size(), refused.command.inner_rank),
        writer(refused, draft_) {
    copy();
  }

  void next() {
    writer.segment(NPU_SEGMENT_EACH);
    copy();
  }
  uint16_t a() { return writer.value(fold_.instr.a); }
  uint16_t b() { return writer.value(fold_.instr.b); }
  uint16_t c() { return writer.value(fold_.instr.c); }
  uint16_t mask() { return writer.value(fold_.instr.mask); }
  uint16_t op(npu_op op, uint16_t x, uint16_t y) { return writer.emit(op, writer.type(x), x, y); }
  uint16_t is(npu_op op, uint16_t x, uint16_t y = NPU_NO_VALUE) { return writer.emit(op, NPU_BOOL, x, y); }
  uint16_t fold(npu_fold kind, uint16_t value, uint16_t mask) {
    return writer.emit(NPU_OP_FOLD, writer.type(value), value, NPU_NO_VALUE, NPU_NO_VALUE, kind, mask);
  }
  void finish(Script& script, const std::vector<uint16_t>& members) {
    for (const Stored& stored : fold_.stores) writer.store(stored.to, members[stored.member]);
    writer.finish(refused_.program->name);
    script.add(draft_);
  }

 private:
  void copy() {
    const Program& program = *refused_.program;
    copy_segment(writer, program, segments_of(program)[0], needs(program, {fold_.id}));
  }

  const Draft& refused_;
  const Plain& fold_;
  Draft draft_;

 public:
  Writer writer;
};

bool arg_as_extreme(const Draft& refused, Script& script) {
  const std::optional<Plain> fold = plain(refused, script);
  if (!fold || (fold->kind != NPU_FOLD_ARGMAX && fold->kind != NPU_FOLD_ARGMIN)) return false;
  if (refused.command.kind != NPU_REDUCE || inner_points(refused, kept_rank(refused)) == 0) return false;
  const npu_fold kind = fold->kind == NPU_FOLD_ARGMAX ? NPU_FOLD_MAX : NPU_FOLD_MIN;
  bool wants_value = false;
  for (const Stored& stored : fold->stores) wants_value |= stored.member == 0;
  Phases phases(refused, *fold);
  const auto both = [&](uint16_t mask, uint16_t condition) {
    return mask == NPU_NO_VALUE ? condition : phases.op(NPU_OP_AND, mask, condition);
  };
  const bool real = is_float(fold->types[0]);
  uint16_t best = phases.fold(kind, phases.a(), phases.mask());
  phases.next();
  uint16_t hit = phases.is(NPU_OP_EQ, phases.a(), best);
  if (real) hit = phases.op(NPU_OP_OR, hit, phases.is(NPU_OP_ISNAN, phases.a()));  // if there is one, the best is one
  uint16_t place = phases.fold(NPU_FOLD_MIN, phases.b(), both(phases.mask(), hit));
  if (real && wants_value) {  // of both zeros the one that stands there
    phases.next();
    best = phases.fold(kind, phases.a(), both(phases.mask(), phases.is(NPU_OP_EQ, phases.b(), place)));
  }
  phases.writer.segment(NPU_SEGMENT_ROW);
  if (fold->masked()) {  // nothing was left
    const uint16_t none = phases.writer.integer(NPU_I64, std::numeric_limits<int64_t>::max());
    const uint16_t absent = phases.writer.integer(NPU_I64, -1);
    place = phases.writer.emit(NPU_OP_WHERE, NPU_I64, phases.is(NPU_OP_EQ, place, none), absent, place);
  }
  phases.finish(script, {best, place});
  return true;
}

bool moments_as_sums(const Draft& refused, Script& script) {
  const std::optional<Plain> fold = plain(refused, script);
  if (!fold || fold->kind != NPU_FOLD_WELFORD || refused.command.kind != NPU_REDUCE) return false;
  const int64_t points = inner_points(refused, kept_rank(refused));
  if (points == 0) return false;
  const int type = fold->types[0];
  const bool values = fold->instr.b == NPU_NO_VALUE, counted = values && !fold->masked();
  Phases phases(refused, *fold);
  Writer& writer = phases.writer;
  uint16_t sum = phases.a(), count = NPU_NO_VALUE;
  if (!values) sum = phases.op(NPU_OP_MUL, sum, phases.c());
  if (!counted) count = phases.fold(NPU_FOLD_SUM, values ? number(writer, type, 1) : phases.c(), phases.mask());
  sum = phases.fold(NPU_FOLD_SUM, sum, phases.mask());
  writer.segment(NPU_SEGMENT_ROW);
  if (counted) count = writer.real(type, static_cast<double>(points));
  uint16_t mean = phases.op(NPU_OP_DIV, sum, count);
  if (!counted) {
    const uint16_t zero = writer.real(type, 0);
    mean = writer.emit(NPU_OP_WHERE, type, phases.is(NPU_OP_EQ, count, zero), zero, mean);
  }
  phases.next();
  const uint16_t d = phases.op(NPU_OP_SUB, phases.a(), mean);
  uint16_t square = phases.op(NPU_OP_MUL, d, d);
  if (!values) square = phases.op(NPU_OP_ADD, phases.b(), phases.op(NPU_OP_MUL, square, phases.c()));
  const uint16_t m2 = phases.fold(NPU_FOLD_SUM, square, phases.mask());
  writer.segment(NPU_SEGMENT_ROW);
  if (counted) count = writer.real(type, static_cast<double>(points));
  phases.finish(script, {mean, m2, count});
  return true;
}

constexpr uint32_t kFolding = for_kind(NPU_REDUCE) | for_kind(NPU_SCAN);
constexpr Rule kRules[] = {
    {.name = kTurned,
     .why = "the negation of floats, and the complement of integers and bools, turns their order around; or max as min",
     .price = Price::kCalls,
     .kinds = kFolding,
     .repeats = false,
     .make = min_as_max},
    {.name = kLogicAsExtremes,
     .why = "false is less than true",
     .price = Price::kCalls,
     .kinds = kFolding,
     .repeats = false,
     .make = logic_as_extremes},
    {.name = kLogicAsCount,
     .why = "any, all and odd are questions about the number of those that are true, or false",
     .price = Price::kPass,
     .kinds = kFolding,
     .repeats = false,
     .make = logic_as_count},
    {.name = kArgAsMax,
     .why = "the lowest place among the elements that equal the greatest; NaNs equal each other here",
     .price = Price::kPass,
     .kinds = for_kind(NPU_REDUCE),
     .repeats = false,
     .make = arg_as_extreme},
    {.name = kMomentsAsSums,
     .why = "the mean is a sum by the count, and m2 a sum of squared distances from it",
     .price = Price::kPass,
     .kinds = for_kind(NPU_REDUCE),
     .repeats = false,
     .make = moments_as_sums},
};

}  // namespace

const std::span<const Rule> fold_kind_rules = kRules;

}  // namespace npu::legalise
