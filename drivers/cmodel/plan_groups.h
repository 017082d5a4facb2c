#pragma once
#include <vector>

#include "drivers/cmodel/jit.h"

namespace cmodel {

// The instructions with stores moved behind everything else, where no load can tell. Programs of several segments stay.
std::vector<npu_instr> stores_last(const std::vector<npu_instr>& in);

// The compiled loops of the each segments of a program that scatters and scans nothing.
std::vector<Group> find_groups(const std::vector<npu_instr>& in);

}  // namespace cmodel
