// Operands that lie as the chip does not take them: copies in front of a command, and behind it.
#include "support/legalise/rules/parts.h"
#include "support/legalise/rules/through.h"

namespace npu::legalise {
namespace {

// Scratch for an operand: dense, where it is broadcast as broadcast as before unless `full`.
Operand scratch_for(const Operand& operand, int type, const Use& use, bool full, Script& script,
                    std::vector<int64_t>* size) {
  *size = use.size;
  for (size_t d = 0; d < size->size(); ++d)
    if (operand.form.stride[d] == 0 && !full) (*size)[d] = 1;
  Operand out = script.scratch(type, *size);
  for (size_t d = 0; d < size->size(); ++d)
    if (((*size)[d] == 1 && use.size[d] != 1) || static_cast<int>(d) >= use.rank) out.form.stride[d] = 0;
  return out;
}

bool same_elements(const Operand& a, const Operand& b) {
  if (a.place != b.place || a.form.dtype != b.form.dtype) return false;
  return std::equal(std::begin(a.form.stride), std::end(a.form.stride), std::begin(b.form.stride));
}

// Two operands of one memory of which one is written must stay one: both get the same scratch, or the rule does not
// fit.
bool alias_problem(const Draft& draft, const std::vector<Use>& uses, const Copies& copies, const Script& script) {
  for (size_t a = 0; a < uses.size(); ++a)
    for (size_t b = 0; b < a; ++b) {
      if ((copies[a] < 0 && copies[b] < 0) || !(uses[a].written || uses[b].written)) continue;
      const Operand &one = draft.operands[a], &other = draft.operands[b];
      if (!script.same_memory(one, other)) continue;
      if (copies[a] != copies[b] || !same_elements(one, other) || uses[a].size != uses[b].size) return true;
    }
  return false;
}

}  // namespace

bool through_copies(const Draft& refused, const Copies& copies, bool full, Script& script) {
  const std::vector<Use> uses = uses_of(refused);
  if (alias_problem(refused, uses, copies, script)) return false;
  Draft command = refused;
  std::vector<Draft> behind;
  const auto same = [&](size_t a, size_t b) {
    return copies[a] == copies[b] && uses[a].size == uses[b].size &&
           same_elements(refused.operands[a], refused.operands[b]);
  };
  for (size_t k = 0; k < uses.size(); ++k) {
    if (copies[k] < 0) continue;
    size_t first = 0;
    while (!same(first, k)) ++first;
    if (first < k) {
      command.operands[k] = command.operands[first];
      continue;
    }
    const Operand& operand = refused.operands[k];
    bool read = false, written = false;
    for (size_t other = k; other < uses.size(); ++other) {
      if (!same(other, k)) continue;
      read |= uses[other].read || uses[other].partly;
      written |= uses[other].written;
    }
    std::vector<int64_t> size;
    command.operands[k] = scratch_for(operand, copies[k], uses[k], full && !written, script, &size);
    if (read) script.add(copy(size, command.operands[k], operand));
    if (written) behind.push_back(copy(size, operand, command.operands[k]));
  }
  script.add(command);
  for (Draft& draft : behind) script.add(std::move(draft));
  return true;
}

bool is_fixed(const Operand& operand, const Use& use) {
  return operand.immediate() || use.computed || !(use.read || use.written);
}

namespace {

template <class Wanted>
bool choose(const Draft& refused, Copies& copies, Wanted wanted) {
  const std::vector<Use> uses = uses_of(refused);
  copies.assign(uses.size(), -1);
  bool any = false;
  for (size_t k = 0; k < uses.size(); ++k) {
    const Operand& operand = refused.operands[k];
    if (is_fixed(operand, uses[k]) || !wanted(operand, uses[k])) continue;
    copies[k] = operand.form.dtype;
    any = true;
  }
  return any;
}

bool dense_operands(const Draft& refused, Script& script) {
  Copies copies;
  const auto odd = [](const Operand& operand, const Use& use) { return !is_dense(operand, use.size, true); };
  return choose(refused, copies, odd) && through_copies(refused, copies, false, script);
}

bool full_operands(const Draft& refused, Script& script) {
  Copies copies;
  const auto broadcast = [](const Operand& operand, const Use& use) { return !is_dense(operand, use.size, false); };
  return choose(refused, copies, broadcast) && through_copies(refused, copies, true, script);
}

bool aligned_operands(const Draft& refused, Script& script) {
  Copies copies;
  const auto skewed = [&](const Operand& operand, const Use&) { return script.skew(operand) != 0; };
  return choose(refused, copies, skewed) && through_copies(refused, copies, false, script);
}

// An immediate becomes memory of one element, which is walked with strides of 0.
bool immediates_in_memory(const Draft& refused, Script& script) {
  Draft command = refused;
  const std::vector<Use> uses = uses_of(refused);
  for (size_t k = 0; k < uses.size(); ++k) {
    Operand& operand = command.operands[k];
    // Of SORT, the payload's place says something else: the numbers of the keys.
    if (!operand.immediate() || !uses[k].read || refused.command.kind == NPU_SORT) continue;
    Operand one = script.scratch(operand.form.dtype, {});
    script.add(copy({}, one, operand));
    operand = one;
  }
  if (script.drafts.empty()) return false;
  script.add(command);
  return true;
}

constexpr uint32_t kAllButCopy = kAnyKind & ~for_kind(NPU_COPY);

constexpr Rule kRules[] = {
    {.name = "constants in memory",
     .why = "an immediate is one element that every point sees, as memory of one element with strides of 0 is",
     .price = Price::kCalls,
     .kinds = kAllButCopy,
     .repeats = false,
     .make = immediates_in_memory},
    {.name = "dense operands",
     .why = "a copy has the same elements at the same points; what is written is copied back behind the command",
     .price = Price::kPass,
     .kinds = kAllButCopy,
     .repeats = false,
     .make = dense_operands,
     .placement = true},
    {.name = "aligned operands",
     .why = "scratch begins at an aligned address; a copy has the same elements",
     .price = Price::kPass,
     .kinds = kAllButCopy,
     .repeats = false,
     .make = aligned_operands,
     .placement = true},
    {.name = "operands of every point",
     .why = "a broadcast element is the same as many equal ones",
     .price = Price::kPasses,
     .kinds = kAllButCopy,
     .repeats = false,
     .make = full_operands},
};

}  // namespace

const std::span<const Rule> dense_rules = kRules;

}  // namespace npu::legalise
