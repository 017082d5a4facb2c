#include "support/legalise/rules/folds/form.h"

#include <algorithm>

#include "support/program/op_info.h"

namespace npu::legalise {
namespace {

std::vector<Segment> segments(const Program& program, bool combines) {
  std::vector<Segment> out;
  const auto count = static_cast<uint16_t>(program.instrs.size());
  for (uint16_t begin = 0; begin < count;) {
    uint16_t end = static_cast<uint16_t>(begin + 1);
    while (end < count && program.instrs[end].op != NPU_OP_SEGMENT) ++end;
    const auto kind = static_cast<npu_segment>(program.instrs[begin].imm);
    if ((kind == NPU_SEGMENT_COMBINE) == combines) out.push_back({kind, static_cast<uint16_t>(begin + 1), end});
    begin = end;
  }
  return out;
}

}  // namespace

std::vector<Segment> segments_of(const Program& program) {
  return segments(program, false);
}

std::vector<Segment> combines_of(const Program& program) {
  return segments(program, true);
}

bool is_fold(const npu_instr& instr) {
  return instr.op == NPU_OP_FOLD || instr.op == NPU_OP_SCAN;
}

bool is_store(const npu_instr& instr) {
  return instr.op == NPU_OP_STORE || instr.op == NPU_OP_STORE_AT;
}

bool is_effect(const npu_instr& instr) {
  return is_store(instr) || (instr.op == NPU_OP_CHECK_INDEX && instr.flags & NPU_INDEX_CHECK);
}

bool folds(const Program& program, const Segment& segment) {
  return std::any_of(program.instrs.begin() + segment.begin, program.instrs.begin() + segment.end, is_fold);
}

std::optional<Member> member_of(const Program& program, uint16_t id) {
  const npu_instr& instr = program.instrs[id];
  if (is_fold(instr)) return Member{id, 0};
  if (instr.op == NPU_OP_GET) return Member{instr.a, instr.imm};
  return {};
}

int type_of(const Program& program, const Member& member) {
  const npu_instr& fold = program.instrs[member.fold];
  if (member.number == 0 || fold_kind(fold) == NPU_FOLD_WELFORD) return fold.dtype;
  return program.instrs[member.number == 1 ? fold.b : fold.c].dtype;
}

std::vector<bool> needs(const Program& program, const std::vector<uint16_t>& wanted) {
  std::vector<bool> needed(program.instrs.size(), false);
  for (const uint16_t id : wanted) needed[id] = true;
  for (size_t id = needed.size(); id-- > 0;) {
    const npu_instr& instr = program.instrs[id];
    if (!needed[id] || instr.op == NPU_OP_SEGMENT) continue;
    for (const uint16_t arg : {instr.a, instr.b, instr.c, instr.mask})
      if (arg != NPU_NO_VALUE) needed[arg] = true;
  }
  return needed;
}

void copy_segment(Writer& writer, const Program& program, const Segment& segment, const std::vector<bool>& needed) {
  for (uint16_t id = segment.begin; id < segment.end; ++id) {
    const npu_instr& instr = program.instrs[id];
    if (!needed[id] || is_fold(instr) || instr.op == NPU_OP_GET) continue;
    is_store(instr) ? writer.sink(id) : void(writer.value(id));
  }
}

uint16_t FoldCopier::fold(uint16_t id, const std::vector<uint16_t>& args, uint16_t mask) {
  const npu_instr& instr = program_.instrs[id];
  uint32_t imm = instr.imm;
  if (fold_kind(instr) == NPU_FOLD_CUSTOM) {
    const int combine = fold_combine(instr);
    const auto at = std::find(combines_.begin(), combines_.end(), combine);
    imm = NPU_FOLD_CUSTOM | static_cast<uint32_t>(at - combines_.begin()) << 8;
    if (at == combines_.end()) combines_.push_back(combine);
  }
  const auto arg = [&](size_t k) { return k < args.size() ? args[k] : uint16_t{NPU_NO_VALUE}; };
  return writer_.emit(static_cast<npu_op>(instr.op), instr.dtype, arg(0), arg(1), arg(2), imm, mask);
}

uint16_t FoldCopier::fold(uint16_t id) {
  const npu_instr& instr = program_.instrs[id];
  const uint16_t a = writer_.value(instr.a), b = writer_.value(instr.b), c = writer_.value(instr.c);
  return fold(id, {a, b, c}, writer_.value(instr.mask));
}

void FoldCopier::combines() {
  const std::vector<Segment> all = combines_of(program_);
  for (const int number : combines_) {
    writer_.segment(NPU_SEGMENT_COMBINE);
    const Segment& combine = all[static_cast<size_t>(number)];
    for (uint16_t id = combine.begin; id < combine.end; ++id)
      program_.instrs[id].op == NPU_OP_YIELD ? writer_.sink(id) : void(writer_.value(id));
  }
}

uint16_t get(Writer& writer, uint16_t fold, uint32_t member, int type) {
  if (member == 0) return fold;
  return writer.emit(NPU_OP_GET, type, fold, NPU_NO_VALUE, NPU_NO_VALUE, member);
}

namespace {

// The second part of a plain command: nothing but stores of members. False: there is more.
bool read_stores(const Draft& draft, const Segment& segment, std::vector<Plain>& folds) {
  const Program& program = *draft.program;
  for (uint16_t id = segment.begin; id < segment.end; ++id) {
    const npu_instr& instr = program.instrs[id];
    if (instr.op == NPU_OP_GET) continue;
    if (instr.op != NPU_OP_STORE || instr.mask != NPU_NO_VALUE) return false;
    const std::optional<Member> member = member_of(program, instr.a);
    if (!member) return false;
    for (Plain& fold : folds)
      if (fold.id == member->fold) fold.stores.push_back({member->number, draft.operands[instr.imm]});
  }
  return true;
}

// Are results stored where others are still read?
bool meets(const Draft& draft, const Plain& fold, const Script& script) {
  for (const npu_instr& instr : draft.program->instrs) {
    if (instr.op != NPU_OP_LOAD && instr.op != NPU_OP_LOAD_AT) continue;
    for (const Stored& stored : fold.stores)
      if (script.same_memory(stored.to, draft.operands[instr.imm])) return true;
  }
  return false;
}

Plain plain_of(const Program& program, uint16_t id) {
  const npu_instr& instr = program.instrs[id];
  Plain out{.id = id, .instr = instr, .kind = fold_kind(instr), .types = {}, .stores = {}};
  for (uint32_t k = 0; k < static_cast<uint32_t>(tuple_size(instr)); ++k)
    out.types.push_back(type_of(program, {id, k}));
  return out;
}

}  // namespace

std::vector<Plain> plain_folds(const Draft& draft, const Script& script) {
  if (!draft.program) return {};
  const Program& program = *draft.program;
  const std::vector<Segment> all = segments_of(program);
  if (all.empty() || all.size() > 2 || all[0].kind != NPU_SEGMENT_EACH) return {};
  const bool reduce = draft.command.kind == NPU_REDUCE;
  if (all.size() > 1 && all[1].kind != (reduce ? NPU_SEGMENT_ROW : NPU_SEGMENT_EACH)) return {};
  std::vector<Plain> out;
  std::vector<uint16_t> ids;
  for (uint16_t id = all[0].begin; id < all[0].end; ++id) {
    if (is_store(program.instrs[id])) return {};
    if (!is_fold(program.instrs[id])) continue;
    out.push_back(plain_of(program, id));
    ids.push_back(id);
  }
  if (all.size() > 1 && !read_stores(draft, all[1], out)) return {};
  const std::vector<bool> needed = needs(program, ids);
  for (uint16_t id = all[0].begin; id < all[0].end; ++id)
    if (is_effect(program.instrs[id]) && !needed[id]) return {};
  for (const Plain& fold : out)
    if ((reduce || out.size() > 1) && meets(draft, fold, script)) return {};
  return out;
}

std::optional<Plain> plain(const Draft& draft, const Script& script) {
  std::vector<Plain> all = plain_folds(draft, script);
  if (all.size() != 1 || all[0].stores.empty()) return {};
  return std::move(all[0]);
}

Operand first_dimensions(const Operand& operand, int rank) {
  Operand out = operand;
  std::fill(out.form.stride + rank, out.form.stride + NPU_MAX_RANK, 0);
  return out;
}

int kept_rank(const Draft& draft) {
  return draft.command.rank - draft.command.inner_rank;
}

int64_t inner_points(const Draft& draft, int kept) {
  int64_t points = 1;
  for (int d = kept; d < draft.command.rank; ++d) points *= draft.command.size[d];
  return points;
}

}  // namespace npu::legalise
