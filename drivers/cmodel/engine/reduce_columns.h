// Sums of many columns in one compiled loop: gradients of a norm's weight and bias.
#pragma once
#include "drivers/cmodel/interpreter/fold.h"

namespace cmodel {

// Is the segment one compiled loop between F32 operands, whose rows lie side by side along the last kept dimension?
bool sums_columns(const Job& job, const Segment& segment, const Space& kept, const Space& inner);
// All folded points of a tile of one row of kept ones.
void sum_columns(Frame& frame, const Segment& segment, const Tile& tile, const Space& inner, Lanes* lanes);

}  // namespace cmodel
