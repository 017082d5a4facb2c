#pragma once
#include <vector>

#include "drivers/cmodel/jit.h"

namespace cmodel {

// The instructions with stores moved behind everything else, where no load can tell.
std::vector<npu_instr> stores_last(const std::vector<npu_instr>& in);

// The compiled loops of a program of one segment that scatters nothing.
std::vector<Group> find_groups(const std::vector<npu_instr>& in);

}  // namespace cmodel
