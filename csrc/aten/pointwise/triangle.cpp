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

TypedProgram k_triangle(R"(
program triangle(row, column; lower, first, length0, slope_rows, slope_size, width, start)
each:
  %k = index 0
  %zero = const 0 : i64
  %one = const 1 : i64
  %two = const 2 : i64
  %lower = param lower : bool
  %a = param first : i64          # rows of the part with equal lengths that comes first
  %w = param length0 : i64        # their length
  %head = mul %a, %w
  %in_head = lt %k, %head
  %hr = div %k, %w
  %hc = fmod %k, %w
  %j = sub %k, %head              # the place on the slope
  %s = param slope_rows : i64
  %total = param slope_size : i64
  %on_slope = lt %j, %total
  %b = param start : i64          # the length of the first row of the slope
  # Lower: rows have b, b + 1, ... elements; upper: b, b - 1, ...
  %bf = cast %b : f64
  %jf = cast %j : f64
  %half = const 0.5 : f64
  %two_f = const 2 : f64
  %minus = sub %bf, %half
  %plus = add %bf, %half
  %m = where %lower, %minus, %plus
  %mm = mul %m, %m
  %j2 = mul %jf, %two_f
  %nj2 = neg %j2
  %signed = where %lower, %j2, %nj2
  %d = add %mm, %signed
  %zf = const 0 : f64
  %dp = max %d, %zf
  %root = sqrt %dp
  %r1 = sub %root, %m
  %r2 = neg %r1
  %rf = where %lower, %r1, %r2
  %fl = floor %rf
  %ri = cast %fl : i64
  %ra = sub %ri, %one
  %rb = max %ra, %zero
)"
                        R"(
  # Elements before row r: r b +- r (r - 1) / 2.
  %t0a = mul %rb, %b
  %t0b = sub %rb, %one
  %t0c = mul %rb, %t0b
  %t0d = div %t0c, %two
  %t0e = neg %t0d
  %t0f = where %lower, %t0d, %t0e
  %before0 = add %t0a, %t0f
  %rc = add %rb, %one
  %t1a = mul %rc, %b
  %t1c = mul %rc, %rb
  %t1d = div %t1c, %two
  %t1e = neg %t1d
  %t1f = where %lower, %t1d, %t1e
  %before1 = add %t1a, %t1f
  %rd = add %rc, %one
  %t2a = mul %rd, %b
  %t2c = mul %rd, %rc
  %t2d = div %t2c, %two
  %t2e = neg %t2d
  %t2f = where %lower, %t2d, %t2e
  %before2 = add %t2a, %t2f
  %is1 = ge %j, %before1
  %is2 = ge %j, %before2
  %x1 = where %is1, %rc, %rb
  %x = where %is2, %rd, %x1
  %y1 = where %is1, %before1, %before0
  %y = where %is2, %before2, %y1
  %sc = sub %j, %y                # from the row's first element
  %sr = add %x, %a
  # Behind the slope.
  %tail = sub %j, %total
  %width = param width : i64
  %tr0 = div %tail, %width
  %tc = fmod %tail, %width
  %rows_before = add %a, %s
  %tr = add %tr0, %rows_before
  %row1 = where %on_slope, %sr, %tr
  %row = where %in_head, %hr, %row1
  %col1 = where %on_slope, %sc, %tc
  %col = where %in_head, %hc, %col1
  # Upper rows end at the last column instead of starting at the first.
  %len0 = add %b, %zero
  %len_slope = sub %len0, %x
  %len1 = where %on_slope, %len_slope, %width
  %len = where %in_head, %w, %len1
  %shift = sub %width, %len
  %moved = add %col, %shift
  %column = where %lower, %col, %moved
  store row, %row
  store column, %column
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
