#include "support/legalise/rules/products/contraction.h"

#include <algorithm>

namespace npu::legalise {
namespace {

// Walking `outer` and in it `inner` is walking one axis.
bool chained(const Axis& outer, const Axis& inner) {
  return outer.a == inner.a * inner.size && outer.b == inner.b * inner.size &&
         outer.result == inner.result * inner.size;
}

bool merge_two(std::vector<Axis>& axes) {
  for (size_t outer = 0; outer < axes.size(); ++outer)
    for (size_t inner = 0; inner < axes.size(); ++inner) {
      if (outer == inner || !chained(axes[outer], axes[inner])) continue;
      axes[inner].size *= axes[outer].size;
      std::swap(axes[inner], axes[outer]);
      axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(inner));
      return true;
    }
  return false;
}

void simplify(std::vector<Axis>& axes) {
  std::erase_if(axes, [](const Axis& axis) { return axis.size == 1; });
  while (merge_two(axes)) {
  }
}

}  // namespace

Contraction contraction_of(const Draft& matmul) {
  Contraction c;
  c.a = matmul.operands[0];
  c.b = matmul.operands[1];
  c.result = matmul.operands[2];
  c.acc = matmul.command.u.matmul.acc_dtype;
  c.flags = matmul.command.u.matmul.flags;
  const int m = matmul.command.rank - 2, n = m + 1;
  for (int d = 0; d <= n; ++d) {
    const int64_t a = d == n ? 0 : c.a.form.stride[d], b = d == m ? 0 : c.b.form.stride[d];
    c.kept.push_back({matmul.command.size[d], a, b, c.result.form.stride[d]});
  }
  c.summed.push_back({matmul.command.u.matmul.k, c.a.form.stride[n], c.b.form.stride[m], 0});
  return c;
}

void simplify(Contraction& c) {
  simplify(c.kept);
  simplify(c.summed);
}

int64_t points(const std::vector<Axis>& axes) {
  int64_t points = 1;
  for (const Axis& axis : axes) points *= axis.size;
  return points;
}

Contraction part(const Contraction& whole, std::vector<Axis> Contraction::* axes, size_t axis, int64_t from,
                 int64_t count) {
  Contraction c = whole;
  Axis& cut = (c.*axes)[axis];
  cut.size = count;
  c.a = c.a.moved(from * cut.a);
  c.b = c.b.moved(from * cut.b);
  c.result = c.result.moved(from * cut.result);
  return c;
}

size_t shortest(const std::vector<Axis>& axes) {
  const auto least =
      std::min_element(axes.begin(), axes.end(), [](const Axis& x, const Axis& y) { return x.size < y.size; });
  return static_cast<size_t>(least - axes.begin());
}

bool add_copies(std::vector<Axis> axes, const Operand& to, const Operand& from, Script& script, int most_rank) {
  simplify(axes);
  if (axes.size() > static_cast<size_t>(most_rank)) {
    const size_t k = shortest(axes);
    const Axis looped = axes[k];
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(k));
    for (int64_t i = 0; i < looped.size; ++i)
      if (!add_copies(axes, to.moved(i * looped.result), from.moved(i * looped.a), script, most_rank)) return false;
    return true;
  }
  std::vector<int64_t> size, strides, from_strides;
  for (const Axis& axis : axes) {
    size.push_back(axis.size);
    strides.push_back(axis.result);
    from_strides.push_back(axis.a);
  }
  Draft draft = copy(size, to, from);
  set_strides(draft.operands[0].form, strides);
  set_strides(draft.operands[1].form, from_strides);
  script.add(draft);
  return script.drafts.size() <= kMostCommands;
}

bool add_zeros(const Contraction& c, Script& script, int most_rank) {
  Operand zero;
  zero.form.dtype = c.result.form.dtype;
  zero.form.flags = NPU_OPERAND_IMMEDIATE;
  zero.place.kind = Place::kLiteral;
  std::vector<Axis> axes;
  if (points(c.kept) == 0) axes = {{0, 0, 0, 1}};
  for (const Axis& axis : c.kept)
    if (points(c.kept)) axes.push_back({axis.size, 0, 0, axis.result});
  return add_copies(axes, c.result, zero, script, most_rank);
}

}  // namespace npu::legalise
