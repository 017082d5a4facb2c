// Choices that the C model announces for a command (npu_driver::choices).
#pragma once
#include <vector>

#include "npu/runtime.h"

namespace cmodel {

// What may be worth measuring for this command, which is valid.
std::vector<npu_choice> choices_for(const npu_command& command);

}  // namespace cmodel
