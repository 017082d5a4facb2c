// Distances between the rows of matrices: one REDUCE over the columns forward, one over the other matrix' rows
// backward. PyTorch's own code around its kernels refuses devices that it does not know in 2.11, so that is here as
// well.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_cdist_backward_ops.h>
#include <ATen/ops/_cdist_forward_ops.h>
#include <ATen/ops/_euclidean_dist.h>
#include <ATen/ops/_pdist_backward_ops.h>
#include <ATen/ops/_pdist_forward_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/triu_indices.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/accumulate.h>

#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::distance_cpp {
namespace {

using at::Tensor;

enum Norm { kZero, kOne, kTwo, kInfinite, kLow, kGeneral };  // kLow: below two, where the gradient has a pole

Norm norm_of(double p) {
  return p == 0 ? kZero : p == 1 ? kOne : p == 2 ? kTwo : std::isinf(p) ? kInfinite : p < 2 ? kLow : kGeneral;
}

// From %d, the difference: its fold, and what is made of that.
std::string norm_lines(Norm norm) {
  const auto lines = [](const char* fold, const char* result) {
    return std::string("  %s = ") + fold + "\nrow:\n  out = " + result + "\n";
  };
  switch (norm) {
    case kZero:
      return lines("fold(sum, number(%d != 0))", "%s + 0");
    case kOne:
      return lines("fold(sum, abs(%d))", "%s + 0");
    case kTwo:
      return lines("fold(sum, %d * %d)", "sqrt(%s)");
    case kInfinite:
      return lines("fold(max, abs(%d))", "%s + 0");
    default:
      return lines("fold(sum, abs(%d) ** p)", "%s ** reciprocal(p)");
  }
}

ProgramFamily f_forward, f_pairs, f_backward;

void launch_cdist(Tensor& result, const Tensor& x1, const Tensor& x2, const double p) {
  constexpr const char* label = "aten::_cdist_forward";
  const npu_dtype compute = compute_dtype(numeric_dtype(x1.scalar_type(), label));
  const int64_t batch = x1.size(0), rows = x1.size(1), others = x2.size(1), width = x1.size(2);
  const Norm norm = norm_of(p);
  Nest(NPU_REDUCE, label, {batch, rows, others, width}, 1)
      .with(result, {rows * others, others, 1, 0})
      .with(x1, {rows * width, width, 0, 1})
      .with(x2, {others * width, 0, width, 1})
      .number(p)
      .run(f_forward.get(norm, compute,
                         [&] { return "formula cdist(out, x, y; p)\neach:\n  %d = x - y\n" + norm_lines(norm); }));
}

// result[k] for the k-th pair of rows above the diagonal.
void launch_pdist(Tensor& result, const Tensor& self, const double p) {
  constexpr const char* label = "aten::_pdist_forward";
  const npu_dtype compute = compute_dtype(numeric_dtype(self.scalar_type(), label));
  const int64_t n = self.size(0), width = self.size(1), pairs = result.numel();
  const Tensor places = at::triu_indices(n, n, 1, self.options().dtype(at::kLong));
  const Norm norm = norm_of(p);
  Nest(NPU_REDUCE, label, {pairs, width}, 1)
      .with(result, {1, 0})
      .with(self, {0, 1})
      .with(places, {1, 0})
      .with(places, {1, 0}, pairs)
      .number(p)
      .integer(width)
      .run(f_pairs.get(norm, compute, [&] {
        return R"(
formula pdist(out, x, first: i64, second: i64; p, width: i64)
each:
  %d = load_at(x, first * width) - load_at(x, second * width)
)" + norm_lines(norm);
      }));
}

// From %d, the difference.
const char* gradient(Norm norm) {
  switch (norm) {
    case kOne:
      return "grad * sign(%d)";
    case kInfinite:
      return "where(abs(%d) == dist, grad * sign(%d), 0)";
    case kTwo:
      return "where(dist == 0, 0, grad * %d / dist)";
    default:
      return "where(dist == 0 or p < 1 and %d == 0, 0, sign(%d) * grad * abs(%d) ** (p - 1) / dist ** (p - 1))";
  }
}

void launch_cdist_backward(Tensor& result, const Tensor& grad, const Tensor& x1, const Tensor& x2, const double p,
                           const Tensor& dist) {
  constexpr const char* label = "aten::_cdist_backward";
  const Norm norm = norm_of(p);
  if (norm == kZero) {
    result.zero_();
    return;
  }
  const npu_dtype compute = compute_dtype(numeric_dtype(x1.scalar_type(), label));
  const int64_t rows = x1.size(-2), others = x2.size(-2), width = x1.size(-1), batch = result.size(0);
  Nest(NPU_REDUCE, label, {batch, rows, width, others}, 1)
      .with(result, {rows * width, width, 1, 0})
      .with(grad, {rows * others, others, 0, 1})
      .with(x1, {rows * width, width, 1, 0})
      .with(x2, {others * width, 0, 1, width})
      .with(dist, {rows * others, others, 0, 1})
      .number(p)
      .run(f_backward.get(norm, compute, [&] {
        return std::string(
                   "formula cdist_backward(out, grad, x, y, dist; p)\neach:\n  %d = x - y\n  %sum = fold(sum, ") +
               gradient(norm) + ")\nrow:\n  out = %sum\n";
      }));
}

