// Distances between the rows of matrices: one REDUCE over the columns forward, one over the other matrix' rows
// backward. PyTorch's own code checks, broadcasts and takes the matrix product where that is better.
#include <ATen/TensorOperators.h>
#include <ATen/native/Distance.h>
#include <ATen/ops/_cdist_backward_native.h>
#include <ATen/ops/_cdist_backward_ops.h>
#include <ATen/ops/_cdist_forward_native.h>
#include <ATen/ops/_cdist_forward_ops.h>
#include <ATen/ops/_pdist_backward_native.h>
#include <ATen/ops/_pdist_backward_ops.h>
#include <ATen/ops/_pdist_forward_native.h>
#include <ATen/ops/_pdist_forward_ops.h>
#include <ATen/ops/triu_indices.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include "csrc/aten/nest.h"
#include "csrc/aten/structured.h"

namespace torch_npu::distance_cpp {
namespace {

using at::Tensor;

enum Norm { kZero, kOne, kTwo, kInfinite, kLow, kGeneral };  // kLow: below two, where the gradient has a pole

Norm norm_of(double p) {
  return p == 0 ? kZero : p == 1 ? kOne : p == 2 ? kTwo : std::isinf(p) ? kInfinite : p < 2 ? kLow : kGeneral;
}

// From %d, the difference: the fold, then %r from %s in the row segment.
const char* fold_lines(Norm norm) {
  switch (norm) {
    case kZero:
      return "  %z = const 0 : $t\n  %ne = ne %d, %z\n  %v = cast %ne : $t\n  %s = fold sum %v\nrow:\n";
    case kOne:
      return "  %v = abs %d\n  %s = fold sum %v\nrow:\n";
    case kTwo:
      return "  %v = mul %d, %d\n  %s = fold sum %v\nrow:\n";
    case kInfinite:
      return "  %v = abs %d\n  %s = fold max %v\nrow:\n";
    default:
      return "  %a = abs %d\n  %p = param p : $t\n  %v = pow %a, %p\n  %s = fold sum %v\nrow:\n";
  }
}

const char* finish_lines(Norm norm) {
  switch (norm) {
    case kTwo:
      return "  %r = sqrt %s\n";
    case kLow:
    case kGeneral:
      return "  %q = param p : $t\n  %e = reciprocal %q\n  %r = pow %s, %e\n";
    default:
      return "  %zero = const 0 : $t\n  %r = add %s, %zero\n";
  }
}

KernelFamily f_forward, f_pairs, f_backward;

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
      .run(f_forward.get(norm, compute, [&] {
        return std::string(R"(
program cdist(out, x, y; p)
each:
  %x = load x : $t
  %y = load y : $t
  %d = sub %x, %y
)") + fold_lines(norm) +
               finish_lines(norm) + "  store out, %r\n";
      }));
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
        return std::string(R"(
program pdist(out, x, first, second; p, width)
each:
  %i = load first : i64
  %j = load second : i64
  %width = param width : i64
  %ia = mul %i, %width
  %ja = mul %j, %width
  %x = load_at x, %ia : $t
  %y = load_at x, %ja : $t
  %d = sub %x, %y
)") + fold_lines(norm) +
               finish_lines(norm) + "  store out, %r\n";
      }));
}

// %g from %d, %grad and %dist.
std::string gradient_lines(Norm norm) {
  switch (norm) {
    case kOne:
      return "  %s = sign %d\n  %g = mul %grad, %s\n";
    case kInfinite:
      return R"(
  %s = sign %d
  %a = abs %d
  %is = eq %a, %dist
  %gs = mul %grad, %s
  %g = where %is, %gs, %zero
)";
    case kTwo:
      return R"(
  %gd = mul %grad, %d
  %q = div %gd, %dist
  %none = eq %dist, %zero
  %g = where %none, %zero, %q
)";
    default:
      return std::string(R"(
  %s = sign %d
  %a = abs %d
  %p = param p : $t
  %one = const 1 : $t
  %p1 = sub %p, %one
  %ap = pow %a, %p1
  %dp = pow %dist, %p1
  %sg = mul %s, %grad
  %u = mul %sg, %ap
  %q = div %u, %dp
  %none = eq %dist, %zero
  %low = lt %p, %one
  %same = eq %d, %zero
  %pole = and %low, %same
  %no = or %none, %pole
  %g = where %no, %zero, %q
)");
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
        return std::string(R"(
program cdist_backward(out, grad, x, y, dist; p)
each:
  %grad = load grad : $t
  %x = load x : $t
  %y = load y : $t
  %dist = load dist : $t
  %zero = const 0 : $t
  %d = sub %x, %y
)") + gradient_lines(norm) +
               R"(
  %sum = fold sum %g
row:
  store out, %sum
)";
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

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::_cdist_forward, at::native::_cdist_forward>(m);
  register_native<at::_ops::_cdist_backward, at::native::_cdist_backward>(m);
  register_native<at::_ops::_pdist_forward, at::native::_pdist_forward>(m);
  register_native<at::_ops::_pdist_backward, at::native::_pdist_backward>(m);
}

}  // namespace
}  // namespace torch_npu::distance_cpp

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(cdist_stub, &torch_npu::distance_cpp::launch_cdist)
REGISTER_PRIVATEUSE1_DISPATCH(cdist_backward_stub, &torch_npu::distance_cpp::launch_cdist_backward)
REGISTER_PRIVATEUSE1_DISPATCH(pdist_forward_stub, &torch_npu::distance_cpp::launch_pdist)
REGISTER_PRIVATEUSE1_DISPATCH(pdist_backward_stub, &torch_npu::distance_cpp::launch_pdist_backward)
}  // namespace at::native
