// Contractions without MATMUL: REDUCE, or MAPs that add a few products each.
#include <algorithm>

#include "support/legalise/draft/writer.h"
#include "support/legalise/rules/products/contraction.h"

namespace npu::legalise {
namespace {

std::vector<int64_t> column(const std::vector<Axis>& axes, AxisStride which) {
  std::vector<int64_t> out;
  for (const Axis& axis : axes) out.push_back(axis.*which);
  return out;
}

Operand with_strides(Operand operand, const std::vector<int64_t>& strides) {
  set_strides(operand.form, strides);
  return operand;
}

// The same for each element of a kept axis, where there are too many axes for one command.
template <class Add>
bool one_by_one(const Contraction& c, const Add& add) {
  if (c.kept.empty()) return false;
  const size_t axis = shortest(c.kept);
  for (int64_t i = 0; i < c.kept[axis].size; ++i)
    if (!add(part(c, &Contraction::kept, axis, i, 1))) return false;
  return true;
}

// How far the elements of each term of the sum lie from the first: in a, and in b.
struct Term {
  int64_t a, b;
};
std::vector<Term> terms_of(const std::vector<Axis>& summed) {
  std::vector<Term> terms = {{0, 0}};
  for (const Axis& axis : summed) {
    std::vector<Term> more;
    for (const Term& term : terms)
      for (int64_t i = 0; i < axis.size; ++i) more.push_back({term.a + i * axis.a, term.b + i * axis.b});
    terms = std::move(more);
  }
  return terms;
}

// A MAP per `terms` terms. The sum so far goes from one to the next through scratch.
bool add_chain(const Contraction& c, Script& script, size_t terms) {
  const std::vector<Term> all = terms_of(c.summed);
  const std::vector<int64_t> size = column(c.kept, &Axis::size);
  const Operand result = with_strides(c.result, column(c.kept, &Axis::result));
  Operand so_far;
  if (all.size() > terms) so_far = script.scratch(c.acc, size);
  const Draft none(NPU_MAP, size);
  for (size_t first = 0; first < all.size(); first += terms) {
    Draft map(NPU_MAP, size);
    Writer writer(none, map);
    // It starts at +0, which a sum of negative zeros is.
    uint16_t sum = first ? writer.load(so_far, c.acc) : writer.zero(c.acc);
    const size_t end = std::min(first + terms, all.size());
    for (size_t k = first; k < end; ++k) {
      const uint16_t a = writer.load(with_strides(c.a.moved(all[k].a), column(c.kept, &Axis::a)), c.acc);
      const uint16_t b = writer.load(with_strides(c.b.moved(all[k].b), column(c.kept, &Axis::b)), c.acc);
      const uint16_t product = writer.emit(NPU_OP_MUL, c.acc, a, b);
      sum = writer.emit(NPU_OP_ADD, c.acc, sum, product);
    }
    writer.store(end < all.size() ? so_far : result, sum);
    writer.finish("sum of products");
    script.add(map);
  }
  return script.drafts.size() <= kMostCommands;
}

// A sum of too many terms for a chain: of `pieces` of it first, side by side in scratch, then of those.
bool add_pieces(const Contraction& c, Script& script, int terms, size_t axis, int64_t pieces) {
  const Axis cut = c.summed[axis];
  const int64_t length = cut.size / pieces, rest = cut.size - pieces * length;
  std::vector<int64_t> size = column(c.kept, &Axis::size);
  size.insert(size.begin(), pieces + (rest > 0));
  const Operand sums = script.scratch(c.acc, size);
  const std::vector<int64_t> strides = dense_strides(size);

  Contraction first = part(c, &Contraction::summed, axis, 0, length);
  first.result = sums;
  for (size_t k = 0; k < c.kept.size(); ++k) first.kept[k].result = strides[k + 1];
  Contraction last = part(first, &Contraction::summed, axis, 0, rest);
  first.kept.insert(first.kept.begin(), {pieces, length * cut.a, length * cut.b, strides[0]});
  if (!add_maps(first, script, terms)) return false;
  if (rest) {
    last.a = last.a.moved(pieces * length * cut.a);
    last.b = last.b.moved(pieces * length * cut.b);
    last.result = sums.moved(pieces * strides[0]);
    if (!add_maps(last, script, terms)) return false;
  }
  Contraction whole = c;
  whole.a = sums;
  whole.b = Operand();
  whole.b.form.dtype = static_cast<uint8_t>(NPU_U8);  // 1, exact in every type
  whole.b.form.flags = NPU_OPERAND_IMMEDIATE;
  whole.b.form.addr = 1;
  whole.b.place.kind = Place::kLiteral;
  for (size_t k = 0; k < c.kept.size(); ++k) whole.kept[k] = {c.kept[k].size, strides[k + 1], 0, c.kept[k].result};
  whole.summed = {{size[0], strides[0], 0, 0}};
  return add_maps(whole, script, terms);
}

}  // namespace

bool add_reduce(Contraction c, Script& script) {
  simplify(c);
  if (points(c.kept) == 0) return add_zeros(c, script, NPU_MAX_RANK);
  if (c.summed.empty()) c.summed.push_back({});
  // The longest innermost: the order of the sum is free.
  std::stable_sort(c.summed.begin(), c.summed.end(), [](const Axis& x, const Axis& y) { return x.size < y.size; });
  if (c.kept.size() + c.summed.size() > NPU_MAX_RANK)
    return one_by_one(c, [&](Contraction one) { return add_reduce(std::move(one), script); });
  std::vector<Axis> axes = c.kept;
  axes.insert(axes.end(), c.summed.begin(), c.summed.end());
  Draft reduce(NPU_REDUCE, column(axes, &Axis::size), static_cast<int>(c.summed.size()));
  const Draft none;
  Writer writer(none, reduce);
  const uint16_t a = writer.load(with_strides(c.a, column(axes, &Axis::a)), c.acc);
  const uint16_t b = writer.load(with_strides(c.b, column(axes, &Axis::b)), c.acc);
  const uint16_t product = writer.emit(NPU_OP_MUL, c.acc, a, b);
  const uint16_t sum = writer.emit(NPU_OP_FOLD, c.acc, product, NPU_NO_VALUE, NPU_NO_VALUE, NPU_FOLD_SUM);
  writer.segment(NPU_SEGMENT_ROW);
  writer.store(with_strides(c.result, column(axes, &Axis::result)), sum);
  writer.finish("sum of products");
  script.add(reduce);
  return script.drafts.size() <= kMostCommands;
}

bool add_maps(Contraction c, Script& script, int terms) {
  simplify(c);
  const int64_t kept = points(c.kept), summed = points(c.summed);
  if (kept == 0 || summed == 0) return add_zeros(c, script, NPU_MAX_RANK);
  if (c.kept.size() > NPU_MAX_RANK)
    return one_by_one(c, [&](Contraction one) { return add_maps(std::move(one), script, terms); });
  // A longer chain is cut: its pieces are summed at the same time, in scratch of at most so many sums.
  constexpr int64_t kMostChain = 32, kMostSums = int64_t{1} << 22;
  const int64_t commands = (summed + terms - 1) / terms;
  if (commands > kMostChain && c.kept.size() < NPU_MAX_RANK) {
    size_t axis = 0;
    for (size_t k = 1; k < c.summed.size(); ++k)
      if (c.summed[k].size > c.summed[axis].size) axis = k;
    const int64_t wanted = (commands + kMostChain / 2 - 1) / (kMostChain / 2);
    const int64_t pieces = std::min({wanted, kMostSums / kept, c.summed[axis].size});
    if (pieces > 1) return add_pieces(c, script, terms, axis, pieces);
  }
  if (script.drafts.size() + static_cast<size_t>(commands) > kMostCommands) return false;
  return add_chain(c, script, static_cast<size_t>(terms));
}

bool add_to(std::vector<Axis> axes, const Operand& to, const Operand& from, int acc, Script& script) {
  Contraction c;
  c.kept = std::move(axes);
  simplify(c);
  Draft map(NPU_MAP, column(c.kept, &Axis::size));
  const Operand sums = with_strides(to, column(c.kept, &Axis::result));
  const Draft none;
  Writer writer(none, map);
  const uint16_t more = writer.load(with_strides(from, column(c.kept, &Axis::a)), acc);
  writer.store(sums, writer.emit(NPU_OP_ADD, acc, writer.load(sums, acc), more));
  writer.finish("sum of sums");
  script.add(map);
  return script.drafts.size() <= kMostCommands;
}

}  // namespace npu::legalise
