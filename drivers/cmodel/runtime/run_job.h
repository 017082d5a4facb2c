// Runs checked work on the calling thread.
#pragma once
#include <cstdint>

#include "drivers/cmodel/job/job.h"

namespace cmodel {

// Failures go to the stream, to be reported by its next synchronisation.
void run_job(npu_stream& stream, const Job& job);

// As memmove. Large copies use the pool.
void copy_bytes(char* dst, const char* src, uint64_t size);

}  // namespace cmodel
