// A contraction as MATMULs: which operands to lay out anew, so that its axes are batch, m, n and k.
#include <algorithm>
#include <optional>

#include "support/legalise/rules/products/contraction.h"

namespace npu::legalise {
namespace {

// The axes as MATMUL has them. What it has no place for is a batch dimension, along which it may broadcast.
struct Roles {
  std::vector<Axis> batch;
  Axis m, n, k;
};

// The longest axis of those for which `is` holds; size 1 if there is none.
template <class Is>
Axis take_longest(std::vector<Axis>& axes, const Is& is) {
  std::optional<size_t> best;
  for (size_t k = 0; k < axes.size(); ++k)
    if (is(axes[k]) && (!best || axes[k].size >= axes[*best].size)) best = k;
  if (!best) return {};
  const Axis found = axes[*best];
  axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(*best));
  return found;
}

// Simplified, with one summed axis at most.
Roles roles_of(const Contraction& c) {
  Roles roles;
  roles.batch = c.kept;
  roles.m = take_longest(roles.batch, [](const Axis& axis) { return axis.b == 0; });
  roles.n = take_longest(roles.batch, [](const Axis& axis) { return axis.a == 0; });
  if (!c.summed.empty()) roles.k = c.summed.front();
  return roles;
}

enum Which { kA, kB, kResult };
constexpr AxisStride kStride[] = {&Axis::a, &Axis::b, &Axis::result};
constexpr Operand Contraction::* kOperand[] = {&Contraction::a, &Contraction::b, &Contraction::result};

// How well an axis serves as the innermost: long, of neighbours.
double run_length(const std::vector<Axis*>& axes, Which which) {
  constexpr int64_t kFar = 16;  // elements: farther apart is not worse
  if (axes.empty()) return 0;
  const int64_t stride = std::clamp<int64_t>(std::abs(axes.back()->*kStride[which]), 1, kFar);
  return static_cast<double>(axes.back()->size) / static_cast<double>(stride);
}

// The axes that an operand has, in the order in which it is laid out: batch, then m and k, k and n, or m and n. Of B it
// is n and k where that is the better order to read it in.
std::vector<Axis*> axes_of(Contraction& c, Which which, Inner inner = Inner::kEither) {
  std::vector<Axis*> axes, own, summed;
  for (Axis& axis : c.kept) {
    const bool shared = axis.a != 0 && axis.b != 0;
    if (shared || which == kResult || axis.*kStride[which] != 0) (shared ? axes : own).push_back(&axis);
  }
  // Of the result: m, then n.
  std::stable_partition(own.begin(), own.end(), [](const Axis* axis) { return axis->b == 0; });
  if (which != kResult)
    for (Axis& axis : c.summed) summed.push_back(&axis);
  const bool reads_own = run_length(own, kB) >= run_length(summed, kB);
  if (which == kB && (inner == Inner::kOwn || (inner == Inner::kEither && reads_own))) std::swap(own, summed);
  axes.insert(axes.end(), own.begin(), own.end());
  axes.insert(axes.end(), summed.begin(), summed.end());
  return axes;
}

// Gives an operand the strides of a dense array. Returns its shape and how the two lie: `a` was, `result` is.
std::vector<Axis> lay_out(Contraction& c, Which which, Inner inner = Inner::kEither) {
  std::vector<Axis*> axes = axes_of(c, which, inner);
  std::vector<Axis> moves(axes.size());
  int64_t step = 1;
  for (size_t k = axes.size(); k-- > 0; step *= axes[k]->size) {
    int64_t& stride = axes[k]->*kStride[which];
    moves[k] = {axes[k]->size, stride, 0, step};
    stride = step;
  }
  return moves;
}

int64_t elements(Contraction& c, Which which) {
  int64_t elements = 1;
  for (const Axis* axis : axes_of(c, which)) elements *= axis->size;
  return elements;
}

// What a way costs, in elements that are copied in the time.
constexpr int64_t kCommand = 20000;  // of a command
constexpr int64_t kProduct = 2000;   // of one more batch
int64_t cost_of(Contraction c, unsigned dense, const Dimensions& dimensions) {
  int64_t cost = 0;
  for (const Which which : {kA, kB, kResult})
    if (dense >> which & 1) {
      cost += kCommand + elements(c, which);
      lay_out(c, which);
    }
  simplify(c);
  if (c.summed.size() > 1) return INT64_MAX;
  const Roles roles = roles_of(c);
  cost += points(roles.batch) * kProduct;
  std::vector<Axis> looped = roles.batch;
  std::sort(looped.begin(), looped.end(), [](const Axis& x, const Axis& y) { return x.size > y.size; });
  const auto most = static_cast<size_t>(dimensions.most_batch);
  if (looped.size() > most) {
    looped.erase(looped.begin(), looped.begin() + dimensions.most_batch);
    cost += points(looped) * kCommand;
  }
  // Neighbours in neither direction: every driver walks those slowly.
  const auto scattered = [](const Axis& x, int64_t at_x, const Axis& y, int64_t at_y) {
    return x.size > 1 && y.size > 1 && at_x != 1 && at_y != 1;
  };
  if (scattered(roles.m, roles.m.a, roles.k, roles.k.a)) cost += 2 * elements(c, kA);
  if (scattered(roles.n, roles.n.b, roles.k, roles.k.b)) cost += 2 * elements(c, kB);
  return cost;
}

// Which operands to lay out anew: bit k for operand k.
unsigned cheapest(const Contraction& c, const Dimensions& dimensions) {
  unsigned best = 0;
  int64_t least = INT64_MAX;
  for (unsigned dense = 0; dense < 8; ++dense)
    if (const int64_t cost = cost_of(c, dense, dimensions); cost < least) {
      least = cost;
      best = dense;
    }
  return best;
}

bool add_matmuls(const Contraction& c, Roles roles, Script& script, int most_batch) {
  if (roles.batch.size() > static_cast<size_t>(most_batch)) {
    const size_t axis = shortest(roles.batch);
    const Axis looped = roles.batch[axis];
    roles.batch.erase(roles.batch.begin() + static_cast<std::ptrdiff_t>(axis));
    for (int64_t i = 0; i < looped.size; ++i) {
      Contraction one = c;
      one.a = c.a.moved(i * looped.a);
      one.b = c.b.moved(i * looped.b);
      one.result = c.result.moved(i * looped.result);
      if (!add_matmuls(one, roles, script, most_batch)) return false;
    }
    return true;
  }
  std::vector<int64_t> size, strides[3];
  for (const Axis& axis : roles.batch) {
    size.push_back(axis.size);
    for (const Which which : {kA, kB, kResult}) strides[which].push_back(axis.*kStride[which]);
  }
  size.insert(size.end(), {roles.m.size, roles.n.size});
  strides[kA].insert(strides[kA].end(), {roles.m.a, roles.k.a});
  strides[kB].insert(strides[kB].end(), {roles.k.b, roles.n.b});
  strides[kResult].insert(strides[kResult].end(), {roles.m.result, roles.n.result});
  Draft matmul(NPU_MATMUL, size);
  matmul.command.u.matmul.k = roles.k.size;
  matmul.command.u.matmul.acc_dtype = static_cast<uint8_t>(c.acc);
  matmul.command.u.matmul.flags = c.flags;
  for (const Which which : {kA, kB, kResult}) {
    Operand operand = c.*kOperand[which];
    set_strides(operand.form, strides[which]);
    matmul.operands.push_back(operand);
  }
  script.add(matmul);
  return script.drafts.size() <= kMostCommands;
}

// Scratch for a dense operand is at most so many bytes, or as many as lie between the operand's first element and its
// last, as long as there is a kept axis to cut.
constexpr int64_t kMostScratch = int64_t{16} << 20;
int64_t most_scratch(Contraction& c, Which which) {
  int64_t reach = 1;
  for (const Axis* axis : axes_of(c, which)) reach += (axis->size - 1) * std::abs(axis->*kStride[which]);
  return std::max(kMostScratch, reach * dtype_size((c.*kOperand[which]).form.dtype));
}

// A kept axis to cut and how long its parts are, where dense operands would be too large.
struct Cut {
  size_t axis;
  int64_t length;
};
std::optional<Cut> cut_of(Contraction& c, unsigned dense) {
  for (const Which which : {kB, kA, kResult}) {
    const int64_t bytes = elements(c, which) * dtype_size((c.*kOperand[which]).form.dtype);
    const int64_t most = most_scratch(c, which);
    if (!(dense >> which & 1) || bytes <= most) continue;
    for (size_t axis = 0; axis < c.kept.size(); ++axis) {
      const int64_t size = c.kept[axis].size;
      if (size == 1 || (which != kResult && c.kept[axis].*kStride[which] == 0)) continue;
      return Cut{axis, std::max<int64_t>(size * most / bytes, 1)};
    }
  }
  return std::nullopt;
}

// An operand that lies in scratch now, and how it is copied.
struct Laid {
  Operand was;
  std::vector<Axis> moves;
};
Laid lay_in_scratch(Contraction& c, Which which, Script& script, Inner inner = Inner::kEither) {
  Laid laid = {c.*kOperand[which], lay_out(c, which, inner)};
  std::vector<int64_t> size;
  for (const Axis& axis : laid.moves) size.push_back(axis.size);
  c.*kOperand[which] = script.scratch(laid.was.form.dtype, size);
  return laid;
}

bool copy_to_scratch(Contraction& c, Which which, Script& script, int most_rank, Inner inner = Inner::kEither) {
  const Laid laid = lay_in_scratch(c, which, script, inner);
  return add_copies(laid.moves, c.*kOperand[which], laid.was, script, most_rank);
}

bool add_with_dense(Contraction c, unsigned dense, Script& script, const Dimensions& dimensions);

bool add_cut(Contraction c, const Cut& cut, unsigned dense, Script& script, const Dimensions& dimensions) {
  // What no cut changes is laid out once.
  for (const Which which : {kA, kB})
    if (dense >> which & 1 && c.kept[cut.axis].*kStride[which] == 0) {
      dense &= ~(1u << which);
      if (!copy_to_scratch(c, which, script, dimensions.most_rank)) return false;
    }
  const int64_t size = c.kept[cut.axis].size;
  for (int64_t from = 0; from < size; from += cut.length) {
    const int64_t length = std::min(cut.length, size - from);
    if (!add_with_dense(part(c, &Contraction::kept, cut.axis, from, length), dense, script, dimensions)) return false;
  }
  return true;
}

bool add_with_dense(Contraction c, unsigned dense, Script& script, const Dimensions& dimensions) {
  if (const auto cut = cut_of(c, dense)) return add_cut(std::move(c), *cut, dense, script, dimensions);
  for (const Which which : {kA, kB})
    if (dense >> which & 1 && !copy_to_scratch(c, which, script, dimensions.most_rank)) return false;
  Laid result;
  if (dense >> kResult & 1) result = lay_in_scratch(c, kResult, script);
  const Operand sums = c.result;
  simplify(c);
  if (!add_matmuls(c, roles_of(c), script, dimensions.most_batch)) return false;
  if (!(dense >> kResult & 1)) return true;
  for (Axis& axis : result.moves) std::swap(axis.a, axis.result);
  return add_copies(result.moves, result.was, sums, script, dimensions.most_rank);
}

}  // namespace

