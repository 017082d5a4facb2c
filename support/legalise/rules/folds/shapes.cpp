// REDUCE, SCAN and MAP of other forms: fewer inner dimensions, plainer programs, other commands.
#include <algorithm>

#include "support/legalise/rules/folds/pieces.h"
#include "support/legalise/rules/parts.h"
#include "support/program/op_info.h"

namespace npu::legalise {
namespace {

bool nothing_to_do(const Draft& refused, Script&) {
  const int rank = refused.command.kind == NPU_REDUCE ? kept_rank(refused) : int{refused.command.rank};
  return std::find(refused.command.size, refused.command.size + rank, 0) != refused.command.size + rank;
}

bool empty_folds(const Draft& refused, Script& script) {
  if (!refused.program || inner_points(refused, kept_rank(refused)) > 0) return false;
  const Program& program = *refused.program;
  std::vector<Segment> rows = segments_of(program);
  std::erase_if(rows, [](const Segment& segment) { return segment.kind != NPU_SEGMENT_ROW; });
  if (rows.size() > 1) return false;
  if (rows.empty()) return true;
  Draft map(NPU_MAP, {refused.command.size, refused.command.size + kept_rank(refused)});
  Writer writer(refused, map);
  writer.map_operands([&](const Operand& operand) { return first_dimensions(operand, kept_rank(refused)); });
  std::vector<uint16_t> wanted;
  for (uint16_t id = rows[0].begin; id < rows[0].end; ++id)
    if (is_effect(program.instrs[id])) wanted.push_back(id);
  const std::vector<bool> needed = needs(program, wanted);
  for (uint16_t id = 0; id < program.instrs.size(); ++id) {
    const std::optional<Member> member = member_of(program, id);
    if (!needed[id] || !member) continue;
    const npu_instr& fold = program.instrs[member->fold];
    Plain of{.id = member->fold, .instr = fold, .kind = fold_kind(fold), .types = {}, .stores = {}};
    of.types.assign(NPU_MAX_TUPLE, type_of(program, *member));
    writer.provide(id, identity(writer, of, member->number));
  }
  copy_segment(writer, program, rows[0], needed);
  writer.finish(program.name);
  script.add(map);
  return true;
}

// Inner dimensions that can be walked as one, as runs [first, last].
struct Run {
  int first, last;
};

std::vector<Run> runs_of(const Draft& refused) {
  const npu_command& command = refused.command;
  std::vector<bool> walks(refused.operands.size(), false);
  bool each = false;
  for (const npu_instr& instr : refused.program->instrs) {
    if (instr.op == NPU_OP_SEGMENT) each = instr.imm == NPU_SEGMENT_EACH;
    if (each && (op_info(instr.op).uses & kUsesMask) && !is_fold(instr) && instr.op != NPU_OP_CHECK_INDEX)
      walks[instr.imm] = true;
  }
  std::vector<Run> runs;
  int64_t behind = 1;  // points of the run, from its end
  for (int d = command.rank - 1; d >= kept_rank(refused); --d) {
    bool joins = !runs.empty();
    for (size_t k = 0; joins && k < walks.size(); ++k) {
      if (!walks[k] || command.size[d] == 1 || behind == 1) continue;
      int within = runs.back().last;  // the innermost dimension that moves
      while (command.size[within] == 1) --within;
      joins = refused.operands[k].form.stride[d] == refused.operands[k].form.stride[within] * behind;
    }
    if (joins) {
      runs.back().first = d;
    } else {
      runs.push_back({d, d});
      behind = 1;
    }
    behind *= command.size[d];
  }
  std::reverse(runs.begin(), runs.end());
  return runs;
}

// The dimensions of `runs` as one each.
class Merge {
 public:
  Merge(const Draft& refused, std::vector<Run> runs)
      : refused_(refused), kept_(kept_rank(refused)), runs_(std::move(runs)), size_(refused.size()) {
    size_.resize(static_cast<size_t>(kept_));
    for (int d = 0; d < kept_; ++d) dimensions_.push_back(d);
    for (const Run& run : runs_) {
      size_.push_back(points(run.first, run.last));
      dimensions_.insert(dimensions_.end(), static_cast<size_t>(run.last - run.first + 1),
                         static_cast<int>(size_.size()) - 1);
    }
  }

  Draft write() {
    Draft draft(NPU_REDUCE, size_, static_cast<int>(runs_.size()));
    const Program& program = *refused_.program;
    const std::vector<Segment> segments = segments_of(program);
    Writer writer(refused_, draft, segments[0].kind);
    writer.map_operands([this](const Operand& operand) { return merged(operand); });
    FoldCopier copier(writer, program);
    std::vector<uint16_t> wanted;
    for (uint16_t id = 0; id < program.instrs.size(); ++id)
      if (is_fold(program.instrs[id]) || is_effect(program.instrs[id])) wanted.push_back(id);
    const std::vector<bool> needed = needs(program, wanted);
    for (const Segment& segment : segments) {
      if (segment.begin != segments[0].begin) writer.segment(segment.kind);
      places(writer, program, segment, needed);
      copy_segment(writer, program, segment, needed);
      for (uint16_t id = segment.begin; id < segment.end; ++id) {
        if (is_fold(program.instrs[id])) writer.provide(id, copier.fold(id));
        const bool lasts = segment.kind == NPU_SEGMENT_ROW && program.instrs[id].dtype != NPU_DTYPE_NONE;
        if (lasts && needed[id]) writer.provide(id, writer.value(id));
      }
    }
    copier.combines();
    writer.finish(program.name);
    return draft;
  }

