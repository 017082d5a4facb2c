// MATMUL of the reference executor.
#include <algorithm>

#include "support/reference/machine.h"

namespace npu {

ResultSink::ResultSink(const npu_command& command, const npu_program_desc* program, Memory& memory, int acc_dtype)
    : command_(command), memory_(memory), acc_dtype_(acc_dtype) {
  if (program)
    machine_.emplace(command, *program, memory);
  else
    memory.expect_space(2, command.size, command.rank, true);
}

void ResultSink::put(const int64_t* point, Value acc) {
  if (acc_dtype_ == NPU_F32) acc.f32 = quiet(acc.f32);
  if (acc_dtype_ == NPU_F64) acc.f64 = quiet(acc.f64);
  if (machine_)
    machine_->run_point(point, acc);
  else
    memory_.store(2, offset_of(point, command_.operands[2].stride, command_.rank), acc, acc_dtype_);
}

namespace {

// Sums of products wrap in unsigned arithmetic.
template <typename T>
void multiply_add(T* acc, T a, const T* b, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    if constexpr (std::is_floating_point_v<T>) {
      acc[j] = acc[j] + a * b[j];
    } else {
      using U = std::make_unsigned_t<T>;
      acc[j] = static_cast<T>(static_cast<U>(acc[j]) + static_cast<U>(a) * static_cast<U>(b[j]));
    }
  }
}

template <typename T>
void matmul(const npu_command& command, const npu_program_desc* program, Memory& memory, int acc) {
  const int rank = command.rank, batch_rank = rank - 2;
  const int64_t m = command.size[rank - 2], n = command.size[rank - 1], k = command.u.matmul.k;
  if (points(command.size, rank) == 0) return;
  const npu_operand &a = command.operands[0], &b = command.operands[1];
  int64_t size[NPU_MAX_RANK];
  std::copy_n(command.size, rank, size);
  size[rank - 1] = k;
  memory.expect_space(0, size, rank, false);
  size[rank - 2] = k;
  size[rank - 1] = n;
  memory.expect_space(1, size, rank, false);
  ResultSink sink(command, program, memory, acc);
  std::vector<T> right(static_cast<size_t>(k * n)), sums(static_cast<size_t>(n));
  int64_t point[NPU_MAX_RANK] = {};
  do {
    const int64_t a0 = offset_of(point, a.stride, batch_rank), b0 = offset_of(point, b.stride, batch_rank);
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < n; ++j)
        right[static_cast<size_t>(p * n + j)] =
            get_value<T>(memory.load(1, b0 + p * b.stride[rank - 2] + j * b.stride[rank - 1], acc));
    // Each sum runs over k in ascending order from +0; walking whole rows of B changes no sum.
    for (int64_t i = 0; i < m; ++i) {
      std::fill(sums.begin(), sums.end(), T{0});
      for (int64_t p = 0; p < k; ++p) {
        const T left = get_value<T>(memory.load(0, a0 + i * a.stride[rank - 2] + p * a.stride[rank - 1], acc));
        multiply_add(sums.data(), left, &right[static_cast<size_t>(p * n)], n);
      }
      point[rank - 2] = i;
      for (int64_t j = 0; j < n; ++j) {
        point[rank - 1] = j;
        sink.put(point, value_of(sums[static_cast<size_t>(j)]));
      }
    }
    point[rank - 2] = point[rank - 1] = 0;
  } while (next_point(point, command.size, batch_rank));
}

}  // namespace

void run_matmul(const npu_command& command, const npu_program_desc* program, Memory& memory) {
  const int acc = command.u.matmul.acc_dtype;
  switch (acc) {
    case NPU_F32:
      return matmul<float>(command, program, memory, acc);
    case NPU_F64:
      return matmul<double>(command, program, memory, acc);
    case NPU_I32:
      return matmul<int32_t>(command, program, memory, acc);
    default:
      return matmul<int64_t>(command, program, memory, acc);
  }
}

}  // namespace npu
