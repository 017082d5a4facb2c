// One command as a test vector in JSON, for benches in other languages (cocotb).
#pragma once
#include <string>

#include "support/verify/trace.h"

namespace replay {

// `trace` has one command. Addresses are moved to a small memory that begins at 0x1000.
std::string vector_json(const npu::Trace& trace);

// The commands of a recording, one line each.
void print_list(const npu::Trace& trace);

}  // namespace replay
