// The driver `fpga`: boards that are cards.
#include "drivers/fpga/bars.h"
#include "drivers/fpga/xdma.h"
#include "drivers/rtl/board/transport.h"
#include "drivers/rtl/runtime/options.h"
#include "support/driver/functions.h"

const char* const npu::driver::name = "fpga";
const char* const npu::driver::version = "1.0";

namespace rtl {

const char* const device_name = "NPU FPGA";

// One card; further ones are further entries of TORCH_NPU_DRIVER.
std::vector<OpenBoard> find_boards(const std::string& text) {
  fpga::CardOptions card;
  parse_options(text, {{"path=PREFIX (/dev/xdma0)", &card.path},
                       {"bar=FILE", &card.bar},
                       {"window=FILE", &card.window},
                       {"reset=FILE", &card.reset},
                       {"memory=16M..1T", &card.memory, 16 << 20, uint64_t{1} << 40},
                       {"timeout=MILLISECONDS", &card.timeout, 1, 3600 * 1000},
                       {"clock=MHZ", &card.clock, 1, 10000}});
  const bool mapped = !card.bar.empty() && !card.window.empty();
  if (card.path.empty() == !mapped || (card.bar.empty() != card.window.empty()))
    throw std::invalid_argument(
        "expected either path=PREFIX of XDMA's files (/dev/xdma0) or bar=FILE and window=FILE, got '" + text + "'");
  card.memory = card.memory / 4096 * 4096;
  return {[card, mapped]() -> std::unique_ptr<Board> {
    if (mapped) return std::make_unique<fpga::Bars>(card);
    return std::make_unique<fpga::Xdma>(card);
  }};
}

}  // namespace rtl
