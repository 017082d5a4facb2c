// REDUCE and SCAN of several segments, folds and stores from commands that have one of each.
#include <algorithm>

#include "support/legalise/rules/folds/pieces.h"
#include "support/legalise/rules/parts.h"
#include "support/program/op_info.h"

namespace npu::legalise {
namespace {

// What becomes a command of its own. Values that later parts see lie in scratch in between.
struct Part {
  enum Work : uint8_t { kAll, kFolds, kEffects };
  std::vector<Segment> segments;  // an each or a row segment; behind an each that folds, rows
  Work work = kAll;
};

bool is_trivial(const npu_instr& instr) {  // as cheap as reading it
  return instr.op == NPU_OP_CONST || instr.op == NPU_OP_PARAM || instr.op == NPU_OP_INDEX || instr.op == NPU_OP_SIZE;
}

class Parts {
 public:
  Parts(const Draft& refused, Script& script) : refused_(refused), program_(*refused.program), script_(script) {}

  void write(const std::vector<Part>& parts) {
    for (size_t k = 0; k < parts.size(); ++k) {
      const bool last = k + 1 == parts.size();
      const std::vector<uint16_t> seen =
          last ? std::vector<uint16_t>() : seen_later({parts.begin() + static_cast<ptrdiff_t>(k) + 1, parts.end()});
      const Segment& first = parts[k].segments[0];
      if (parts[k].work == Part::kEffects || !folds(program_, first))
        map(parts[k], first.kind == NPU_SEGMENT_ROW ? kept_rank(refused_) : refused_.command.rank, seen);
      else if (refused_.command.kind == NPU_REDUCE)
        reduce(parts[k], seen);
      else
        scans(parts[k], seen);
    }
  }

 private:
  struct Known {
    uint16_t id;
    Operand at;
  };

  std::vector<int64_t> kept_size() const {
    return {refused_.command.size, refused_.command.size + kept_rank(refused_)};
  }

