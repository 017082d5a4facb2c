// A MATMUL command taken apart, and the ways to compute it.
#pragma once
#include <cstdint>

#include "drivers/cmodel/choose/choice.h"
#include "drivers/cmodel/choose/way.h"
#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/product/pack.h"

namespace cmodel::product {

struct Problem {
  const Job& job;
  int rank, batch_rank;
  int64_t batches, m, n, k;
  int acc_dtype;
  Choice choice;
  explicit Problem(const Job& job);

  int64_t work() const { return m * n * k; }  // multiply-adds of one batch
  // The result, and its strides between rows and columns.
  const Operand& out() const { return job.operands[2]; }
  int64_t out_row() const { return out().stride[rank - 2]; }
  int64_t out_col() const { return out().stride[rank - 1]; }
  // Sums can be written where the result lies.
  bool stores_sums() const { return !job.program && out().dtype == acc_dtype; }
};

// Where one batch starts.
struct Batch {
  int64_t outer[NPU_MAX_RANK];
  Matrix a, b;
  char* out;
};

Batch batch_at(const Problem& p, int64_t index);
bool same_in_all_batches(const Problem& p, int operand);

// A block of the result.
struct Block {
  int64_t row, rows, col, cols;
  Block transposed() const { return {col, cols, row, rows}; }
};

// Stores sums of a block, in rows `ld` apart, or runs the epilogue on them.
void finish(const Problem& p, const Batch& batch, const Block& block, const void* sums, int64_t ld);

// One row or column, or up to three: the matrix is read where it lies (vectors.cpp).
extern const Way<const Problem> vectors;
// Sums in F32, or of small integers in I32, on packed register tiles (tiles.cpp).
extern const Way<const Problem> tiles;
// Any types, by gemm (dense.cpp).
extern const Way<const Problem> dense;

}  // namespace cmodel::product
