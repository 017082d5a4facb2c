// Ops added from outside: docs/adding-an-op.md quotes this file, tests/test_codegen.py builds and runs it.
#include <ATen/ops/round.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "csrc/aten/dispatch/custom_op.h"
#include "csrc/aten/dispatch/pointwise.h"
#include "extra/kernels.h"

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace torch_npu {
namespace {

// [gradient]
// round with a straight-through gradient, on this device only.
struct RoundThrough : torch::autograd::Function<RoundThrough> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& self) {
    at::AutoDispatchBelowADInplaceOrView below;
    return at::round(self);
  }
  static variable_list backward(AutogradContext*, variable_list grads) { return {grads[0]}; }
};

at::Tensor round_through(const at::Tensor& self) {
  return RoundThrough::apply(self);
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("round", round_through);
}
// [/gradient]

// [custom]
// On the device: one command each.
at::Tensor silu_mul_npu(const at::Tensor& x, const at::Tensor& y) {
  at::Tensor out;
  auto iter = at::TensorIterator::binary_op(out, x, y);
  PointwiseCall(iter, "npu::silu_mul").run(extra::silu_mul, {});
  return iter.output();
}

using Pair = std::tuple<at::Tensor, at::Tensor>;

Pair silu_mul_backward_npu(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& y) {
  auto iter = at::TensorIteratorConfig()
                  .add_owned_output(at::Tensor())
                  .add_owned_output(at::Tensor())
                  .add_const_input(grad)
                  .add_const_input(x)
                  .add_const_input(y)
                  .build();
  PointwiseCall(iter, "npu::silu_mul_backward").run(extra::silu_mul_backward, {});
  return {iter.output(0), iter.output(1)};
}

// Everywhere else, meta tensors included, from PyTorch's own ops.
at::Tensor silu_mul_any(const at::Tensor& x, const at::Tensor& y) {
  return at::silu(x) * y;
}

Pair silu_mul_backward_any(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor s = x.sigmoid();
  return {grad * y * s * (1 + x * (1 - s)), grad * x * s};
}

void silu_mul_gradient(BackwardCall& call) {
  static const auto op =
      npu_op<Pair(const at::Tensor&, const at::Tensor&, const at::Tensor&)>("npu::silu_mul_backward");
  auto [x, y] = op.call(call.grad(0), call.argument(0), call.argument(1));
  call.give(0, x);
  call.give(1, y);
}

TORCH_LIBRARY_FRAGMENT(npu, m) {
  const Places both = places(0, 1);  // arguments by their places: the gradients of both are computed from both
  define<silu_mul_npu, silu_mul_any>(m, "silu_mul(Tensor x, Tensor y) -> Tensor", silu_mul_any,
                                     {{silu_mul_gradient, {{0, both}, {1, both}}}, /*lower_precision=*/both});
  define<silu_mul_backward_npu, silu_mul_backward_any>(
      m, "silu_mul_backward(Tensor grad, Tensor x, Tensor y) -> (Tensor, Tensor)", silu_mul_backward_any);
}
// [/custom]

}  // namespace
}  // namespace torch_npu
