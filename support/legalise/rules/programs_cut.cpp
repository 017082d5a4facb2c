// MAP programs in parts: shorter ones, and such as use fewer operands.
#include <algorithm>

#include "support/legalise/draft/writer.h"
#include "support/legalise/rules/parts.h"

namespace npu::legalise {
namespace {

// What both parts write for themselves rather than to hand it over: it costs no memory, or lies in memory already.
bool is_source(const npu_instr& in) {
  return in.op == NPU_OP_CONST || in.op == NPU_OP_PARAM || in.op == NPU_OP_INDEX || in.op == NPU_OP_SIZE ||
         (in.op == NPU_OP_LOAD && in.mask == NPU_NO_VALUE);
}

bool is_sink(const npu_instr& in) {
  return in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT;
}

std::vector<uint16_t> arguments(const npu_instr& in) {
  std::vector<uint16_t> out;
  for (const uint16_t id : {in.a, in.b, in.c, in.mask})
    if (id != NPU_NO_VALUE) out.push_back(id);
  return out;
}

// A program in two parts at instruction `at`: what its second part needs of the first.
struct Cut {
  uint16_t at = 0;
  std::vector<uint16_t> crossing;  // values that go through memory
  int64_t bytes = 0;               // of them, at one point
  size_t first = 0, second = 0;    // instructions of the parts
  size_t operands = 0;             // of the part that has more
};

class Cutter {
 public:
  Cutter(const Draft& draft, const Script& script) : draft_(draft), instrs_(draft.program->instrs), script_(script) {}

  Cut at(uint16_t where) const {
    Cut cut;
    cut.at = where;
    std::vector<bool> first(instrs_.size(), false), second(instrs_.size(), false);
    for (uint16_t id = 0; id < instrs_.size(); ++id) {
      if (is_sink(instrs_[id])) need(id, id < where ? first : second, id < where ? 0 : where);
    }
    for (uint16_t id = 0; id < where; ++id) {
      if (!second[id] || again(id, where)) continue;
      cut.crossing.push_back(id);
      cut.bytes += dtype_size(instrs_[id].dtype);
      need(id, first, 0);
    }
    cut.first = count(first) + cut.crossing.size();
    cut.second = count(second) + cut.crossing.size();
    cut.operands = std::max(operands(first, where, true), operands(second, where, false)) + cut.crossing.size();
    return cut;
  }

  void write(const Cut& cut, Script& script) const {
    Draft first(NPU_MAP, draft_.size()), second(NPU_MAP, draft_.size());
    Writer front(draft_, first), back(draft_, second);
    for (uint16_t id = 0; id < cut.at; ++id)
      if (is_sink(instrs_[id])) front.sink(id);
    for (const uint16_t id : cut.crossing) {
      const Operand held = script.scratch(instrs_[id].dtype, draft_.size());
      front.store(held, front.value(id));
      back.provide(id, back.load(held, instrs_[id].dtype));
    }
    for (uint16_t id = cut.at; id < instrs_.size(); ++id)
      if (is_sink(instrs_[id])) back.sink(id);
    front.finish(draft_.program->name);
    back.finish(draft_.program->name);
    script.add(first);
    script.add(second);
  }

 private:
  // The second part may load an element again, unless the first has stored to it.
  bool again(uint16_t id, uint16_t where) const {
    const npu_instr& in = instrs_[id];
    if (!is_source(in)) return false;
    if (in.op != NPU_OP_LOAD) return true;
    for (uint16_t other = 0; other < where; ++other)
      if (is_sink(instrs_[other]) && script_.same_memory(draft_.operands[instrs_[other].imm], draft_.operands[in.imm]))
        return false;
    return true;
  }

  // Marks `id` and, down to `low`, what it needs; below that only what stands at the border.
  void need(uint16_t id, std::vector<bool>& marked, uint16_t low) const {
    if (marked[id]) return;
    marked[id] = true;
    if (id < low) return;
    for (const uint16_t argument : arguments(instrs_[id])) need(argument, marked, low);
  }

  static size_t count(const std::vector<bool>& marked) {
    return static_cast<size_t>(std::count(marked.begin(), marked.end(), true)) + 1;
  }

  size_t operands(const std::vector<bool>& marked, uint16_t where, bool front) const {
    std::vector<bool> used(draft_.operands.size(), false);
    for (uint16_t id = 0; id < instrs_.size(); ++id) {
      const npu_instr& in = instrs_[id];
      const bool here = marked[id] && (front || id >= where || again(id, where));
      if (here && (is_sink(in) || in.op == NPU_OP_LOAD || in.op == NPU_OP_LOAD_AT)) used[in.imm] = true;
    }
    return static_cast<size_t>(std::count(used.begin(), used.end(), true));
  }

