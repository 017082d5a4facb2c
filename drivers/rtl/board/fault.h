// Faults on purpose, so that tests see what the driver makes of them.
#pragma once
#include <cstdint>
#include <string>

namespace rtl {

enum class FaultKind {
  kNone,
  kPacket,     // a packet arrives with an opcode that does not exist
  kAddress,    // a packet arrives with a result far outside of memory
  kBus,        // the memory answers the first read of an operand with an error
  kInterrupt,  // the interrupt gets lost: CONTROL_RESET brings it back
  kHang,       // the memory stops answering: only a reset from outside helps
  kId,         // another design: the identity is wrong from the beginning
};

struct Fault {
  FaultKind kind = FaultKind::kNone;
  uint64_t doorbell = 1;  // the fault comes with this one, counted from 1, and once
};

constexpr const char* kFaultKinds = "packet, address, bus, interrupt, hang or id";
// "bus@3", or "bus" for the first. Throws std::invalid_argument.
Fault parse_fault(const std::string& text);

}  // namespace rtl