 private:
  int64_t points(int first, int last) const {
    int64_t points = 1;
    for (int d = first; d <= last; ++d) points *= refused_.command.size[d];
    return points;
  }

  Operand merged(const Operand& operand) const {
    Operand out = first_dimensions(operand, kept_);
    for (size_t k = 0; k < runs_.size(); ++k) {
      int d = runs_[k].last;
      while (d > runs_[k].first && refused_.command.size[d] == 1) --d;
      out.form.stride[kept_ + static_cast<int>(k)] = operand.form.stride[d];
    }
    return out;
  }

  // Coordinates and extents of dimensions that are no more.
  void places(Writer& writer, const Program& program, const Segment& segment, const std::vector<bool>& needed) const {
    for (uint16_t id = segment.begin; id < segment.end; ++id) {
      const npu_instr& instr = program.instrs[id];
      const auto d = static_cast<int>(instr.imm);
      if (!needed[id] || (instr.op != NPU_OP_INDEX && instr.op != NPU_OP_SIZE)) continue;
      if (instr.op == NPU_OP_SIZE) {
        writer.provide(id, writer.integer(instr.dtype, refused_.command.size[d]));
        continue;
      }
      uint16_t place = writer.index(dimensions_[static_cast<size_t>(d)], NPU_I64);
      if (d >= kept_) {
        const Run& run = runs_[static_cast<size_t>(dimensions_[static_cast<size_t>(d)] - kept_)];
        const int64_t behind = d < run.last ? points(d + 1, run.last) : 1;
        if (behind > 1) place = writer.emit(NPU_OP_DIV, NPU_I64, place, writer.integer(NPU_I64, behind));
        if (d > run.first)
          place = writer.emit(NPU_OP_MOD, NPU_I64, place, writer.integer(NPU_I64, refused_.command.size[d]));
      }
      if (instr.dtype != NPU_I64)
        place = writer.emit(NPU_OP_CAST, instr.dtype, place, NPU_NO_VALUE, NPU_NO_VALUE, NPU_DTYPE_NONE);
      writer.provide(id, place);
    }
  }

