#include "drivers/rtl/board/fault.h"

#include <cstdlib>
#include <stdexcept>

namespace rtl {

Fault parse_fault(const std::string& text) {
  const struct {
    const char* name;
    FaultKind kind;
  } kinds[] = {{"packet", FaultKind::kPacket},       {"address", FaultKind::kAddress}, {"bus", FaultKind::kBus},
               {"interrupt", FaultKind::kInterrupt}, {"hang", FaultKind::kHang},       {"id", FaultKind::kId}};
  const size_t at = text.find('@');
  Fault fault;
  for (const auto& known : kinds)
    if (text.substr(0, at) == known.name) fault.kind = known.kind;
  char* end = nullptr;
  if (at != std::string::npos) fault.doorbell = std::strtoull(text.c_str() + at + 1, &end, 10);
  if (fault.kind == FaultKind::kNone || fault.doorbell == 0 || (end && *end))
    throw std::invalid_argument(std::string("expected a fault such as bus@3, of the kinds ") + kFaultKinds + ", got '" +
                                text + "'");
  return fault;
}

}  // namespace rtl