  // Members of folds, and values of rows, that these parts read.
  std::vector<uint16_t> seen_later(const std::vector<Part>& parts) const {
    std::vector<uint16_t> out;
    for (const Part& part : parts)
      for (const Segment& segment : part.segments)
        for (uint16_t id = segment.begin; id < segment.end; ++id) {
          const npu_instr& instr = program_.instrs[id];
          if (instr.op == NPU_OP_GET) continue;
          for (const uint16_t arg : {instr.a, instr.b, instr.c, instr.mask})
            if (arg != NPU_NO_VALUE && (member_of(program_, arg) || !is_trivial(program_.instrs[arg])))
              out.push_back(arg);
        }
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  // Those of `seen` that this part makes.
  std::vector<uint16_t> made_here(const Part& part, std::vector<uint16_t> seen) const {
    std::erase_if(seen, [&](uint16_t id) {
      const std::optional<Member> member = member_of(program_, id);
      return std::none_of(part.segments.begin(), part.segments.end(), [&](const Segment& segment) {
        if (member) return part.work != Part::kEffects && within(member->fold, segment);
        return segment.kind == NPU_SEGMENT_ROW && within(id, segment);
      });
    });
    return seen;
  }

  // Values that earlier commands have left, for the instructions of a segment.
  void bring(Writer& writer, const Segment& segment, const std::vector<bool>& needed) {
    for (uint16_t id = segment.begin; id < segment.end; ++id) {
      const npu_instr& instr = program_.instrs[id];
      if (!needed[id] || instr.op == NPU_OP_GET) continue;
      for (const uint16_t arg : {instr.a, instr.b, instr.c, instr.mask})
        for (const Known& known : known_)
          if (arg == known.id) writer.provide(arg, writer.load(known.at, program_.instrs[arg].dtype));
    }
  }

  std::vector<uint16_t> effects(const Part& part) const {
    std::vector<uint16_t> out, folded;
    for (const Segment& segment : part.segments)
      for (uint16_t id = segment.begin; id < segment.end; ++id) {
        if (is_fold(program_.instrs[id])) folded.push_back(id);
        if (is_effect(program_.instrs[id])) out.push_back(id);
      }
    if (part.work != Part::kEffects) return out;
    const std::vector<bool> done = needs(program_, folded);  // checks that folds have made already
    std::erase_if(out, [&](uint16_t id) { return done[id]; });
    return out;
  }

  // Stores to scratch what later parts see.
  void leave(Writer& writer, const std::vector<uint16_t>& left, const std::vector<int64_t>& size) {
    for (const uint16_t id : left) {
      const int type = program_.instrs[id].dtype;
      const Operand at = script_.scratch(type, size);
      const std::optional<Member> member = member_of(program_, id);
      writer.store(at, member ? get(writer, writer.value(member->fold), member->number, type) : writer.value(id));
      known_.push_back({id, at});
    }
  }

  static bool within(uint16_t id, const Segment& segment) { return id >= segment.begin && id < segment.end; }

  void reduce(const Part& part, const std::vector<uint16_t>& seen) {
    const Segment& each = part.segments[0];
    const std::vector<uint16_t> left = made_here(part, seen);
    std::vector<uint16_t> wanted = part.work == Part::kFolds ? std::vector<uint16_t>() : effects(part);
    wanted.insert(wanted.end(), left.begin(), left.end());
    if (wanted.empty()) return;
    for (uint16_t id = each.begin; id < each.end; ++id)
      if (is_fold(program_.instrs[id])) wanted.push_back(id);
    const std::vector<bool> needed = needs(program_, wanted);
    Draft draft(NPU_REDUCE, refused_.size(), refused_.command.inner_rank);
    Writer writer(refused_, draft);
    FoldCopier copier(writer, program_);
    bring(writer, each, needed);
    copy_segment(writer, program_, each, needed);
    for (uint16_t id = each.begin; id < each.end; ++id)
      if (is_fold(program_.instrs[id])) writer.provide(id, copier.fold(id));
    for (size_t k = 1; k < part.segments.size(); ++k) row(writer, part.segments[k], needed);
    if (part.segments.size() == 1) writer.segment(NPU_SEGMENT_ROW);
    leave(writer, left, kept_size());
    copier.combines();
    writer.finish(program_.name);
    script_.add(draft);
  }

  // Its values are seen in the rows behind it.
  void row(Writer& writer, const Segment& segment, const std::vector<bool>& needed) {
    writer.segment(NPU_SEGMENT_ROW);
    bring(writer, segment, needed);
    copy_segment(writer, program_, segment, needed);
    for (uint16_t id = segment.begin; id < segment.end; ++id)
      if (needed[id] && program_.instrs[id].dtype != NPU_DTYPE_NONE) writer.provide(id, writer.value(id));
  }

  void map(const Part& part, int rank, const std::vector<uint16_t>& seen) {
    const Segment& segment = part.segments[0];
    const std::vector<uint16_t> left = made_here(part, seen);
    std::vector<uint16_t> wanted = effects(part);
    wanted.insert(wanted.end(), left.begin(), left.end());
    if (wanted.empty()) return;
    const std::vector<bool> needed = needs(program_, wanted);
    std::vector<int64_t> size = refused_.size();
    size.resize(static_cast<size_t>(rank));
    Draft draft(NPU_MAP, size);
    Writer writer(refused_, draft);
    writer.map_operands([rank](const Operand& operand) { return first_dimensions(operand, rank); });
    bring(writer, segment, needed);
    copy_segment(writer, program_, segment, needed);
    leave(writer, left, size);
    writer.finish(program_.name);
    script_.add(draft);
  }

  void scans(const Part& part, const std::vector<uint16_t>& seen) {
    const Segment& each = part.segments[0];
    for (uint16_t fold = each.begin; fold < each.end; ++fold) {
      if (!is_fold(program_.instrs[fold])) continue;
      std::vector<uint16_t> left = made_here(part, seen);
      std::erase_if(left, [&](uint16_t id) { return member_of(program_, id)->fold != fold; });
      if (left.empty()) continue;
      const std::vector<bool> needed = needs(program_, {fold});
      Draft draft(NPU_SCAN, refused_.size(), 1);
      Writer writer(refused_, draft);
      FoldCopier copier(writer, program_);
      bring(writer, each, needed);
      copy_segment(writer, program_, each, needed);
      writer.provide(fold, copier.fold(fold));
      writer.segment(NPU_SEGMENT_EACH);
      leave(writer, left, refused_.size());
      copier.combines();
      writer.finish(program_.name);
      script_.add(draft);
    }
  }

  const Draft& refused_;
  const Program& program_;
  Script& script_;
  std::vector<Known> known_;
};

// Each segment that folds, with the rows behind it; the other segments.
std::vector<Part> groups(const Program& program) {
  std::vector<Part> parts;
  for (const Segment& segment : segments_of(program)) {
    const bool joins = segment.kind == NPU_SEGMENT_ROW && !parts.empty() && folds(program, parts.back().segments[0]);
    if (!joins) parts.emplace_back();
    parts.back().segments.push_back(segment);
  }
  return parts;
}

bool segment_by_segment(const Draft& refused, Script& script) {
  if (!refused.program) return false;
  const std::vector<Part> parts = groups(*refused.program);
  if (parts.size() < 2) return false;
  Parts(refused, script).write(parts);
  return true;
}

bool without_folds(const Draft& refused, Script& script) {
  if (!refused.program) return false;
  const std::vector<Part> parts = groups(*refused.program);
  if (parts.size() > 1 || folds(*refused.program, parts[0].segments[0]) || came_by(refused, kMapAsReduce)) return false;
  Parts(refused, script).write(parts);
  return true;
}

// Each segment's folds, then what it stores, then what its rows do.
bool folds_then_stores(const Draft& refused, Script& script) {
  if (!refused.program) return false;
  const Program& program = *refused.program;
  if (!plain_folds(refused, script).empty()) return false;
  const std::vector<Segment> segments = segments_of(program);
  const bool scan = refused.command.kind == NPU_SCAN;
  if (!scan && (groups(program).size() > 1 || !folds(program, segments[0]))) return false;
  std::vector<Part> parts;
  for (const Segment& segment : segments) {
    if (folds(program, segment)) parts.push_back({{segment}, Part::kFolds});
    parts.push_back({{segment}, Part::kEffects});
  }
  Parts(refused, script).write(parts);
  return true;
}

bool fold_by_fold(const Draft& refused, Script& script) {
  const std::vector<Plain> all = plain_folds(refused, script);
  if (all.size() < 2) return false;
  const Program& program = *refused.program;
  const bool reduce = refused.command.kind == NPU_REDUCE;
  for (const Plain& fold : all) {
    if (fold.stores.empty()) continue;
    Draft draft =
        Draft(static_cast<npu_command_kind>(refused.command.kind), refused.size(), refused.command.inner_rank);
    Writer writer(refused, draft);
    FoldCopier copier(writer, program);
    copy_segment(writer, program, segments_of(program)[0], needs(program, {fold.id}));
    const uint16_t made = copier.fold(fold.id);
    writer.segment(reduce ? NPU_SEGMENT_ROW : NPU_SEGMENT_EACH);
    for (const Stored& stored : fold.stores)
      writer.store(stored.to, get(writer, made, stored.member, fold.types[stored.member]));
    copier.combines();
    writer.finish(program.name);
    script.add(draft);
  }
  return true;
}

constexpr uint32_t kFolding = for_kind(NPU_REDUCE) | for_kind(NPU_SCAN);
constexpr Rule kRules[] = {
    {.name = "a REDUCE without folds as MAP",
     .why = "points and rows that nothing is folded over know nothing of each other",
     .price = Price::kCalls,
     .kinds = for_kind(NPU_REDUCE),
     .repeats = false,
     .make = without_folds},
    {.name = "segment by segment",
     .why = "rows know nothing of each other, so all may be through with one segment before the next; what a segment "
            "leaves for later ones lies in scratch",
     .price = Price::kCalls,
     .kinds = for_kind(NPU_REDUCE),
     .repeats = true,
     .make = segment_by_segment},
    {.name = "folds, then stores",
     .why = "a segment's stores do not change what it folds; what it folded lies in scratch until its rows see it",
     .price = Price::kPass,
     .kinds = kFolding,
     .repeats = true,
     .make = folds_then_stores},
    {.name = "fold by fold",
     .why = "folds of one segment know nothing of each other",
     .price = Price::kPass,
     .kinds = kFolding,
     .repeats = true,
     .make = fold_by_fold},
};

}  // namespace

const std::span<const Rule> segment_rules = kRules;

}  // namespace npu::legalise
