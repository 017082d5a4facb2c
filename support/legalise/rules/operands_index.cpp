// Operands whose strides or alignment the chip does not take: the program computes where an element lies.
#include <algorithm>
#include <utility>

#include "support/legalise/draft/addressing.h"
#include "support/legalise/draft/uses.h"
#include "support/legalise/draft/writer.h"
#include "support/legalise/rules/parts.h"

namespace npu::legalise {
namespace {

// An operand whose address is computed: its first element, without strides, and what is added to an offset.
struct Computed {
  bool wanted = false;
  Operand base;
  std::vector<int64_t> stride;
  int64_t shift = 0;  // elements
};

void write(const Draft& source, const std::vector<Computed>& computed, Draft& target) {
  Addressing addressing(source);
  rewrite(source, target, [&](Writer& writer, uint16_t id, const npu_instr& in) {
    const bool load = in.op == NPU_OP_LOAD || in.op == NPU_OP_LOAD_AT;
    const bool store = in.op == NPU_OP_STORE || in.op == NPU_OP_STORE_AT;
    if ((!load && !store) || !computed[in.imm].wanted) return false;
    const Computed& view = computed[in.imm];
    const bool plain = in.op == NPU_OP_LOAD || in.op == NPU_OP_STORE;
    Operand base = view.base;
    // The limit is a promise about computed addresses only.
    if (plain) base.form.limit = 0;
    const uint16_t plus = plain ? NPU_NO_VALUE : writer.value(load ? in.a : in.b);
    const uint16_t offset = addressing.offset(writer, id, plus, view.stride, view.shift);
    const uint16_t mask = writer.value(in.mask);
    if (load)
      writer.provide(id, writer.load_at(base, in.dtype, offset, mask));
    else
      writer.emit(NPU_OP_STORE_AT, NPU_DTYPE_NONE, writer.value(in.a), offset, NPU_NO_VALUE, writer.operand(base), mask,
                  plain ? int{NPU_STORE_SET} : in.flags);
    return true;
  });
}

bool is_product(const Draft& draft) {
  return draft.command.kind == NPU_MATMUL || draft.command.kind == NPU_CONV;
}

// Rewrites the accesses to the operands that are wanted. Stores become those of a SCATTER, where the kind allows it.
bool compute_addresses(const Draft& refused, const std::vector<Computed>& computed, Script& script) {
  const std::vector<Use> uses = uses_of(refused);
  const bool pointwise = refused.command.kind == NPU_MAP || refused.command.kind == NPU_SCATTER;
  bool any = false, stores = refused.command.kind == NPU_SCATTER;
  std::vector<Computed> chosen = computed;
  for (size_t k = 0; k < uses.size(); ++k) {
    chosen[k].wanted &= !refused.operands[k].immediate() && (uses[k].read || uses[k].written);
    // Copies serve rows and products better; but what a program picks from, no copy can stand for.
    chosen[k].wanted &= pointwise || (uses[k].computed && !uses[k].written);
    any |= chosen[k].wanted;
    stores |= chosen[k].wanted && uses[k].written;
  }
  if (!any || !refused.program) return false;
  Draft target = refused;
  target.operands.clear();
  if (is_product(refused)) target.operands = {refused.operands[0], refused.operands[1]};
  if (stores) target.command.kind = NPU_SCATTER;
  target.params.clear();
  write(refused, chosen, target);
  script.add(target);
  return true;
}

bool strides_by_index(const Draft& refused, Script& script) {
  const std::vector<Use> uses = uses_of(refused);
  std::vector<Computed> computed(uses.size());
  for (size_t k = 0; k < uses.size(); ++k) {
    const Operand& operand = refused.operands[k];
    computed[k].wanted = !is_dense(operand, uses[k].size, true);
    computed[k].base = operand;
    computed[k].stride.assign(operand.form.stride, operand.form.stride + refused.command.rank);
    for (size_t d = 0; d < uses[k].size.size(); ++d)
      if (uses[k].size[d] == 1) computed[k].stride[d] = 0;
    set_strides(computed[k].base.form, {});
  }
  return compute_addresses(refused, computed, script);
}

bool aligned_by_index(const Draft& refused, Script& script) {
  if (!refused.program) return false;
  std::vector<Computed> computed(refused.operands.size());
  for (size_t k = 0; k < computed.size(); ++k) {
    const Operand& operand = refused.operands[k];
    if (operand.immediate()) continue;
    const int64_t skew = script.skew(operand), width = dtype_size(operand.form.dtype);
    computed[k].wanted = skew != 0 && skew % width == 0;
    computed[k].shift = skew / width;
    computed[k].base = operand.moved_bytes(-skew);
    // What is left of the promise: offsets below the operand's first element are not looked for.
    if (operand.form.limit) computed[k].base.form.limit += computed[k].shift;
    computed[k].stride.assign(static_cast<size_t>(refused.command.rank), 0);
  }
  return compute_addresses(refused, computed, script);
}

// As unsigned numbers of the same width, where types agree: the bytes as they are.
int bits_of(int dtype) {
  switch (dtype_size(dtype)) {
    case 1:
      return NPU_U8;
    case 2:
      return NPU_I16;
    default:
      return dtype;  // a load and a store of these keep the bits
  }
}

bool copy_as_map(const Draft& refused, Script& script) {
  Operand to = refused.operands[0], from = refused.operands[1];
  if (to.form.dtype == from.form.dtype) to.form.dtype = from.form.dtype = static_cast<uint8_t>(bits_of(to.form.dtype));
  Draft map(NPU_MAP, refused.size());
  Writer writer(refused, map);
  writer.store(to, writer.load(from, compute_dtype(from.form.dtype)));
  writer.finish("copy");
  script.add(map);
  return true;
}

// The dimensions of a MAP in the order in which its result lies in memory.
bool memory_order(const Draft& refused, Script& script) {
  const std::vector<Use> uses = uses_of(refused);
  size_t result = 0;
  while (result < uses.size() && !uses[result].written) ++result;
  if (result == uses.size()) return false;
  const int rank = refused.command.rank;
  std::vector<int> order(static_cast<size_t>(rank)), place(order.size());
  for (int d = 0; d < rank; ++d) order[static_cast<size_t>(d)] = d;
  const auto distance = [&](int d) { return std::abs(refused.operands[result].form.stride[d]); };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return distance(a) > distance(b); });
  if (std::is_sorted(order.begin(), order.end())) return false;
  const auto permuted = [&](const int64_t* numbers) {
    std::vector<int64_t> out;
    for (const int d : order) out.push_back(numbers[d]);
    return out;
  };
  Draft target = refused;
  std::copy_n(permuted(refused.command.size).begin(), rank, target.command.size);
  for (Operand& operand : target.operands) set_strides(operand.form, permuted(operand.form.stride));
  if (refused.program) {
    Draft source = target;
    target.operands.clear();
    target.params.clear();
    for (int d = 0; d < rank; ++d) place[static_cast<size_t>(order[static_cast<size_t>(d)])] = d;
    bool first = true;
    rewrite(source, target, [&](Writer& writer, uint16_t, const npu_instr&) {
      if (std::exchange(first, false)) writer.map_dimensions(place);
      return false;
    });
  }
  script.add(target);
  return true;
}

