// MATMUL: which way computes it, and where its sums go.
#include "drivers/cmodel/product/matmul.h"

#include <new>

namespace cmodel::product {

Problem::Problem(const Job& job)
    : job(job),
      rank(job.command.rank),
      batch_rank(rank - 2),
      batches(1),
      m(job.command.size[rank - 2]),
      n(job.command.size[rank - 1]),
      k(job.command.u.matmul.k),
      acc_dtype(job.command.u.matmul.acc_dtype),
      choice(choice_of(job.command)) {
  for (int d = 0; d < batch_rank; ++d) batches *= job.command.size[d];
}

Batch batch_at(const Problem& p, int64_t index) {
  Batch batch{};
  const Operand* ops = p.job.operands;
  const bool plain = !p.job.program;
  int64_t offset[3] = {};
  for (int d = p.batch_rank - 1; d >= 0; --d) {
    const int64_t size = p.job.command.size[d];
    const int64_t i = index % size;
    index /= size;
    batch.outer[d] = i;
    for (int o = 0; o < (plain ? 3 : 2); ++o) offset[o] += i * ops[o].stride[d];
  }
  const auto at = [&](int o) { return ops[o].ptr + offset[o] * npu::dtype_size(ops[o].dtype); };
  const int r = p.batch_rank;
  batch.a = {at(0), ops[0].dtype, p.m, p.k, ops[0].stride[r], ops[0].stride[r + 1]};
  batch.b = {at(1), ops[1].dtype, p.k, p.n, ops[1].stride[r], ops[1].stride[r + 1]};
  batch.out = plain ? at(2) : nullptr;
  return batch;
}

bool same_in_all_batches(const Problem& p, int operand) {
  for (int d = 0; d < p.batch_rank; ++d) {
    if (p.job.operands[operand].stride[d] != 0 && p.job.command.size[d] > 1) return false;
  }
  return true;
}

void finish(const Problem& p, const Batch& batch, const Block& block, const void* sums, int64_t ld) {
  const auto& [row, rows, col, cols] = block;
  if (p.job.program) return run_epilogue(p.job, batch.outer, row, rows, col, cols, sums, ld, p.acc_dtype);
  const int dtype = p.out().dtype;
  char* to = batch.out + (row * p.out_row() + col * p.out_col()) * npu::dtype_size(dtype);
  with_accumulator(p.acc_dtype, [&]<class T>(T) {
    store_block(static_cast<const T*>(sums), ld, block.rows, block.cols, to, dtype, p.out_row(), p.out_col());
  });
}

}  // namespace cmodel::product

namespace cmodel {

bool run_matmul(const Job& job, Failure& failure) {
  static constexpr const Way<const product::Problem>* kWays[] = {&product::vectors, &product::tiles, &product::dense};
  const product::Problem problem(job);
  if (problem.batches * problem.m * problem.n == 0) return true;
  if (!product::is_accumulator(problem.acc_dtype)) {
    failure = {NPU_ERROR_INVALID, "MATMUL: expected an accumulator of f32, f64, i32 or i64, got " +
                                      std::string(npu::dtype_name(problem.acc_dtype))};
    return false;
  }
  try {
    return run_first(job.command, kWays, problem);
  } catch (const std::bad_alloc&) {
    failure = {NPU_ERROR_MEMORY, "MATMUL: no host memory left for a converted copy of an operand"};
    return false;
  }
}

}  // namespace cmodel
