// Places in sorted rows: a binary search written out, as many steps as the row has bits, in one MAP.
#include <ATen/native/BucketizationUtils.h>
#include <ATen/ops/bucketize_ops.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/isin_meta.h>
#include <ATen/ops/isin_ops.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted_ops.h>
#include <ATen/ops/sort.h>

#include <bit>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/optional.h"
#include "csrc/aten/dispatch/reduction.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::search_cpp {
namespace {

using at::Tensor;

enum class Search { kLeft, kRight, kContains };

// Operands: out, value, sorted, order. The place is the first whose element is not less (not greater) than the value;
// a NaN is greater than everything.
std::string search_text(Search kind, bool ordered, int steps) {
  std::string text = R"(
formula search(out, value, sorted, order: i64; n: i64, stride: i64, order_stride: i64, invert: bool)
each:
  %lo = i64(0)
  %hi = max(n, %lo)
)";
  const std::string step =
      std::string("  %on = %lo < %hi\n  %mid = shr(%lo + %hi, 1)\n") +
      (ordered ? "  %at = load_at(order, %mid * order_stride, mask %on) * stride\n" : "  %at = %mid * stride\n") +
      "  %stop = load_at(sorted, %at, mask %on) " + (kind == Search::kRight ? ">" : ">=") + R"( value
  %lo = where(%on and not %stop, %mid + 1, %lo)
  %hi = where(%on and %stop, %mid, %hi)
)";
  for (int k = 0; k < steps; ++k) text += step;
  if (kind != Search::kContains) {
    return text + "  out = %lo\n";
  }
  return text + R"(
  %in = %lo < n
  out = xor(load_at(sorted, %lo * stride, mask %in) == value and %in, invert)
)";
}

ProgramFamily f_search;

// `sorted` is one row, or rows for all dimensions of `values` but the last.
void search(Search kind, const Tensor& out, const Tensor& values, const Tensor& sorted, const Tensor& order,
            const char* label, bool invert = false) {
  const int64_t n = sorted.size(-1);
  const int steps = std::bit_width(static_cast<uint64_t>(n));
  const npu_dtype compute = compute_dtype(numeric_dtype(values.scalar_type(), label));
  const bool ordered = order.defined();
  const auto row_strides = [&](const Tensor& rows) {
    at::DimVector strides(values.dim(), 0);
    for (int64_t d = 0; rows.dim() > 1 && d + 1 < rows.dim(); ++d) {
      strides[d] = rows.stride(d);
    }
    return strides;
  };
  const Tensor& places = ordered ? order : sorted;
  Nest nest(NPU_MAP, label, values.sizes());
  nest.with(out).with(values).with(sorted, row_strides(sorted)).with(places, row_strides(places));
  nest.integer(n).integer(sorted.stride(-1)).integer(places.stride(-1)).integer(invert);
  nest.run(f_search.get((steps * 3 + static_cast<int>(kind)) * 2 + ordered, compute,
                        [&] { return search_text(kind, ordered, steps); }));
}

Tensor& searchsorted_out(const Tensor& sequence, const Tensor& self, bool out_int32, bool right,
                         std::optional<std::string_view> side, const std::optional<Tensor>& sorter, Tensor& result) {
  const Tensor order = given(sorter);
  at::native::searchsorted_pre_check(sequence, self, result, out_int32, right, side, order);
  at::native::resize_output(result, self.sizes());
  if (self.numel() == 0) {
    return result;
  }
  const auto common = at::result_type(sequence, self);
  if (sequence.size(-1) == 0) {
    return result.zero_();
  }
  const bool is_right = side ? *side == "right" : right;
  search(is_right ? Search::kRight : Search::kLeft, result, self.to(common), sequence.to(common), order,
         "aten::searchsorted");
  return result;
}

Tensor new_places(const Tensor& like, bool out_int32) {
  return make_empty({0}, {}, like.options().dtype(out_int32 ? at::kInt : at::kLong));
}

Tensor search_places(const Tensor& sequence, const Tensor& self, bool out_int32, bool right,
                     std::optional<std::string_view> side, const std::optional<Tensor>& sorter) {
  Tensor out = new_places(sequence, out_int32);
  return searchsorted_out(sequence, self, out_int32, right, side, sorter, out);
}

Tensor searchsorted_scalar(const Tensor& sequence, const at::Scalar& self, bool out_int32, bool right,
                           std::optional<std::string_view> side, const std::optional<Tensor>& sorter) {
  const Tensor value = at::native::searchsorted_scalar_tensor(self, sequence.device());
  return search_places(sequence, value, out_int32, right, side, sorter);
}

