// Programs of one instruction, the bulk of what eager PyTorch sends: no interpreter, the kernel reads and writes memory
// itself.
#pragma once
#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/plan/plan.h"

namespace cmodel {

// Over contiguous memory: no plan of the index space, one kernel call per thread. Null: done; else why it cannot, and
// nothing was.
const char* run_contiguous(const Job& job, const OneInstruction& one);
// Likewise, row by row where every argument is contiguous or one value along a row.
const char* run_contiguous_rows(const Job& job, const OneInstruction& one);

// The kernel for arguments that lie in memory as `memory` and a result that is stored as `stored`, where these are not
// the types of the instruction: all of it bf16 or f16, with F32 inside. Null: there is none.
Kernel kernel_in_memory(const OneInstruction& one, int memory, int stored);

// memcpy and fill by the pool. Sizes in elements of 2^log_size bytes.
void copy_dense(char* out, const char* in, int64_t bytes);
void fill_dense(char* out, uint64_t bits, int log_size, int64_t n);

}  // namespace cmodel
