// Epilogues whose rows are long enough to be worth a kernel call each.
#pragma once
#include "drivers/cmodel/interpreter/interpreter.h"

namespace cmodel {

// A block of the results of MATMUL or CONV: rows and columns of the last two dimensions.
struct Block {
  const int64_t* outer;
  int64_t row0, rows, col0, cols;
  const char* acc;
  int64_t ld;
  int acc_dtype;

  // The element of an operand that goes with the block's first result.
  char* first_of(const Job& job, const Operand& operand) const {
    const int rank = job.command.rank;
    int64_t at = row0 * operand.stride[rank - 2] + col0 * operand.stride[rank - 1];
    for (int d = 0; d < rank - 2; ++d) at += outer[d] * operand.stride[d];
    return operand.ptr + at * (int64_t{1} << log_size_of(operand.dtype));
  }
};

// The program, row by row: which kernel reads and writes where is found out once per block, where tiles would ask for
// each row. False: it has something that rows do not do (masks, computed addresses, strides within a row); nothing
// was done then.
bool run_rows(const Job& job, const Block& block);

}  // namespace cmodel
