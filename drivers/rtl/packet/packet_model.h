// What a packet does, in C++: docs/isa.md, "Hardware packets", bit for bit. The RTL is compared with it, and whoever
// wants to know what the NPU would have computed may ask it.
#pragma once
#include <vector>

#include "drivers/rtl/packet/packet.h"

namespace rtl {

// One operation on 32-bit lanes.
uint32_t run_operation(uint32_t op, uint32_t a, uint32_t b, uint32_t c);
// `memory` is all of device memory; the packet must be a good one.
void run_packet(const Packet& packet, unsigned char* memory);
// Addresses of the elements that a GATHER or SCATTER moves, which only the data tells.
std::vector<uint64_t> moved_elements(const Packet& packet, unsigned char* memory);

}  // namespace rtl
