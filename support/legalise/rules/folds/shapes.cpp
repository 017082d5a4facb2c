// REDUCE with fewer inner dimensions or none, and commands that have nothing to do.
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

bool map_as_reduce(const Draft& refused, Script& script) {
  Draft reduce = refused;
  reduce.command.kind = NPU_REDUCE;
  reduce.command.inner_rank = 0;
  script.add(reduce);
  return true;
}

constexpr uint32_t kReduce = for_kind(NPU_REDUCE);
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
};

}  // namespace

const std::span<const Rule> shape_rules = kRules;

}  // namespace npu::legalise
