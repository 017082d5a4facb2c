// What a driver makes of each command of a recording: takes it, refuses it and in what words, or has it made from
// others; and in what time. As JSON, which `python -m torch_npu plan` reads.
#pragma once
#include <functional>
#include <string>

#include "tools/replay/player.h"

namespace replay {

// `each` is called before every command. A command that fails is an entry, too; Problem where the device is gone.
std::string plan_json(const npu::Trace& trace, const std::string& driver, uint32_t device,
                      const std::function<void(const npu::TraceEntry&)>& each);

}  // namespace replay