bool lay_out_a(Contraction& c, Script& script, int most_rank) {
  return copy_to_scratch(c, kA, script, most_rank);
}

bool lay_out(Contraction& c, Script& script, Inner inner) {
  simplify(c);
  if (c.summed.size() != 1) return false;
  const int64_t work = points(c.kept) * points(c.summed);
  for (const Which which : {kA, kB}) {
    // Along n, `a` stands still.
    const Axis walked = inner == Inner::kOwn ? roles_of(c).n : c.summed.front();
    if ((inner == Inner::kOwn && which == kA) || walked.size == 1 || std::abs(walked.*kStride[which]) <= 1) continue;
    constexpr int64_t kUses = 4;  // of each element, for which it is worth a COPY
    if (work < kUses * elements(c, which) || !copy_to_scratch(c, which, script, NPU_MAX_RANK, inner)) return false;
  }
  return true;
}

bool add_products(Contraction c, Script& script, Dimensions dimensions) {
  simplify(c);
  if (points(c.kept) == 0 || points(c.summed) == 0) return add_zeros(c, script, dimensions.most_rank);
  // Several summed axes: laid out anew, the operand for which they are one axis stays as it is.
  if (c.summed.size() > 1)
    for (const AxisStride stride : {&Axis::b, &Axis::a})
      std::stable_sort(c.summed.begin(), c.summed.end(),
                       [&](const Axis& x, const Axis& y) { return std::abs(x.*stride) > std::abs(y.*stride); });
  return add_with_dense(c, cheapest(c, dimensions), script, dimensions);
}

}  // namespace npu::legalise
