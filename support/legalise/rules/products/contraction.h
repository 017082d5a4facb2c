// What all products are: sums over some axes of one operand's element times another's, for every point of the others.
// Rules turn a MATMUL or the parts of a CONV into contractions, and contractions into commands.
#pragma once
#include <vector>

#include "support/legalise/draft/draft.h"
#include "support/legalise/rules/rule.h"

namespace npu::legalise {

struct Axis {
  int64_t size = 1;
  int64_t a = 0, b = 0, result = 0;  // how far a step moves in each, in elements
};
using AxisStride = int64_t Axis::*;

// result[kept] = sum over summed of a[kept, summed] * b[kept, summed], made in `acc`. Strides are those of the axes,
// not of the operands.
struct Contraction {
  Operand a, b, result;
  std::vector<Axis> kept, summed;
  int acc = NPU_F32;
  uint8_t flags = 0;  // NPU_MATMUL_*
};

Contraction contraction_of(const Draft& matmul);

// Without axes of one element, and with one axis where several are walked as one. The order of a sum may change.
void simplify(Contraction& c);
// How many points some axes have.
int64_t points(const std::vector<Axis>& axes);
// Elements `from` to `from + count` of a kept or a summed axis. A part of a summed axis is a part of the sum.
Contraction part(const Contraction& whole, std::vector<Axis> Contraction::* axes, size_t axis, int64_t from,
                 int64_t count);
// The kept axis of fewest elements.
size_t shortest(const std::vector<Axis>& axes);

// Most commands that a rule makes of a product. Beyond that, planning would take longer than what it saves.
constexpr size_t kMostCommands = 1024;

// Each adds commands that do a contraction, and is false where it would take too many.
// One MATMUL, or few: operands whose axes cannot be walked as batch, m, k and n are made dense before, and the result
// after. No command has more than `most_rank` dimensions, and none but COPY more than `most_batch` beside m and n.
struct Dimensions {
  int most_rank = NPU_MAX_RANK;
  int most_batch = NPU_MAX_RANK - 2;
};
bool add_products(Contraction c, Script& script, Dimensions dimensions);
// Lays `a` out anew, with the summed axes in their order, the first outermost: one command.
bool lay_out_a(Contraction& c, Script& script, int most_rank);
// Lays out anew what has no neighbours along the only summed axis (kSummed), or along the columns of the result (kOwn).
// False where that is not worth it.
enum class Inner { kEither, kSummed, kOwn };
bool lay_out(Contraction& c, Script& script, Inner inner);
// One REDUCE.
bool add_reduce(Contraction c, Script& script);
// MAPs that add at most `terms` products each to a sum that lies in scratch.
bool add_maps(Contraction c, Script& script, int terms);

// MAPs that add `from` to `to`, in `acc`; axes as of add_copies.
bool add_to(std::vector<Axis> axes, const Operand& to, const Operand& from, int acc, Script& script);
// COPYs of at most `most_rank` dimensions over axes whose `a` are strides of `from` and whose `result` those of `to`.
bool add_copies(std::vector<Axis> axes, const Operand& to, const Operand& from, Script& script, int most_rank);
// Zeros, where a sum has no terms. An empty result is a COPY, too, of nothing.
bool add_zeros(const Contraction& c, Script& script, int most_rank);

}  // namespace npu::legalise
