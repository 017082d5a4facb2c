// Runs of equal elements: a SCAN numbers them. unique and mode are a SORT before it and a gather behind it. The number
// of results has to be known on the host, so unique waits for the device, as on cuda.
#include <ATen/TensorOperators.h>
#include <ATen/native/SortingUtils.h>
#include <ATen/ops/_unique2_ops.h>
#include <ATen/ops/_unique_ops.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mode_ops.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/unique_consecutive_ops.h>
#include <ATen/ops/unique_dim_consecutive_ops.h>
#include <ATen/ops/unique_dim_ops.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::unique_cpp {
namespace {

using at::Tensor;

// The number of the run that each element is in. A NaN is a run of its own.
TypedProgram k_runs(R"(
formula runs(ids, x; back: i64)
each:
  %behind = index(7) > 0
  %id = scan(sum, i64(x != load_at(x, back, mask %behind) and %behind))
each:
  ids = %id
)");

Tensor run_ids(const Tensor& x, int64_t dim, const char* label) {
  const Tensor ids = make_empty(x.sizes(), {}, x.options().dtype(at::kLong));
  Rows(label, x.sizes(), one_dim(x, dim))
      .indexed()
      .add(ids)
      .add(x)
      .scan(k_runs.of(compute_type(x, label)), {integer(-x.stride(dim))});
  return ids;
}

// The first place of each run, and its element.
TypedProgram k_starts(R"(
formula starts(ids, starts): i64
each:
  %behind = index(0) > 0
  store_at(starts, index(0), ids, mask ids != load_at(ids, -1, mask %behind) or not %behind)
)");

// starts has one place more than there are runs, which holds n.
TypedProgram k_counts(R"(
formula counts(counts, starts): i64
each:
  counts = load_at(starts, 1) - starts
)");

struct Runs {
  Tensor starts;  // of each run
  Tensor counts;
};

Runs find_runs(const Tensor& ids, bool counted, const char* label) {
  const int64_t n = ids.numel();
  const int64_t runs = ids[-1].item<int64_t>() + 1;
  const Tensor starts = make_empty({runs + 1}, {}, ids.options());
  Nest(NPU_SCATTER, label, {n}).with(ids).with(starts, {0}).run(k_starts.of(NPU_I64));
  Tensor counts = make_empty({counted ? runs : 0}, {}, ids.options());
  if (counted) {
    starts[-1].fill_(n);
    Nest(NPU_MAP, label, {runs}).with(counts).with(starts, {1}).run(k_counts.of(NPU_I64));
  }
  return {starts.narrow(0, 0, runs), counts};
}

using Unique = std::tuple<Tensor, Tensor, Tensor>;

Unique nothing(const Tensor& self, bool inverse) {
  const auto places = self.options().dtype(at::kLong);
  return {make_empty({0}, {}, self.options()), inverse ? at::empty(self.sizes(), places) : at::empty({0}, places),
          make_empty({0}, {}, places)};
}

Unique flat_unique(const Tensor& self, bool sort, bool inverse, bool counts, const char* label) {
  numeric_dtype(self.scalar_type(), label);
  if (self.numel() == 0) {
    return nothing(self, inverse);
  }
  const Tensor flat = self.reshape({-1});
  Tensor values = flat, order;
  if (sort) {
    std::tie(values, order) = at::sort(flat);
  }
  const Tensor ids = run_ids(values, 0, label);
  const Runs runs = find_runs(ids, counts, label);
  Tensor places = make_empty({0}, {}, ids.options());
  if (inverse) {
    places = sort ? at::empty_like(ids).scatter_(0, order, ids) : ids;
    places = places.reshape(self.sizes());
  }
  return {values.index_select(0, runs.starts), places, runs.counts};
}

// Rows of a matrix as numbers, equal for equal rows and in the rows' order: the ranks within each column, then ranks of
// neighbouring columns together, and so on.
Tensor rank_rows(Tensor rows, const char* label) {
  const int64_t n = rows.size(0);
  for (bool first = true; first || rows.size(1) > 1; first = false) {
    if (!first) {
      const int64_t pairs = rows.size(1) / 2;
      Tensor joined = rows.narrow(1, 0, pairs * 2).reshape({n, pairs, 2});
      joined = joined.select(2, 0) * n + joined.select(2, 1);
      rows = pairs * 2 == rows.size(1) ? joined : at::cat({joined, rows.narrow(1, pairs * 2, 1)}, 1);
    }
    const auto [values, order] = at::sort(rows, 0);
    const Tensor ids = run_ids(values, 0, label);
    rows = at::empty_like(ids).scatter_(0, order, ids);
  }
  return rows.select(1, 0);
}

// For rows in the order given: the number of changes from row to row before each.
Tensor consecutive_ids(const Tensor& rows) {
  const Tensor changes = (rows.narrow(0, 1, rows.size(0) - 1) != rows.narrow(0, 0, rows.size(0) - 1)).any(1);
  const Tensor ids = at::zeros({rows.size(0)}, rows.options().dtype(at::kLong));
  ids.narrow(0, 1, rows.size(0) - 1).copy_(changes.cumsum(0));
  return ids;
}

Unique unique_rows(const Tensor& self, int64_t dim, bool sort, const char* label) {
  numeric_dtype(self.scalar_type(), label);
  dim = at::maybe_wrap_dim(dim, self.dim());
  const auto empty = std::count(self.sizes().begin(), self.sizes().end(), 0);
  if (self.size(dim) == 0) {
    TORCH_CHECK(empty == 1, "Number of zero sized dimensions is more than one, so unique cannot be applied ");
    const Tensor none = make_empty({0}, {}, self.options().dtype(at::kLong));
    return {at::empty(self.sizes(), self.options()), none, none.clone()};
  }
  TORCH_CHECK(empty == 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  const Tensor front = self.moveaxis(dim, 0);
  const Tensor rows = front.reshape({front.size(0), -1});
  Tensor ids, order, inverse;
  if (sort) {
    inverse = rank_rows(rows, label);
    std::tie(ids, order) = at::sort(inverse);
  } else {
    inverse = ids = consecutive_ids(rows);
  }
  const Runs runs = find_runs(ids, true, label);
  const Tensor first = sort ? order.index_select(0, runs.starts) : runs.starts;
  return {front.index_select(0, first).moveaxis(0, dim), inverse, runs.counts};
}

std::tuple<Tensor, Tensor> unique_pair(const Tensor& self, bool, bool return_inverse) {
  auto [values, inverse, counts] = flat_unique(self, true, return_inverse, false, "aten::_unique");
  return {values, inverse};
}
Unique unique2(const Tensor& self, bool, bool return_inverse, bool return_counts) {
  return flat_unique(self, true, return_inverse, return_counts, "aten::_unique2");
}
Unique unique_consecutive(const Tensor& self, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  if (!dim || (*dim == 0 && self.dim() == 1)) {
    return flat_unique(self, false, return_inverse, return_counts, "aten::unique_consecutive");
  }
  return unique_rows(self, *dim, false, "aten::unique_consecutive");
}
Unique unique_dim(const Tensor& self, int64_t dim, bool, bool, bool) {
  return unique_rows(self, dim, true, "aten::unique_dim");
}
Unique unique_dim_consecutive(const Tensor& self, int64_t dim, bool, bool) {
  return unique_rows(self, dim, false, "aten::unique_dim_consecutive");
}

// ---- mode: of the longest runs in a sorted row the first, and the last place of it.

TypedProgram k_run_places(R"(
formula run_places(places, x; back: i64)
each:
  %behind = index(7) > 0
  %start = where(x != load_at(x, back, mask %behind) and %behind, index(7), 0)
  %latest = scan(max, %start)
each:
  places = index(7) - %latest
)");

TypedProgram k_mode(R"(
formula mode(value, position, places: i64, sorted, order: i64; value_stride: i64, order_stride: i64)
each:
  %best = fold(argmax, places, index(7))
row:
  %at = get(%best, 1)
  value = load_at(sorted, %at * value_stride)
  position = load_at(order, %at * order_stride)
)");

std::tuple<Tensor&, Tensor&> mode_out(const Tensor& self, int64_t dim_, bool keepdim, Tensor& values, Tensor& indices) {
  constexpr const char* label = "aten::mode";
  const npu_dtype compute = compute_type(self, label);
  const int64_t dim = at::maybe_wrap_dim(dim_, self.dim());
  if (self.dim() > 0 && self.size(dim) == 0) {
    throw Unsupported(label);  // for PyTorch's own sentence
  }
  at::native::_reduction_with_indices_allocate_or_resize_output(values, indices, self, dim, keepdim);
  if (self.numel() == 0) {
    if (!keepdim) {
      values.squeeze_(dim);
      indices.squeeze_(dim);
    }
    return {values, indices};
  }
  if (self.dim() == 0) {
    values.copy_(self);
    indices.zero_();
    return {values, indices};
  }
  const auto [sorted, order] = at::sort(self, std::optional<bool>(true), dim);
  const Tensor places = make_empty(self.sizes(), {}, order.options());
  Rows(label, self.sizes(), one_dim(self, dim))
      .indexed()
      .add(places)
      .add(sorted)
      .scan(k_run_places.of(compute), {integer(-sorted.stride(dim))});
  at::DimVector value_strides(sorted.strides()), order_strides(order.strides());
  value_strides[dim] = order_strides[dim] = 0;
  Rows(label, self.sizes(), one_dim(self, dim))
      .indexed()
      .add(values)
      .add(indices)
      .add(places)
      .strided(sorted, value_strides)
      .strided(order, order_strides)
      .reduce(k_mode.of(compute), {integer(sorted.stride(dim)), integer(order.stride(dim))});
  if (!keepdim) {
    values.squeeze_(dim);
    indices.squeeze_(dim);
  }
  return {values, indices};
}

std::tuple<Tensor, Tensor> mode(const Tensor& self, int64_t dim, bool keepdim) {
  Tensor values = make_empty({0}, {}, self.options());
  Tensor indices = make_empty({0}, {}, self.options().dtype(at::kLong));
  mode_out(self, dim, keepdim, values, indices);
  return {values, indices};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_native<ops::_unique, unique_pair>(m);
  register_native<ops::_unique2, unique2>(m);
  register_native<ops::unique_consecutive, unique_consecutive>(m);
  register_native<ops::unique_dim, unique_dim>(m);
  register_native<ops::unique_dim_consecutive, unique_dim_consecutive>(m);
  register_native<ops::mode, mode>(m);
  register_native<ops::mode_values, mode_out>(m);
}

}  // namespace
}  // namespace torch_npu::unique_cpp
