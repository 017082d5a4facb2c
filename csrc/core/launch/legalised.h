// Commands that a driver refuses, made from others that it takes (support/legalise), with memory of the caching
// allocator. TORCH_NPU_LEGALISE=0 leaves it out; then they run on the CPU.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "csrc/core/device/device.h"
#include "support/legalise/legaliser.h"

namespace torch_npu {

using npu::legalise::Decision;

// The second answer to what the driver has said NPU_UNSUPPORTED to; NPU_UNSUPPORTED where there is no way.
npu_status submit_legalised(const Device& device, npu_stream* stream, const npu_command& command);
npu_status supports_legalised(const Device& device, const npu_command& command);
npu_status create_legalised(const Device& device, const npu_program_desc& program, npu_program** out);

// The driver has refused the command's program, so that it must not see the command.
inline bool has_refused_program(const npu_command& command) {
  return npu::legalise::refused_program(command.program) != nullptr;
}

// What the driver said when it last refused a command of this op ("aten::addmm", or with its overload) on this thread.
// Empty: nothing.
std::string words_of_refusal(std::string_view op);

// What was decided on all devices, and how often each decision served a command since the last reset.
struct LegalisedCommand {
  c10::DeviceIndex device = -1;
  Decision decision;
};
std::vector<LegalisedCommand> legalised_commands();
void reset_legalised_counts();

// Who hears of new decisions, on the thread that launched; null: nobody.
void tell_decisions(void (*tell)(c10::DeviceIndex device, const Decision& decision));

}  // namespace torch_npu