constexpr uint32_t kPrograms = kAnyKind & ~for_kind(NPU_COPY) & ~for_kind(NPU_SORT);

constexpr Rule kRules[] = {
    {.name = "dimensions in the order of memory",
     .why = "the order of a MAP's points cannot be seen",
     .price = Price::kCalls,
     .kinds = for_kind(NPU_MAP) | for_kind(NPU_COPY),
     .repeats = false,
     .make = memory_order,
     .placement = true},
    {.name = "copy as a program",
     .why = "a load and a store, converting as COPY does; of one type, of its bits",
     .price = Price::kCalls,
     .kinds = for_kind(NPU_COPY),
     .repeats = false,
     .make = copy_as_map},
    {.name = "strides in the program",
     .why = "load_at and store_at take the sum of coordinates times strides from an operand without strides",
     .price = Price::kPass,
     .kinds = kPrograms,
     .repeats = false,
     .make = strides_by_index,
     .placement = true},
    {.name = "alignment in the program",
     .why = "load_at and store_at begin at the aligned address below and add what is missing",
     .price = Price::kPass,
     .kinds = kPrograms,
     .repeats = false,
     .make = aligned_by_index,
     .placement = true},
};

}  // namespace

const std::span<const Rule> index_rules = kRules;

}  // namespace npu::legalise
