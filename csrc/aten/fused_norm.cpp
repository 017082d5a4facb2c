// npu_rms_norm is PyTorch's own fused RMS norm under another name. npu_add_rms_norm adds a residual first: one REDUCE
// forward; one for the gradient of the sum, and one for gamma's, backward.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/empty.h>

#include "csrc/aten/custom_op.h"
#include "csrc/aten/reduction.h"

namespace torch_npu::fused_norm_cpp {
namespace {

using at::Tensor;
using Pair = std::tuple<Tensor, Tensor>;
using Triple = std::tuple<Tensor, Tensor, Tensor>;

// The second pass reads the sum as it was rounded when it was stored, which is what the gradient will see.
TypedKernel k_add_rms(R"(
program add_rms_norm(out, rstd, sum, x1, x2, gamma; eps, n)
each:
  %a = load x1 : $t
  %b = load x2 : $t
  %x = add %a, %b
  store sum, %x
  %q = mul %x, %x
  %s = fold sum %q
row:
  %n = param n : $t
  %m = div %s, %n
  %eps = param eps : $t
  %e = add %m, %eps
  %rstd = rsqrt %e
  store rstd, %rstd
each:
  %again = load sum : $t
  %norm = mul %again, %rstd
  %gamma = load gamma : $t
  %y = mul %norm, %gamma
  store out, %y
)");

TypedKernel k_add_rms_backward(R"(
program add_rms_norm_backward(out, grad, grad_sum, sum, rstd, gamma; n)
row:
  %rstd = load rstd : $t
each:
  %g = load grad : $t
  %w = load gamma : $t
  %x = load sum : $t
  %gw = mul %g, %w
  %h = mul %x, %rstd
  %p = mul %gw, %h
  %b = fold sum %p
row:
  %n = param n : $t
  %bm = div %b, %n
each:
  %g2 = load grad : $t
  %w2 = load gamma : $t
  %x2 = load sum : $t
  %gw2 = mul %g2, %w2
  %h2 = mul %x2, %rstd
  %q = mul %h2, %bm
  %q2 = sub %gw2, %q
  %r = mul %q2, %rstd
  %gs = load grad_sum : $t
  %all = add %r, %gs
  store out, %all
)");

void check(const char* op, const char* name, const Tensor& x, const Tensor& gamma) {
  check_floating(op, name, x);
  check_floating(op, "gamma", gamma);
  check_same_device(op, {&x, &gamma});
  bool fits = gamma.dim() > 0 && gamma.dim() <= x.dim();
  for (int64_t d = 1; fits && d <= gamma.dim(); ++d) fits = gamma.sym_size(-d) == x.sym_size(-d);
  TORCH_CHECK(fits, op, ": expected gamma of the last dimensions of ", name, ", ", x.sym_sizes(), ", got ",
              gamma.sym_sizes());
}

std::vector<int64_t> normalized_shape(const Tensor& gamma) {
  std::vector<int64_t> shape;
  for (const auto& size : gamma.sym_sizes()) shape.push_back(size.guard_int(__FILE__, __LINE__));
  return shape;
}

Pair rms_norm(const Tensor& x, const Tensor& gamma, double epsilon) {
  check("npu_rms_norm", "input", x, gamma);
  auto [out, rstd] = at::_fused_rms_norm(x, normalized_shape(gamma), gamma, epsilon);
  return {out, rstd.detach()};  // no gradient through rstd, on any device
}

// -- npu_add_rms_norm --

void check_add(const Tensor& x1, const Tensor& x2, const Tensor& gamma) {
  constexpr const char* op = "npu_add_rms_norm";
  check(op, "x1", x1, gamma);
  check_same_type(op, "x2", x2, "x1", x1);
  check_same_device(op, {&x1, &x2});
  TORCH_CHECK(x1.sym_sizes() == x2.sym_sizes(), op, ": expected x2 of the shape of x1, ", x1.sym_sizes(), ", got ",
              x2.sym_sizes());
}

c10::SymDimVector stat_sizes(const Tensor& x, const Tensor& gamma) {
  c10::SymDimVector sizes(x.sym_sizes());
  for (int64_t d = x.dim() - gamma.dim(); d < x.dim(); ++d) sizes[d] = 1;
  return sizes;
}

Triple empty_results(const Tensor& x, const Tensor& gamma) {
  const auto type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return {at::empty_symint(x.sym_sizes(), x.options()), at::empty_symint(stat_sizes(x, gamma), x.options().dtype(type)),
          at::empty_symint(x.sym_sizes(), x.options())};
}

Triple add_meta(const Tensor& x1, const Tensor& x2, const Tensor& gamma, double) {
  check_add(x1, x2, gamma);
  return empty_results(x1, gamma);
}

Triple add_composition(const Tensor& x1, const Tensor& x2, const Tensor& gamma, double epsilon) {
  check_add(x1, x2, gamma);
  const Tensor x = (x1 + x2).contiguous();
  auto [out, rstd] = at::_fused_rms_norm(x, gamma.sizes(), gamma, epsilon);
  return {out, rstd.detach(), x};
}

DimMask last_dims(const Tensor& x, const Tensor& gamma) {
  DimMask mask;
  for (int64_t d = x.dim() - gamma.dim(); d < x.dim(); ++d) mask[d] = true;
  return mask;
}

Triple add_native(const Tensor& x1, const Tensor& x2, const Tensor& gamma, double epsilon) {
  constexpr const char* label = "npu::npu_add_rms_norm";
  check_add(x1, x2, gamma);
  auto [out, rstd, x] = empty_results(x1, gamma);
  Rows(label, x.sizes(), last_dims(x, gamma))
      .add(out)
      .add(rstd)
      .add(x)
      .add(x1)
      .add(x2)
      .add(gamma)
      .reduce(k_add_rms.of(compute_type(x, label)), {number(epsilon), number(static_cast<double>(gamma.numel()))});
  return {out, rstd, x};
}

// Gradients of the sum, which x1 and x2 share, and of gamma. `grad_x` is what reached the sum itself.
Pair add_backward_meta(const Tensor&, const std::optional<Tensor>&, const Tensor& x, const Tensor&, const Tensor& gamma,
                       bool of_gamma) {
  return {at::empty_symint(x.sym_sizes(), x.options()),
          of_gamma ? at::empty_symint(gamma.sym_sizes(), gamma.options()) : at::empty({0}, gamma.options())};
}

Pair add_backward_composition(const Tensor& grad, const std::optional<Tensor>& grad_x, const Tensor& x,
                              const Tensor& rstd, const Tensor& gamma, bool of_gamma) {
  at::DimVector folded, kept;
  for (int64_t d = 0; d < x.dim(); ++d) (d < x.dim() - gamma.dim() ? kept : folded).push_back(d);
  const auto wide = rstd.scalar_type();
  const Tensor g = grad.to(wide), norm = x.to(wide) * rstd, scaled = g * gamma;
  Tensor out = (scaled - norm * (scaled * norm).mean(folded, /*keepdim=*/true)) * rstd;
  if (grad_x && grad_x->defined()) out = out + *grad_x;
  Tensor grad_gamma = at::empty({0}, gamma.options());
  if (of_gamma) {
    const Tensor product = g * norm;
    grad_gamma = (kept.empty() ? product : product.sum(kept)).to(gamma.scalar_type());
  }
  return {out.to(x.scalar_type()).contiguous(), grad_gamma};
}

Pair add_backward_native(const Tensor& grad, const std::optional<Tensor>& grad_x, const Tensor& x, const Tensor& rstd,
                         const Tensor& gamma, bool of_gamma) {
  constexpr const char* label = "npu::npu_add_rms_norm_backward";
  const Tensor out = at::empty(x.sizes(), x.options());
  Rows(label, x.sizes(), last_dims(x, gamma))
      .add(out)
      .add(grad)
      .add_or(given(grad_x), 0)
      .add(x)
      .add(rstd)
      .add(gamma)
      .reduce(k_add_rms_backward.of(compute_type(x, label)), {number(static_cast<double>(gamma.numel()))});
  if (!of_gamma) return {out, at::empty({0}, gamma.options())};
  return {out, std::get<1>(at::_fused_rms_norm_backward(grad, x, gamma.sizes(), rstd, gamma, {false, true}))};
}

void add_gradient(BackwardCall& call) {
  using Signature =
      Pair(const Tensor&, const std::optional<Tensor>&, const Tensor&, const Tensor&, const Tensor&, bool);
  static const auto op = npu_op<Signature>("npu::npu_add_rms_norm_backward");
  Tensor of_sum = call.grad(2);
  if (call.grad(0).defined()) {
    const Tensor &gamma = call.argument(2), &x = call.result(2);
    Tensor rstd = call.result(1), of_gamma;
    if (c10::GradMode::is_enabled()) {  // it has to be differentiated too: it is made again
      at::DimVector folded;
      for (int64_t d = x.dim() - gamma.dim(); d < x.dim(); ++d) folded.push_back(d);
      rstd = (x.to(rstd.scalar_type()).pow(2).mean(folded, /*keepdim=*/true) + call.value<double>(3)).rsqrt();
    }
    std::tie(of_sum, of_gamma) = op.call(call.grad(0), call.grad(2), x, rstd, gamma, call.wants(2));
    if (call.wants(2)) call.give(2, of_gamma);
  }
  call.give(0, of_sum);
  call.give(1, of_sum);
}

TORCH_LIBRARY_FRAGMENT(npu, m) {
  m.def("npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)", rms_norm);
  const Places gamma = places(2), rstd_and_sum = places(1, 2);
  define<add_native, add_composition>(
      m, "npu_add_rms_norm(Tensor x1, Tensor x2, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor, Tensor)",
      add_meta,
      {{add_gradient,
        {{0, gamma, rstd_and_sum}, {1, gamma, rstd_and_sum}, {2, gamma, rstd_and_sum}},
        /*results=*/places(0, 2)}});
  define<add_backward_native, add_backward_composition>(
      m,
      "npu_add_rms_norm_backward(Tensor grad, Tensor? grad_x, Tensor x, Tensor rstd, Tensor gamma, bool of_gamma) -> "
      "(Tensor, Tensor)",
      add_backward_meta);
}

}  // namespace
}  // namespace torch_npu::fused_norm_cpp
