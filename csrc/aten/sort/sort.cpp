// Order along one dimension: one SORT, and for medians one REDUCE that picks a place of the sorted row.
#include <ATen/native/SortingUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/kthvalue_ops.h>
#include <ATen/ops/median_ops.h>
#include <ATen/ops/nanmedian_ops.h>
#include <ATen/ops/sort_meta.h>
#include <ATen/ops/sort_ops.h>
#include <ATen/ops/topk_meta.h>
#include <ATen/ops/topk_ops.h>

#include <limits>

#include "csrc/aten/dispatch/reduction.h"
#include "csrc/aten/dispatch/structured_pair.h"

namespace torch_npu::sort_cpp {
namespace {

using at::Tensor;

// The place is the middle one; with a NaN in the row the first of them, or, if those are ignored, the middle of the
// numbers. NaNs are last in a sorted row.
TypedProgram k_median(R"(
formula median(value, position, sorted, order, all_sorted, all_order: i64;
   n: i64, value_stride: i64, order_stride: i64, ignore: bool)
each:
  %nans = fold(sum, i64(sorted != sorted))
row:
  %numbers = n - %nans
  %place = where(%nans > 0 and not ignore, %numbers, max(%numbers - 1, 0) / 2)
  value = load_at(all_sorted, %place * value_stride)
  position = load_at(all_order, %place * order_stride)
)");

// Writes the first `count` of each sorted row to values and indices, whose size along `dim` may be just that.
void sort_rows(const Tensor& values, const Tensor& indices, const Tensor& self, int64_t dim, int64_t count,
               bool descending, bool stable, const char* label) {
  if (count == 0) {
    return;
  }
  if (self.dim() == 0) {
    values.copy_(self);
    indices.zero_();
    return;
  }
  Rows(label, self.sizes(), one_dim(self, dim))
      .add(self)
      .number(0)
      .strided(values, values.strides())
      .strided(indices, indices.strides())
      .sort(count, descending, stable);
}

// Stable also where nobody asks for it: the order of equals is then the same on every driver.
void launch_sort(const Tensor& values, const Tensor& indices, const Tensor& self, std::optional<bool>, int64_t dim,
                 bool descending) {
  const int64_t n = self.dim() == 0 ? 1 : self.size(dim);
  sort_rows(values, indices, self, dim, n, descending, /*stable=*/true, "aten::sort");
}

void launch_topk(const Tensor& values, const Tensor& indices, const Tensor& self, int64_t k, int64_t dim, bool largest,
                 bool) {
  sort_rows(values, indices, self, dim, k, largest, false, "aten::topk");
}

struct Sorted {
  Tensor values, indices;
};

Sorted sorted(const Tensor& self, int64_t dim, int64_t count, bool stable, const char* label) {
  at::DimVector shape(self.sizes());
  if (!shape.empty()) {
    shape[dim] = count;
  }
  Sorted out{make_empty(shape, {}, self.options()), make_empty(shape, {}, self.options().dtype(at::kLong))};
  sort_rows(out.values, out.indices, self, dim, count, false, stable, label);
  return out;
}

std::tuple<Tensor&, Tensor&> kthvalue(const Tensor& self, int64_t k, int64_t dim_, bool keepdim, Tensor& values,
                                      Tensor& indices) {
  const int64_t dim = at::maybe_wrap_dim(dim_, self.dim());
  const int64_t n = self.dim() == 0 ? 1 : self.size(dim);
  TORCH_CHECK(k >= 1 && k <= n, "kthvalue(): selected number k out of range for dimension ", dim);
  compute_type(self, "aten::kthvalue");
  at::native::_reduction_with_indices_allocate_or_resize_output(values, indices, self, dim, keepdim);
  if (self.numel() > 0) {
    const Sorted all = sorted(self, dim, k, false, "aten::kthvalue");
    const bool scalar = self.dim() == 0;
    values.copy_(scalar ? all.values : all.values.narrow(dim, k - 1, 1));
    indices.copy_(scalar ? all.indices : all.indices.narrow(dim, k - 1, 1));
  }
  if (!keepdim && self.dim() > 0) {
    values.squeeze_(dim);
    indices.squeeze_(dim);
  }
  return {values, indices};
}

// values and indices have size 1 along dim.
void pick_median(const Tensor& values, const Tensor& indices, const Tensor& self, int64_t dim, bool ignore_nan,
                 const char* label) {
  const npu_dtype compute = compute_type(self, label);
  const int64_t n = self.size(dim);
  const Sorted all = sorted(self, dim, n, /*stable=*/true, label);
  at::DimVector value_strides(all.values.strides()), order_strides(all.indices.strides());
  value_strides[dim] = order_strides[dim] = 0;
  Rows(label, self.sizes(), one_dim(self, dim))
      .add(values)
      .add(indices)
      .add(all.values)
      .add(all.indices)
      .strided(all.values, value_strides)
      .strided(all.indices, order_strides)
      .reduce(k_median.of(compute),
              {integer(n), integer(all.values.stride(dim)), integer(all.indices.stride(dim)), integer(ignore_nan)});
}

std::tuple<Tensor&, Tensor&> median_dim(const Tensor& self, int64_t dim_, bool keepdim, Tensor& values, Tensor& indices,
                                        bool ignore_nan, const char* label) {
  const int64_t dim = at::maybe_wrap_dim(dim_, self.dim());
  if (self.dim() > 0 && self.size(dim) == 0) {
    throw Unsupported(label);  // for PyTorch's own sentence
  }
  compute_type(self, label);
  at::native::_reduction_with_indices_allocate_or_resize_output(values, indices, self, dim, keepdim);
  if (self.dim() == 0) {
    values.copy_(self);
    indices.zero_();
    return {values, indices};
  }
  pick_median(values, indices, self, dim, ignore_nan, label);
  if (!keepdim) {
    values.squeeze_(dim);
    indices.squeeze_(dim);
  }
  return {values, indices};
}

Tensor median_all(const Tensor& self, bool ignore_nan, const char* label) {
  if (self.numel() == 0) {
    return at::full({}, std::numeric_limits<float>::quiet_NaN(), self.options());
  }
  const Tensor flat = self.reshape({-1});
  const Tensor value = make_empty({1}, {}, self.options());
  const Tensor index = make_empty({1}, {}, self.options().dtype(at::kLong));
  pick_median(value, index, flat, 0, ignore_nan, label);
  return value.reshape({});
}

std::tuple<Tensor&, Tensor&> median_values(const Tensor& self, int64_t dim, bool keepdim, Tensor& values,
                                           Tensor& indices) {
  return median_dim(self, dim, keepdim, values, indices, false, "aten::median");
}
std::tuple<Tensor&, Tensor&> nanmedian_values(const Tensor& self, int64_t dim, bool keepdim, Tensor& values,
                                              Tensor& indices) {
  return median_dim(self, dim, keepdim, values, indices, true, "aten::nanmedian");
}
Tensor median(const Tensor& self) {
  return median_all(self, false, "aten::median");
}
Tensor nanmedian(const Tensor& self) {
  return median_all(self, true, "aten::nanmedian");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  structured_pair<at::meta::structured_sort_stable, launch_sort>(m)
      .functional<ops::sort_stable>()
      .out<ops::sort_values_stable>();
  structured_pair<at::meta::structured_topk, launch_topk>(m).functional<ops::topk>().out<ops::topk_values>();
  register_native<ops::kthvalue_values, kthvalue>(m);
  register_native<ops::median_dim_values, median_values>(m);
  register_native<ops::nanmedian_dim_values, nanmedian_values>(m);
  register_native<ops::median, median>(m);
  register_native<ops::nanmedian, nanmedian>(m);
}

}  // namespace
}  // namespace torch_npu::sort_cpp
