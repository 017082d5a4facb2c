// What a REDUCE, a SCAN or a SCATTER computes at each point alone, taken out of it.
#include <map>

#include "support/legalise/draft/writer.h"
#include "support/legalise/rules/parts.h"

namespace npu::legalise {
namespace {

// Which of a program's values depend on their point only, and which of those others use.
class Front {
 public:
  Front(const Draft& draft, const Script& script) : instrs_(draft.program->instrs), pure_(instrs_.size(), false) {
    bool each = false;
    for (uint16_t id = 0; id < instrs_.size(); ++id) {
      const npu_instr& in = instrs_[id];
      if (in.op == NPU_OP_SEGMENT) each = in.imm == NPU_SEGMENT_EACH;
      pure_[id] = each && is_pure(in) && !reads_a_result(draft, script, id);
    }
    each = false;
    for (uint16_t id = 0; id < instrs_.size(); ++id) {
      if (instrs_[id].op == NPU_OP_SEGMENT) each = instrs_[id].imm == NPU_SEGMENT_EACH;
      if (!each || pure_[id]) continue;
      for (const uint16_t argument : {instrs_[id].a, instrs_[id].b, instrs_[id].c, instrs_[id].mask})
        if (argument != NPU_NO_VALUE && pure_[argument] && !is_source(instrs_[argument])) border_[argument] = {};
    }
  }

  std::map<uint16_t, Operand>& border() { return border_; }
  // It is written no more: all that used it has it from memory.
  bool gone(uint16_t id) const { return pure_[id] && !is_source(instrs_[id]); }

 private:
  static bool is_source(const npu_instr& in) {
    return in.op == NPU_OP_CONST || in.op == NPU_OP_PARAM || in.op == NPU_OP_INDEX || in.op == NPU_OP_SIZE ||
           (in.op == NPU_OP_LOAD && in.mask == NPU_NO_VALUE);
  }
  bool is_pure(const npu_instr& in) const {
    if (in.dtype == NPU_DTYPE_NONE || in.op == NPU_OP_FOLD || in.op == NPU_OP_SCAN || in.op == NPU_OP_GET) return false;
    for (const uint16_t argument : {in.a, in.b, in.c, in.mask})
      if (argument != NPU_NO_VALUE && !pure_[argument]) return false;
    return true;
  }
  // Later segments see what earlier ones have stored.
  bool reads_a_result(const Draft& draft, const Script& script, uint16_t id) const {
    if (instrs_[id].op != NPU_OP_LOAD && instrs_[id].op != NPU_OP_LOAD_AT) return false;
    for (uint16_t other = 0; other < id; ++other)
      if (instrs_[other].op == NPU_OP_STORE &&
          script.same_memory(draft.operands[instrs_[other].imm], draft.operands[instrs_[id].imm]))
        return true;
    return false;
  }

  const std::vector<npu_instr>& instrs_;
  std::vector<bool> pure_;
  std::map<uint16_t, Operand> border_;  // values that go through memory, and where
};

bool points_in_front(const Draft& refused, Script& script) {
  Front front(refused, script);
  if (front.border().empty()) return false;
  Draft map(NPU_MAP, refused.size());
  Writer writer(refused, map);
  for (auto& [id, held] : front.border()) {
    const int type = refused.program->instrs[id].dtype;
    held = script.scratch(type, refused.size());
    writer.store(held, writer.value(id));
  }
  writer.finish(refused.program->name);
  script.add(map);

  Draft rest = refused;
  rest.operands.clear();
  rest.params.clear();
  rewrite(refused, rest, [&](Writer& back, uint16_t id, const npu_instr& in) {
    if (!front.gone(id)) return false;
    const auto held = front.border().find(id);
    if (held != front.border().end()) back.provide(id, back.load(held->second, in.dtype));
    return true;
  });
  script.add(rest);
  return true;
}

constexpr Rule kRules[] = {
    {.name = "points in front",
     .why = "what depends on its point only is the same in a MAP before, and lies in scratch as it was computed",
     .price = Price::kPass,
     .kinds = for_kind(NPU_REDUCE) | for_kind(NPU_SCAN) | for_kind(NPU_SCATTER),
     .repeats = false,
     .make = points_in_front},
};

}  // namespace

const std::span<const Rule> front_rules = kRules;

}  // namespace npu::legalise