// Through the square matrices of gradients and distances.
void launch_pdist_backward(Tensor& result, const Tensor& grad, const Tensor& self, const double p, const Tensor& dist) {
  const int64_t n = self.size(0);
  if (n <= 1 || self.size(1) == 0) {
    result.zero_();
    return;
  }
  const Tensor places = at::triu_indices(n, n, 1, self.options().dtype(at::kLong));
  const Tensor upper = places[0] * n + places[1], lower = places[1] * n + places[0];
  const auto square = [&](const Tensor& pairs) {
    const Tensor out = at::zeros({n * n}, self.options());
    return out.index_copy_(0, upper, pairs).index_copy_(0, lower, pairs).view({1, n, n});
  };
  Tensor out = result.unsqueeze(0);
  launch_cdist_backward(out, square(grad.contiguous()), self.unsqueeze(0), self.unsqueeze(0), p, square(dist));
}

// Both with the batch that they have together, whose sizes come first in the answer.
std::tuple<std::vector<int64_t>, Tensor, Tensor> broadcast(const Tensor& x1, const Tensor& x2) {
  const std::vector<int64_t> batch =
      at::infer_size(x1.sizes().slice(0, x1.dim() - 2), x2.sizes().slice(0, x2.dim() - 2));
  const auto expanded = [&](const Tensor& x) {
    std::vector<int64_t> sizes = batch;
    sizes.insert(sizes.end(), {x.size(-2), x.size(-1)});
    return x.expand(sizes).contiguous();
  };
  return {batch, expanded(x1), expanded(x2)};
}

Tensor cdist_forward(const Tensor& x1, const Tensor& x2, double p, std::optional<int64_t> compute_mode) {
  TORCH_CHECK(x1.dim() >= 2, "cdist only supports at least 2D tensors, X1 got: ", x1.dim(), "D");
  TORCH_CHECK(x2.dim() >= 2, "cdist only supports at least 2D tensors, X2 got: ", x2.dim(), "D");
  TORCH_CHECK(x1.size(-1) == x2.size(-1), "X1 and X2 must have the same number of columns. X1: ", x1.size(-1),
              " X2: ", x2.size(-1));
  for (const auto& [x, name] : {std::pair(x1, "X1"), std::pair(x2, "X2")})
    TORCH_CHECK(at::isFloatingType(x.scalar_type()), "cdist only supports floating-point dtypes, ", name,
                " got: ", x.scalar_type());
  TORCH_CHECK(p >= 0, "cdist only supports non-negative p values");
  const int64_t mode = compute_mode.value_or(0), rows = x1.size(-2), others = x2.size(-2);
  TORCH_CHECK(mode >= 0 && mode <= 2, "possible modes: 0, 1, 2, but was: ", mode);
  auto [sizes, a, b] = broadcast(x1, x2);
  const int64_t batch = c10::multiply_integers(sizes);
  sizes.insert(sizes.end(), {rows, others});
  if (x1.size(-1) == 0) return at::zeros(sizes, x1.options());
  if (batch != 0 && rows != 0 && others != 0 && p == 2 && (mode == 1 || (mode == 0 && (rows > 25 || others > 25))))
    return at::_euclidean_dist(a, b);  // by a matrix product
  Tensor result = at::empty(sizes, x1.options());
  if (result.numel() != 0) {
    Tensor flat = result.view({batch, rows, others});
    launch_cdist(flat, a.view({batch, rows, -1}), b.view({batch, others, -1}), p);
  }
  return result;
}

Tensor cdist_backward(const Tensor& grad, const Tensor& x1, const Tensor& x2, double p, const Tensor& dist) {
  const auto [sizes, a, b] = broadcast(x1, x2);
  const int64_t batch = c10::multiply_integers(sizes);
  if (a.numel() == 0 || b.numel() == 0) return at::zeros_like(x1);
  Tensor result = at::empty({batch, x1.size(-2), x1.size(-1)}, x1.options());
  launch_cdist_backward(result, grad.contiguous(), a, b, p, dist.contiguous());
  return result.view(a.sizes());
}

Tensor pdist_forward(const Tensor& self, double p) {
  TORCH_CHECK(self.is_contiguous(), "_pdist_forward requires contiguous input");
  const int64_t n = self.size(0), pairs = n * (n - 1) / 2;
  if (self.size(1) == 0) return at::zeros({pairs}, self.options());
  Tensor result = at::empty({pairs}, self.options());
  if (pairs != 0) launch_pdist(result, self, p);
  return result;
}

Tensor pdist_backward(const Tensor& grad, const Tensor& self, double p, const Tensor& dist) {
  TORCH_CHECK(self.is_contiguous(), "_pdist_backward requires self to be contiguous");
  TORCH_CHECK(dist.is_contiguous(), "_pdist_backward requires pdist to be contiguous");
  Tensor result = at::empty_like(self, at::MemoryFormat::Contiguous);
  launch_pdist_backward(result, grad, self, p, dist);
  return result;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::_cdist_forward, cdist_forward>(m);
  register_native<at::_ops::_cdist_backward, cdist_backward>(m);
  register_native<at::_ops::_pdist_forward, pdist_forward>(m);
  register_native<at::_ops::_pdist_backward, pdist_backward>(m);
}

}  // namespace
}  // namespace torch_npu::distance_cpp
