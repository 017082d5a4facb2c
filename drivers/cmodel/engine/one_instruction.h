// Programs of one instruction over contiguous memory, the bulk of what eager PyTorch sends: no interpreter, no plan of
// the index space, one kernel call per thread.
#pragma once
#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/plan/plan.h"

namespace cmodel {

// False: nothing was done, the interpreter has to.
bool run_direct(const Job& job, const Direct& direct);
// Likewise, row by row where every argument is contiguous or one value along a row.
bool run_direct_rows(const Job& job, const Direct& direct);

// Do the operand's elements lie one behind the other in row-major order over the command's sizes?
bool is_contiguous(const npu_command& command, const Operand& operand);
// Is every stride (of a dimension larger than 1) zero?
bool is_one_value(const npu_command& command, const Operand& operand);

// memcpy and fill by the pool. Sizes in elements of 2^log_size bytes.
void copy_dense(char* out, const char* in, int64_t bytes);
void fill_dense(char* out, uint64_t bits, int log_size, int64_t n);

}  // namespace cmodel
