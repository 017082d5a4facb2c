// npu_rms_norm is PyTorch's own fused RMS norm under another name. npu_add_rms_norm adds a residual first: one REDUCE
// forward; one for the gradient of the sum, and one for gamma's, backward.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/empty.h>

#include "csrc/aten/dispatch/custom_op.h"
#include "csrc/aten/norms/rms_norm.h"

namespace torch_npu::fused_norm_cpp {
namespace {

using at::Tensor;
using Pair = std::tuple<Tensor, Tensor>;
using Triple = std::tuple<Tensor, Tensor, Tensor>;

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

Pair npu_rms_norm(const Tensor& x, const Tensor& gamma, double epsilon) {
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

Triple add_native(const Tensor& x1, const Tensor& x2, const Tensor& gamma, double epsilon) {
  check_add(x1, x2, gamma);
  return rms_norm::forward("npu::npu_add_rms_norm", x1, x2, gamma, gamma.dim(), epsilon);
}

// Gradients of the sum, which x1 and x2 share, and of gamma. `grad_x` is what reached the sum itself.
Pair add_backward_meta(const Tensor&, const std::optional<Tensor>&, const Tensor& x, const Tensor&, const Tensor& gamma,
                       bool of_gamma) {
  return {at::empty_symint(x.sym_sizes(), x.options()),
          of_gamma ? at::empty_symint(gamma.sym_sizes(), gamma.options()) : at::empty({0}, gamma.options())};
}

// An op returns no undefined tensor.
Pair all_defined(const Pair& grads, const Tensor& gamma) {
  const auto& [of_sum, of_gamma] = grads;
  return {of_sum, of_gamma.defined() ? of_gamma : at::empty({0}, gamma.options())};
}

Pair add_backward_composition(const Tensor& grad, const std::optional<Tensor>& grad_x, const Tensor& x,
                              const Tensor& rstd, const Tensor& gamma, bool of_gamma) {
  return all_defined(rms_norm::backward_composition(grad, given(grad_x), x, rstd, gamma, gamma.dim(), {true, of_gamma}),
                     gamma);
}

Pair add_backward_native(const Tensor& grad, const std::optional<Tensor>& grad_x, const Tensor& x, const Tensor& rstd,
                         const Tensor& gamma, bool of_gamma) {
  return all_defined(rms_norm::backward("npu::npu_add_rms_norm_backward", grad, given(grad_x), x, rstd, gamma,
                                        gamma.dim(), {true, of_gamma}),
                     gamma);
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
  m.def("npu_rms_norm(Tensor self, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)", npu_rms_norm);
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