  const Draft& refused_;
  const int kept_;
  const std::vector<Run> runs_;
  std::vector<int64_t> size_;
  std::vector<int> dimensions_;  // of each old dimension: the new one
};

bool merged_dimensions(const Draft& refused, Script& script) {
  if (!refused.program || refused.command.inner_rank < 2 || refused.points() == 0) return false;
  const std::vector<Run> runs = runs_of(refused);
  if (runs.size() == refused.command.inner_rank) return false;
  script.add(Merge(refused, runs).write());
  return true;
}

bool dimension_by_dimension(const Draft& refused, Script& script) {
  const std::optional<Plain> fold = plain(refused, script);
  if (!fold || refused.command.inner_rank < 2 || refused.points() == 0 || Combiner::flagged(*fold)) return false;
  const Program& program = *refused.program;
  std::vector<int64_t> left = refused.size();
  left.pop_back();
  Draft last(NPU_REDUCE, refused.size(), 1);
  Writer writer(refused, last);
  FoldCopier copier(writer, program);
  copy_segment(writer, program, segments_of(program)[0], needs(program, {fold->id}));
  const uint16_t folded = copier.fold(fold->id);
  writer.segment(NPU_SEGMENT_ROW);
  std::vector<Operand> tuple;
  for (uint32_t k = 0; k < fold->types.size(); ++k) {
    tuple.push_back(script.scratch(fold->types[k], left));
    writer.store(tuple.back(), get(writer, folded, k, fold->types[k]));
  }
  copier.combines();
  writer.finish(program.name);
  script.add(last);
  script.add(fold_again(refused, *fold, left, tuple, fold->stores));
  return true;
}

bool value_then_fold(const Draft& refused, Script& script) {
  const std::optional<Plain> fold = plain(refused, script);
  return fold && value_first(refused, *fold, script);
}

// Below that a MAP folds a row by itself; above, one long chain of additions loses too many bits.
constexpr int64_t kShortestProduct = 33, kLongestProduct = 4096;

bool sum_as_product(const Draft& refused, Script& script) {
  const std::optional<Plain> fold = plain(refused, script);
  if (!fold || fold->kind != NPU_FOLD_SUM || fold->masked() || fold->stores.size() != 1 || for_own_folds(refused))
    return false;
  const int kept = kept_rank(refused);
  const int64_t n = inner_points(refused, kept);
  const npu_instr& load = refused.program->instrs[fold->instr.a];
  if (refused.command.inner_rank != 1 || n < kShortestProduct || n > kLongestProduct || load.op != NPU_OP_LOAD ||
      load.mask != NPU_NO_VALUE || kept + 1 > NPU_MAX_RANK)
    return false;
  Operand row = refused.operands[load.imm];
  const int type = fold->types[0];
  // A product may take subnormal numbers of bf16 for zero, and has no u64.
  if (compute_dtype(row.form.dtype) != type || row.form.dtype == NPU_BF16 || type == NPU_U64 || row.immediate())
    return false;
  std::vector<int64_t> size = refused.size();
  const int64_t inner_stride = row.form.stride[kept];
  size.back() = 1;
  if (kept == 0) {
    size.push_back(1);
    row.form.stride[0] = 0;
    row.form.stride[1] = inner_stride;
  }
  const auto rank = static_cast<int>(size.size());
  const Operand dense = script.scratch(type, {n});
  Operand one;
  one.form.dtype = static_cast<uint8_t>(type);
  one.form.flags = NPU_OPERAND_IMMEDIATE;
  one.form.addr = type == NPU_F32 ? 0x3f800000 : type == NPU_F64 ? 0x3ff0000000000000 : 1;
  one.place.kind = Place::kLiteral;
  script.add(copy({n}, dense, one));
  Operand ones = first_dimensions(dense, 0);
  ones.form.stride[rank - 2] = 1;
  ones.form.stride[rank - 1] = 1;
  Draft product(NPU_MATMUL, size);
  product.command.u.matmul.k = n;
  product.command.u.matmul.acc_dtype = static_cast<uint8_t>(type);
  product.operands = {row, ones, first_dimensions(fold->stores[0].to, kept)};
  script.add(product);
  return true;
}

bool map_as_reduce(const Draft& refused, Script& script) {
  Draft reduce = refused;
  reduce.command.kind = NPU_REDUCE;
  reduce.command.inner_rank = 0;
  script.add(reduce);
  return true;
}

constexpr uint32_t kReduce = for_kind(NPU_REDUCE), kFolding = kReduce | for_kind(NPU_SCAN);
constexpr Rule kRules[] = {
    {.name = "nothing, where there are no points",
     .why = "a command without points does nothing",
     .price = Price::kCalls,
     .kinds = kAnyKind,
     .repeats = false,
     .make = nothing_to_do},
    {.name = "folds of nothing as MAP",
     .why = "a fold over no element is its identity, a constant that its rows see",
     .price = Price::kCalls,
     .kinds = kReduce,
     .repeats = false,
     .make = empty_folds},
    {.name = "inner dimensions as one",
     .why = "dimensions are one where each step of the outer one is as long as all of the inner one; coordinates are "
            "quotients and rests",
     .price = Price::kCalls,
     .kinds = kReduce,
     .repeats = true,
     .make = merged_dimensions},
    {.name = kMapAsReduce,
     .why = "a REDUCE runs its program at every point, folds or not",
     .price = Price::kCalls,
     .kinds = for_kind(NPU_MAP),
     .repeats = false,
     .make = map_as_reduce},
    {.name = "inner dimensions one after the other",
     .why = "a fold of folds of its parts, in their order, is the fold",
     .price = Price::kPass,
     .kinds = kReduce,
     .repeats = true,
     .make = dimension_by_dimension},
    {.name = "a sum as a product with ones",
     .why = "a sum is a product of the row and a column of ones",
     .price = Price::kPass,
     .kinds = kReduce,
     .repeats = false,
     .make = sum_as_product},
    {.name = kValueFirst,
     .why = "what is folded lies in scratch, with the identity where an element is left out",
     .price = Price::kPass,
     .kinds = kFolding,
     .repeats = false,
     .make = value_then_fold},
};

}  // namespace

const std::span<const Rule> shape_rules = kRules;

bool value_first(const Draft& refused, const Plain& plain, Script& script) {
  const Program& program = *refused.program;
  const npu_instr& fold = plain.instr;
  const auto loaded = [&](uint16_t id) {
    return id == NPU_NO_VALUE || (program.instrs[id].op == NPU_OP_LOAD && program.instrs[id].mask == NPU_NO_VALUE);
  };
  const bool simple_mask = !plain.masked() || (Combiner::flagged(plain) && loaded(fold.mask));
  if (simple_mask && loaded(fold.a) && loaded(fold.b) && loaded(fold.c)) return false;
  Draft map(NPU_MAP, refused.size());
  Writer writer(refused, map);
  copy_segment(writer, program, segments_of(program)[0], needs(program, {plain.id}));
  Tuple element;
  if (plain.kind == NPU_FOLD_WELFORD && fold.b == NPU_NO_VALUE && !plain.masked())
    element = {writer.value(fold.a)};
  else
    element = Combiner(writer, refused, plain).element();
  std::vector<Operand> made;
  for (const uint16_t value : element) {
    made.push_back(script.scratch(writer.type(value), refused.size()));
    writer.store(made.back(), value);
  }
  writer.finish(program.name);
  script.add(map);
  script.add(fold_again(refused, plain, refused.size(), made, plain.stores));
  return true;
}

}  // namespace npu::legalise
