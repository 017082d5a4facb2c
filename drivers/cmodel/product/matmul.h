// A MATMUL command taken apart, for the files that compute it.
#pragma once
#include <cstdint>

#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/product/pack.h"
#include "drivers/cmodel/runtime/choices.h"

namespace cmodel::matmul {

constexpr int64_t kSerialWork = 1 << 17;  // multiply-adds that are not worth waking a helper for
constexpr int64_t kTaskWork = 1 << 18;    // the least a tile should hold

struct Problem {
  const Job& job;
  int rank, batch_rank;
  int64_t batches, m, n, k;
  int acc_dtype;
  Choice choice;
};

// Where one batch starts.
struct Batch {
  int64_t outer[NPU_MAX_RANK];
  blas::Matrix a, b;
  char* out;
};

Batch batch_at(const Problem& p, int64_t index);
bool same_in_all_batches(const Problem& p, int operand);

// Stores a block of the result, or runs the epilogue on it.
template <class T>
void finish(const Problem& p, const Batch& batch, int64_t m0, int64_t mb, int64_t n0, int64_t nb, const T* acc,
            int64_t ld);

// Products that accumulate in F32, or of small integers in I32, on packed register tiles (product/micro.h). False:
// another way is better, and nothing was done.
bool try_packed(const Problem& p);

}  // namespace cmodel::matmul
