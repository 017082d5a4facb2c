#pragma once
#include <vector>

#include "drivers/cmodel/jit/jit.h"

namespace cmodel {

// The instructions with what ends a value, stores and folds, moved behind everything else of its segment, where no load
// can tell: so that it does not come between members of a loop.
std::vector<npu_instr> sinks_last(const std::vector<npu_instr>& in);

// The instructions with a segment for each tensor that is folded as it is loaded: a fold that is alone reads memory
// itself.
std::vector<npu_instr> folds_apart(const std::vector<npu_instr>& in);

// The compiled loops of the each segments of a program that scatters and scans nothing. `outside`, by instruction: not
// in a loop.
std::vector<CompiledLoop> find_loops(const std::vector<npu_instr>& in, const std::vector<bool>& outside = {});

}  // namespace cmodel
