// A chip's file (docs/whatif.md) from the times that a driver takes for the commands of a recording.
#pragma once
#include <functional>
#include <string>

#include "support/cost/chip.h"
#include "tools/replay/player.h"

namespace replay {

// With its error as a comment. Throws Problem where no command ran with a time.
std::string fitted_chip(const npu::Trace& trace, const std::string& driver, uint32_t device, const npu::Chip& start,
                        const std::function<void(const npu::TraceEntry&)>& each);

}  // namespace replay
