// Ops added from outside: docs/adding-an-op.md quotes this file, tests/test_codegen.py builds and runs it.
#include <ATen/autocast_mode.h>
#include <ATen/ops/round.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "csrc/aten/pointwise.h"
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
TORCH_LIBRARY_FRAGMENT(npu, m) {
  m.def("silu_mul(Tensor x, Tensor y) -> Tensor");
  m.def("silu_mul_backward(Tensor grad, Tensor x, Tensor y) -> (Tensor, Tensor)");
}

// On the device: one command each.
at::Tensor silu_mul_npu(const at::Tensor& x, const at::Tensor& y) {
  at::Tensor out;
  auto iter = at::TensorIterator::binary_op(out, x, y);
  PointwiseCall(iter, "npu::silu_mul").run(extra::silu_mul, {});
  return iter.output();
}

std::tuple<at::Tensor, at::Tensor> silu_mul_backward_npu(const at::Tensor& grad, const at::Tensor& x,
                                                         const at::Tensor& y) {
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

TORCH_LIBRARY_IMPL(npu, PrivateUse1, m) {
  m.impl("silu_mul", silu_mul_npu);
  m.impl("silu_mul_backward", silu_mul_backward_npu);
}

// Everywhere else, meta tensors included, from PyTorch's own ops.
at::Tensor silu_mul_any(const at::Tensor& x, const at::Tensor& y) {
  return at::silu(x) * y;
}

std::tuple<at::Tensor, at::Tensor> silu_mul_backward_any(const at::Tensor& grad, const at::Tensor& x,
                                                         const at::Tensor& y) {
  const at::Tensor s = x.sigmoid();
  return {grad * y * s * (1 + x * (1 - s)), grad * x * s};
}

TORCH_LIBRARY_IMPL(npu, CompositeExplicitAutograd, m) {
  m.impl("silu_mul", silu_mul_any);
  m.impl("silu_mul_backward", silu_mul_backward_any);
}

at::Tensor call_silu_mul(const at::Tensor& x, const at::Tensor& y) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("npu::silu_mul", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&)>();
  return op.call(x, y);
}

struct SiluMul : torch::autograd::Function<SiluMul> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& y) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, y});
    return call_silu_mul(x, y);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    static const auto op =
        c10::Dispatcher::singleton()
            .findSchemaOrThrow("npu::silu_mul_backward", "")
            .typed<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&, const at::Tensor&)>();
    const auto saved = context->get_saved_variables();
    auto [x, y] = op.call(grads[0], saved[0], saved[1]);
    return {x, y};
  }
};

at::Tensor silu_mul_autograd(const at::Tensor& x, const at::Tensor& y) {
  return SiluMul::apply(x, y);
}

TORCH_LIBRARY_IMPL(npu, Autograd, m) {
  m.impl("silu_mul", silu_mul_autograd);
}

// Under torch.autocast("npu") it runs in the lower precision.
at::Tensor silu_mul_autocast(const at::Tensor& x, const at::Tensor& y) {
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastPrivateUse1);
  const auto type = at::autocast::get_autocast_dtype(c10::kPrivateUse1);
  return call_silu_mul(at::autocast::cached_cast(type, x, c10::kPrivateUse1),
                       at::autocast::cached_cast(type, y, c10::kPrivateUse1));
}

TORCH_LIBRARY_IMPL(npu, AutocastPrivateUse1, m) {
  m.impl("silu_mul", silu_mul_autocast);
}
// [/custom]

}  // namespace
}  // namespace torch_npu
