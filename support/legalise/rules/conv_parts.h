// A CONV as contractions.
#pragma once
#include <vector>

#include "support/legalise/rules/contraction.h"

namespace npu::legalise {

// Parts that together are the convolution: in each, every result has the same kernel positions, and all of these meet
// the input. So padding takes no part, not even where a weight is infinite. Empty: there would be too many. Without a
// program. `a` is the weight, or the gradient of the output where the weight's is wanted; `b` is what is walked by
// windows. An empty sum is a part, too, with a summed axis of 0.
std::vector<Contraction> conv_parts(const Draft& conv);

}  // namespace npu::legalise
