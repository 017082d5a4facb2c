// The driver `rtl`: boards that are simulations in this process.
#include "drivers/rtl/board/transport.h"
#include "drivers/rtl/runtime/options.h"
#include "drivers/rtl/simulator/simulation.h"
#include "support/driver/functions.h"

const char* const npu::driver::name = "rtl";
const char* const npu::driver::version = "1.1";

namespace rtl {

const char* const device_name = "NPU RTL";

std::vector<OpenBoard> find_boards(const std::string& text) {
  SimulationOptions options;
  uint64_t devices = 1;
  std::string fault;
  parse_options(text, {{"memory=16M..64G", &options.memory, 16 << 20, uint64_t{1} << 36},
                       {"devices=1..16", &devices, 1, kMaxDevices},
                       {"latency=1..10000", &options.latency, 1, 10000},
                       {"stall=SEED", &options.stall, 0, UINT32_MAX},
                       {"fault=KIND@N", &fault}});
  if (!fault.empty()) options.fault = parse_fault(fault);
  return std::vector<OpenBoard>(devices, [options] { return std::make_unique<Simulation>(options); });
}

}  // namespace rtl
