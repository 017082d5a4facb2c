// Looking at single commands: cycles of each (TORCH_NPU_RTL_CYCLES), and of chosen ones (TORCH_NPU_RTL_TRACE) a
// waveform or a test vector for tests/rtl. docs/rtl.md is the manual.
#pragma once
#include <string>
#include <vector>

#include "drivers/rtl/device/processor.h"
#include "drivers/rtl/packet/packet.h"

namespace rtl {

// A command on its way to the NPU. Commands that run are numbered from 1 on, through all devices of the process.
struct Observed {
  std::string kind, label;  // MATMUL, and the op that gave it, which may be empty
  uint32_t device = 0;
};

// Runs packets, and writes down what the two variables ask for. Without them this is processor.run(packets).
Failure run_observed(Processor& processor, const Observed& command, std::vector<Packet>& packets);

}  // namespace rtl