Tensor& searchsorted_scalar_out(const Tensor& sequence, const at::Scalar& self, bool out_int32, bool right,
                                std::optional<std::string_view> side, const std::optional<Tensor>& sorter,
                                Tensor& out) {
  const Tensor value = at::native::searchsorted_scalar_tensor(self, sequence.device());
  return searchsorted_out(sequence, value, out_int32, right, side, sorter, out);
}

Tensor& bucketize_out(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right, Tensor& out) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(), ")");
  return searchsorted_out(boundaries, self, out_int32, right, std::nullopt, std::nullopt, out);
}

Tensor find_buckets(const Tensor& self, const Tensor& boundaries, bool out_int32, bool right) {
  Tensor out = new_places(boundaries, out_int32);
  return bucketize_out(self, boundaries, out_int32, right, out);
}

Tensor bucketize_scalar(const at::Scalar& self, const Tensor& boundaries, bool out_int32, bool right) {
  return find_buckets(at::native::searchsorted_scalar_tensor(self, boundaries.device()), boundaries, out_int32, right);
}

// ---- isin: compares with every test element if they are few, else looks each element up among them, sorted.

constexpr int64_t kFewTests = 16;

TypedProgram k_any_equal(R"(
formula isin(out, value, test; invert: bool)
each:
  %any = fold(or, value == test)
row:
  out = xor(%any, invert)
)");

void isin(const Tensor& out, const Tensor& elements, const Tensor& tests, bool invert) {
  constexpr const char* label = "aten::isin";
  if (elements.numel() == 0) {
    return;
  }
  if (tests.numel() == 0) {
    out.fill_(invert);
    return;
  }
  const auto common = at::result_type(elements, tests);
  const Tensor values = elements.to(out.device(), common), few = tests.to(out.device(), common).reshape({-1});
  const npu_dtype compute = compute_type(values, label);
  if (few.numel() <= kFewTests) {
    at::DimVector sizes(values.sizes());
    sizes.push_back(few.numel());
    DimMask inner;
    inner[values.dim()] = true;
    Rows(label, sizes, inner).reduced(out).reduced(values).add(few).reduce(k_any_equal.of(compute), {integer(invert)});
    return;
  }
  search(Search::kContains, out, values, std::get<0>(at::sort(few)), Tensor(), label, invert);
}

void launch_isin(at::meta::structured_isin_Tensor_Tensor&, const Tensor& out, const Tensor& elements,
                 const Tensor& tests, bool, bool invert) {
  isin(out, elements, tests, invert);
}
void launch_isin_scalar(at::meta::structured_isin_Tensor_Scalar&, const Tensor& out, const Tensor& elements,
                        const at::Scalar& test, bool, bool invert) {
  Tensor result = out;
  invert ? at::ne_out(result, elements, test) : at::eq_out(result, elements, test);
}
void launch_scalar_isin(at::meta::structured_isin_Scalar_Tensor&, const Tensor& out, const at::Scalar& element,
                        const Tensor& tests, bool, bool invert) {
  isin(out, at::native::searchsorted_scalar_tensor(element, tests.device()), tests, invert);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_native<ops::searchsorted_Tensor, search_places>(m);
  register_native<ops::searchsorted_Tensor_out, searchsorted_out>(m);
  register_native<ops::searchsorted_Scalar, searchsorted_scalar>(m);
  register_native<ops::searchsorted_Scalar_out, searchsorted_scalar_out>(m);
  register_native<ops::bucketize_Tensor, find_buckets>(m);
  register_native<ops::bucketize_Tensor_out, bucketize_out>(m);
  register_native<ops::bucketize_Scalar, bucketize_scalar>(m);
  structured<at::meta::structured_isin_Tensor_Tensor, launch_isin>(m)
      .functional<ops::isin_Tensor_Tensor>()
      .out<ops::isin_Tensor_Tensor_out>();
  structured<at::meta::structured_isin_Tensor_Scalar, launch_isin_scalar>(m)
      .functional<ops::isin_Tensor_Scalar>()
      .out<ops::isin_Tensor_Scalar_out>();
  structured<at::meta::structured_isin_Scalar_Tensor, launch_scalar_isin>(m)
      .functional<ops::isin_Scalar_Tensor>()
      .out<ops::isin_Scalar_Tensor_out>();
}

}  // namespace
}  // namespace torch_npu::search_cpp