  const Draft& draft_;
  const std::vector<npu_instr>& instrs_;
  const Script& script_;
};

bool cut_where_least_crosses(const Draft& refused, Script& script) {
  const auto size = static_cast<uint16_t>(refused.program->instrs.size());
  if (size < 8) return false;
  const Cutter cutter(refused, script);
  Cut best;
  double least = 0;
  for (uint16_t at = size / 4; at <= size - size / 4; ++at) {
    const Cut cut = cutter.at(at);
    const size_t longer = std::max(cut.first, cut.second);
    if (longer >= size) continue;
    // Between equal crossings, equal parts: a byte per point counts as much as a tenth of the program.
    const double cost = static_cast<double>(cut.bytes) + 10.0 * static_cast<double>(longer) / size;
    if (best.at == 0 || cost < least) best = cut, least = cost;
  }
  if (best.at == 0) return false;
  cutter.write(best, script);
  return true;
}

bool cut_for_operands(const Draft& refused, Script& script) {
  const auto size = static_cast<uint16_t>(refused.program->instrs.size());
  if (refused.operands.size() < 3) return false;
  const Cutter cutter(refused, script);
  Cut best;
  for (uint16_t at = 2; at < size; ++at) {
    Cut cut = cutter.at(at);
    if (cut.operands >= refused.operands.size() || std::max(cut.first, cut.second) >= size) continue;
    if (best.at == 0 || cut.operands < best.operands || (cut.operands == best.operands && cut.bytes < best.bytes))
      best = cut;
  }
  if (best.at == 0) return false;
  cutter.write(best, script);
  return true;
}

// Half of the results, then the other half. What both need is computed twice.
bool some_results_at_a_time(const Draft& refused, Script& script) {
  const std::vector<npu_instr>& instrs = refused.program->instrs;
  std::vector<uint16_t> sinks;
  for (uint16_t id = 0; id < instrs.size(); ++id)
    if (is_sink(instrs[id])) sinks.push_back(id);
  if (sinks.size() < 2) return false;
  const size_t half = sinks.size() / 2;
  Draft parts[2] = {Draft(NPU_MAP, refused.size()), Draft(NPU_MAP, refused.size())};
  for (size_t part = 0; part < 2; ++part) {
    Writer writer(refused, parts[part]);
    for (size_t k = part ? half : 0; k < (part ? sinks.size() : half); ++k) writer.sink(sinks[k]);
    writer.finish(refused.program->name);
  }
  // The second half must not read what the first has written; two stores to one element keep their order.
  const auto meets = [&](const Draft& writes, const Draft& reads) {
    for (const npu_instr& store : writes.program->instrs)
      for (const npu_instr& load : reads.program->instrs)
        if (is_sink(store) && (load.op == NPU_OP_LOAD || load.op == NPU_OP_LOAD_AT) &&
            script.same_memory(writes.operands[store.imm], reads.operands[load.imm]))
          return true;
    return false;
  };
  const bool forward = !meets(parts[0], parts[1]);
  if (!forward && meets(parts[1], parts[0])) return false;
  const bool one_memory = [&] {
    for (const npu_instr& a : parts[0].program->instrs)
      for (const npu_instr& b : parts[1].program->instrs)
        if (is_sink(a) && is_sink(b) && script.same_memory(parts[0].operands[a.imm], parts[1].operands[b.imm]))
          return true;
    return false;
  }();
  if (!forward && one_memory) return false;
  script.add(parts[forward ? 0 : 1]);
  script.add(parts[forward ? 1 : 0]);
  return true;
}

constexpr Rule kRules[] = {
    {.name = "program cut where least crosses",
     .why = "values that the second part needs lie in scratch, in the type in which they were computed",
     .price = Price::kPass,
     .kinds = for_kind(NPU_MAP),
     .repeats = true,
     .make = cut_where_least_crosses},
    {.name = "program cut for operands",
     .why = "each part has the operands that it uses, and scratch for what crosses",
     .price = Price::kPass,
     .kinds = for_kind(NPU_MAP),
     .repeats = true,
     .make = cut_for_operands},
    {.name = "some results at a time",
     .why = "results of a MAP do not depend on each other; what reads a result's memory comes first",
     .price = Price::kPass,
     .kinds = for_kind(NPU_MAP),
     .repeats = true,
     .make = some_results_at_a_time},
};

}  // namespace

const std::span<const Rule> cut_rules = kRules;

}  // namespace npu::legalise
