#include "support/legalise/rules/targets.h"

#include <algorithm>
#include <cstring>

#include "support/legalise/draft/ranges.h"

namespace npu::legalise {
namespace {

bool is_load(const npu_instr& in) {
  return in.op == NPU_OP_LOAD || in.op == NPU_OP_LOAD_AT;
}

// A store joins the target of its memory. False: they differ in a way that makes their order matter.
bool join(std::vector<Target>& targets, const Draft& scatter, uint16_t id, const Script& script) {
  const npu_instr& in = scatter.program->instrs[id];
  const Operand& operand = scatter.operands[in.imm];
  const int type = scatter.program->instrs[in.a].dtype;
  // A narrower type in memory would round after every step.
  const int stored = compute_dtype(operand.form.dtype);
  if (in.flags != NPU_STORE_SET && type != stored) return false;
  for (Target& target : targets) {
    if (!script.same_memory(target.operand, operand)) continue;
    target.stores.push_back(id);
    return target.mode == in.flags && target.type == type && target.operand.place == operand.place &&
           std::memcmp(&target.operand.form, &operand.form, sizeof operand.form) == 0;
  }
  targets.push_back({.operand = operand, .mode = in.flags, .type = type, .stores = {id}});
  return true;
}

// How dimensions and computed offsets make places.
class Places {
 public:
  Places(const Draft& scatter, const Target& target) : scatter_(scatter), form_(target.operand.form) {
    const std::vector<uint32_t> dimensions = dimensions_of(scatter);
    bool first = true;
    for (const uint16_t id : target.stores) {
      const npu_instr& in = scatter.program->instrs[id];
      const Range found = ranges_of(scatter, in.mask)[in.b];
      computed_ = first ? found : either(computed_, found);
      depends_ |= dimensions[in.b] | (in.mask == NPU_NO_VALUE ? 0 : dimensions[in.mask]);
      first = false;
    }
  }

  // Of points that differ in these dimensions.
  Range along(const std::vector<int>& dimensions, Range from) const {
    for (const int d : dimensions) {
      const int64_t last = scatter_.command.size[d] - 1, step = form_.stride[d];
      from = from + range(0, last, 1) * range(step, step, 0);
    }
    return from;
  }
  Range along(const std::vector<int>& dimensions) const { return along(dimensions, computed_); }
  bool depends_on(int d) const { return depends_ >> d & 1; }

  // Those of `dimensions` that step forward, by the length of their step.
  std::vector<int> stepping(const std::vector<int>& dimensions) const {
    std::vector<int> out;
    for (const int d : dimensions)
      if (form_.stride[d] > 0 && scatter_.command.size[d] > 1) out.push_back(d);
    std::stable_sort(out.begin(), out.end(), [&](int a, int b) { return form_.stride[a] < form_.stride[b]; });
    return out;
  }
  int64_t step(int d) const { return form_.stride[d]; }

 private:
  const Draft& scatter_;
  const npu_operand& form_;
  Range computed_;
  uint32_t depends_ = 0;
};

std::vector<int> without(std::vector<int> from, const std::vector<int>& what) {
  std::erase_if(from, [&](int d) { return std::find(what.begin(), what.end(), d) != what.end(); });
  return from;
}

// Dimensions, the smallest steps first, that step over all that smaller ones reach.
std::vector<int> inner_columns(const Places& places, const std::vector<int>& all) {
  std::vector<int> out;
  int64_t reach = 0;
  for (const int d : places.stepping(all)) {
    if (places.depends_on(d) || places.step(d) <= reach) continue;
    out.push_back(d);
    reach = places.along(out, range(0, 0, 0)).high;
  }
  return out;
}

// Dimensions, the greatest steps first, that step over all that the others reach.
std::vector<int> outer(const Places& places, const std::vector<int>& all, const std::vector<int>& candidates) {
  std::vector<int> out, by_step = places.stepping(candidates);
  while (!by_step.empty()) {
    const int d = by_step.back();
    by_step.pop_back();
    std::vector<int> taken = out;
    taken.push_back(d);
    const Range others = places.along(without(all, taken));
    if (!others.known || places.step(d) <= others.high - others.low) break;
    out = taken;
  }
  return out;
}

// Every place is known to be inside the limit.
void arrange_columns(const Places& places, const std::vector<int>& all, Target& target) {
  std::vector<int> inner = inner_columns(places, all), rows;
  Range slots;
  // Columns lie between the slots, which must be far enough apart.
  for (;; inner.pop_back()) {
    const std::vector<int> rest = without(all, inner);
    rows = outer(places, all, rest);
    slots = places.along(without(rest, rows));
    if (slots.step == 0 || slots.step > places.along(inner, range(0, 0, 0)).high) break;
  }
  for (const int d : all) {
    const auto in = [d](const std::vector<int>& set) { return std::find(set.begin(), set.end(), d) != set.end(); };
    if (in(rows) && places.depends_on(d))
      target.rows.push_back(d);
    else
      (in(rows) || in(inner) ? target.columns : target.items).push_back(d);
  }
  target.bounded = target.inside = true;
  target.low = slots.low;
  target.step = std::max<int64_t>(slots.step, 1);
  target.extent = (slots.high - slots.low) / target.step + 1;
}

void arrange(const Draft& scatter, Target& target) {
  std::vector<int> all(scatter.command.rank);
  for (int d = 0; d < scatter.command.rank; ++d) all[static_cast<size_t>(d)] = d;
  const Places places(scatter, target);
  const int64_t limit = target.operand.form.limit;
  const Range everywhere = places.along(all);
  if (everywhere.known && (limit == 0 || everywhere.within(0, limit - 1))) return arrange_columns(places, all, target);
  target.items = all;
  target.bounded = limit > 0;
  target.extent = limit;
  target.inside = limit == 0;
}

}  // namespace

std::vector<Target> targets_of(const Draft& scatter, const Script& script) {
  std::vector<Target> targets;
  const auto& instrs = scatter.program->instrs;
  for (uint16_t id = 0; id < instrs.size(); ++id)
    if (instrs[id].op == NPU_OP_STORE_AT && !join(targets, scatter, id, script)) return {};
  for (const npu_instr& in : instrs) {
    if (!is_load(in) && in.op != NPU_OP_STORE) continue;
    for (const Target& target : targets)
      if (script.same_memory(target.operand, scatter.operands[in.imm])) return {};
  }
  for (Target& target : targets) arrange(scatter, target);
  return targets;
}

}  // namespace npu::legalise
