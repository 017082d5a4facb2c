// Runs checked work on the calling thread.
#pragma once
#include <cstdint>
#include <string>

#include "drivers/cmodel/job/job.h"

namespace cmodel {

// Failures go to the stream, to be reported by its next synchronisation.
void execute(npu_stream& stream, const Job& job);

// As memmove. Large copies use the pool.
void copy_bytes(char* dst, const char* src, uint64_t size);

// "MAP (aten::add)"
std::string describe(const npu_command& command);

}  // namespace cmodel
