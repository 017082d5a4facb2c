// tril_indices, triu_indices: the k-th place of a triangle, row by row. Rows before and after the slope have equal
// lengths; on the slope a root finds the row, and one step to either side corrects its rounding.
#include <ATen/ops/empty.h>
#include <ATen/ops/tril_indices_ops.h>
#include <ATen/ops/triu_indices_ops.h>

#include <algorithm>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/registration.h"

namespace torch_npu::triangle_cpp {
namespace {

using at::Tensor;

// `first` rows have `length0` elements; then comes the slope, whose first row has `start`.
TypedProgram k_triangle(R"(
formula triangle(row, column; lower: bool, first, length0, slope_rows, slope_size, width, start): i64
each:
  %k = index(0)
  %head = first * length0
  %in_head = %k < %head
  %j = %k - %head                 # the place on the slope
  %on_slope = %j < slope_size
  # Lower: rows have b, b + 1, ... elements; upper: b, b - 1, ...
  %b = f64(start)
  %m = where(lower, %b - 0.5, %b + 0.5)
  %j2 = f64(%j) * 2
  %root = sqrt(max(%m * %m + where(lower, %j2, -%j2), 0))
  %r = floor(where(lower, %root - %m, -(%root - %m)))
  %r0 = max(i64(%r) - 1, 0)
  %r1 = %r0 + 1
  %r2 = %r1 + 1
  # Elements before row r: r b +- r (r - 1) / 2.
  %t0 = %r0 * (%r0 - 1) / 2
  %t1 = %r1 * %r0 / 2
  %t2 = %r2 * %r1 / 2
  %before0 = %r0 * start + where(lower, %t0, -%t0)
  %before1 = %r1 * start + where(lower, %t1, -%t1)
  %before2 = %r2 * start + where(lower, %t2, -%t2)
  %is1 = %j >= %before1
  %is2 = %j >= %before2
  %x = where(%is2, %r2, where(%is1, %r1, %r0))
  %y = where(%is2, %before2, where(%is1, %before1, %before0))
  # Behind the slope.
  %tail = %j - slope_size
  row = where(%in_head, %k / length0, where(%on_slope, %x + first, %tail / width + (first + slope_rows)))
  %column = where(%in_head, fmod(%k, length0), where(%on_slope, %j - %y, fmod(%tail, width)))
  # Upper rows end at the last column instead of starting at the first.
  %length = where(%in_head, length0, where(%on_slope, start - %x, width))
  column = where(lower, %column, %column + (width - %length))
)");

Tensor triangle(int64_t rows, int64_t columns, int64_t offset, bool lower, std::optional<at::ScalarType> dtype,
                std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pinned,
                const char* label) {
  TORCH_CHECK(rows >= 0, "row must be non-negative, got", rows);
  TORCH_CHECK(columns >= 0, "col must be non-negative, got", columns);
  TORCH_CHECK(!layout || *layout == at::kStrided, "only support layout=torch.strided, got", *layout);
  const auto options =
      at::TensorOptions().dtype(dtype.value_or(at::kLong)).device(device).pinned_memory(pinned).layout(at::kStrided);
  // The length of row r is clamp(r + 1 + offset, 0, columns), or what is left of the columns beside clamp(r + offset).
  const auto length = [&](int64_t r) {
    return lower ? std::clamp<int64_t>(r + 1 + offset, 0, columns)
                 : columns - std::clamp<int64_t>(r + offset, 0, columns);
  };
  int64_t first = 0, head = 0, slope = 0, slope_size = 0, total = 0;
  if (lower) {
    first = std::clamp<int64_t>(-offset, 0, rows);  // empty rows
    slope = std::clamp<int64_t>(columns - offset, first, rows) - first;
  } else {
    first = std::clamp<int64_t>(-offset + 1, 0, rows);  // full rows
    slope = std::clamp<int64_t>(columns - offset, first, rows) - first;
    head = columns;
  }
  const int64_t start = slope > 0 ? length(first) : 0;
  slope_size = slope * start + (lower ? 1 : -1) * slope * (slope - 1) / 2;
  total = first * head + slope_size + (lower ? (rows - first - slope) * columns : 0);
  const Tensor out = at::empty({2, total}, options);
  if (total > 0) {
    Nest(NPU_MAP, label, {total})
        .with(out, {1})
        .with(out, {1}, total)
        .integers({lower, first, head, slope, slope_size, columns, start})
        .run(k_triangle.of(NPU_I64));
  }
  return out;
}

Tensor tril_indices(int64_t rows, int64_t columns, int64_t offset, std::optional<at::ScalarType> dtype,
                    std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pinned) {
  return triangle(rows, columns, offset, true, dtype, layout, device, pinned, "aten::tril_indices");
}
Tensor triu_indices(int64_t rows, int64_t columns, int64_t offset, std::optional<at::ScalarType> dtype,
                    std::optional<at::Layout> layout, std::optional<at::Device> device, std::optional<bool> pinned) {
  return triangle(rows, columns, offset, false, dtype, layout, device, pinned, "aten::triu_indices");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::tril_indices, tril_indices>(m);
  register_native<at::_ops::triu_indices, triu_indices>(m);
}

}  // namespace
}  // namespace torch_npu::triangle_cpp
