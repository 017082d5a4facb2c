// SORT of the reference executor. It is always stable, which is one of the orders that an unstable sort may give.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/reference/machine.h"

namespace npu {
namespace {

// A strict order in which a NaN is greater than every number and equal to another NaN.
bool less(Value a, Value b, int dtype) {
  if (dtype == NPU_F32) return std::isnan(b.f32) ? !std::isnan(a.f32) : a.f32 < b.f32;
  if (dtype == NPU_F64) return std::isnan(b.f64) ? !std::isnan(a.f64) : a.f64 < b.f64;
  return dtype == NPU_U64 ? a.u < b.u : a.i < b.i;
}

}  // namespace

void run_sort(const npu_command& command, Memory& memory) {
  if (points(command.size, command.rank) == 0) return;
  const int rank = command.rank, rows = rank - 1;
  const int64_t n = command.size[rank - 1], count = command.u.sort.count;
  int64_t written[NPU_MAX_RANK];
  std::copy_n(command.size, rank, written);
  written[rank - 1] = count;
  for (uint32_t i = 0; i < 4; ++i) memory.expect_space(i, i < 2 ? command.size : written, rank, i >= 2);
  const npu_operand* operand = command.operands;
  const bool counted = operand[1].flags & NPU_OPERAND_IMMEDIATE, descending = command.u.sort.descending;
  const int key = compute_dtype(operand[0].dtype), payload = counted ? int{NPU_I64} : compute_dtype(operand[1].dtype);
  std::vector<Value> keys(static_cast<size_t>(n)), payloads(static_cast<size_t>(n));
  std::vector<size_t> order(static_cast<size_t>(n));
  int64_t point[NPU_MAX_RANK] = {};
  do {
    int64_t base[4];
    for (int i = 0; i < 4; ++i) base[i] = offset_of(point, operand[i].stride, rows);
    for (int64_t i = 0; i < n; ++i) {
      keys[static_cast<size_t>(i)] = memory.load(0, base[0] + i * operand[0].stride[rank - 1], key);
      payloads[static_cast<size_t>(i)] =
          counted ? value_of(i) : memory.load(1, base[1] + i * operand[1].stride[rank - 1], payload);
    }
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return descending ? less(keys[b], keys[a], key) : less(keys[a], keys[b], key);
    });
    for (int64_t i = 0; i < count; ++i) {
      const size_t from = order[static_cast<size_t>(i)];
      memory.store(2, base[2] + i * operand[2].stride[rank - 1], keys[from], key);
      memory.store(3, base[3] + i * operand[3].stride[rank - 1], payloads[from], payload);
    }
  } while (next_point(point, command.size, rows));
}

}  // namespace npu
