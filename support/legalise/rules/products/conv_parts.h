// A CONV as contractions.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "support/legalise/rules/products/contraction.h"

namespace npu::legalise {

// `share`, where it is given, may lay `a` out anew for all parts that differ along the first spatial dimension only. It
// gets a contraction whose first summed axis is all that `a` has along that dimension.
using Share = std::function<bool(Contraction& c)>;

// Parts that together are the convolution: in each, every result has the same kernel positions, and all of these meet
// the input. So padding takes no part, not even where a weight is infinite. `a` is the weight, or the gradient of the
// output where the weight's is wanted; `b` is what is walked by windows. An empty sum is a part, too, with a summed
// axis of 0. No parts: there would be too many. The convolution has no program.
std::vector<Contraction> conv_parts(const Draft& conv, const Share& share = {});

// The same of the gradient of a weight, cut along the positions that are summed instead: contractions whose sum it is,
// each to a part of the result. Few of them have many positions. Nothing: there would be too many.
std::optional<std::vector<Contraction>> conv_terms(const Draft& conv);

}  // namespace npu::legalise
