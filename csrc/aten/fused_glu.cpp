// npu_swiglu and npu_geglu: the gated units of a transformer's feed-forward layer. Forward and backward are one MAP
// each, which reads the two halves of x where they lie.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "csrc/aten/custom_op.h"
#include "csrc/aten/nest.h"
#include "csrc/aten/reduction.h"
#include "table/kernels.h"

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace torch_npu::fused_glu_cpp {
namespace {

using at::Tensor;
using Pair = std::tuple<Tensor, Tensor>;

// The dimension that is cut in two, counted from the front.
int64_t check_halves(const char* op, const Tensor& x, int64_t dim) {
  check_floating(op, "input", x);
  TORCH_CHECK(x.dim() > 0, op, ": expected input of at least one dimension, got a number");
  const int64_t d = at::maybe_wrap_dim(dim, x.dim());
  TORCH_CHECK(x.sym_size(d) % 2 == 0, op, ": expected an even size in dimension ", d, ", got ", x.sym_size(d), " of ",
              x.sym_sizes());
  return d;
}

void check_approximate(int64_t approximate) {
  TORCH_CHECK_VALUE(approximate == 0 || approximate == 1, "npu_geglu: expected approximate 0 (exact) or 1 (tanh), got ",
                    approximate);
}

Tensor empty_half(const Tensor& x, int64_t d) {
  c10::SymDimVector sizes(x.sym_sizes());
  sizes[d] = sizes[d] / 2;
  return at::empty_symint(sizes, x.options());
}

// The halves of x as operands: the second one begins `middle` elements behind the first.
struct Halves {
  const Tensor& x;
  int64_t middle;

  Halves(const Tensor& x, int64_t d, const char* label) : x(x), middle(x.size(d) / 2 * x.stride(d)) {
    if (x.is_neg()) throw Unsupported(label);
  }
  void add_to(Nest& nest, bool second_first = false) const {
    nest.with(x, x.strides(), second_first ? middle : 0).with(x, x.strides(), second_first ? 0 : middle);
  }
};

// -- npu_swiglu --

Tensor swiglu_meta(const Tensor& x, int64_t dim) {
  return empty_half(x, check_halves("npu_swiglu", x, dim));
}

Tensor swiglu_composition(const Tensor& x, int64_t dim) {
  const auto halves = x.chunk(2, check_halves("npu_swiglu", x, dim));
  return (at::silu(halves[0]) * halves[1]).contiguous();
}

Tensor swiglu_native(const Tensor& x, int64_t dim) {
  constexpr const char* label = "npu::npu_swiglu";
  const int64_t d = check_halves("npu_swiglu", x, dim);
  const Tensor out = empty_half(x, d);
  Nest nest(NPU_MAP, label, out.sizes());
  nest.with(out);
  Halves(x, d, label).add_to(nest);
  nest.run(table::swiglu.of(compute_type(x, label)));
  return out;
}

Tensor swiglu_backward_meta(const Tensor&, const Tensor& x, int64_t) {
  return at::empty_symint(x.sym_sizes(), x.options());
}

Tensor swiglu_backward_composition(const Tensor& grad, const Tensor& x, int64_t dim) {
  const auto halves = x.chunk(2, dim);
  const Tensor g = grad * halves[1];
  Tensor gate;
  if (c10::GradMode::is_enabled()) {  // silu_backward has no derivative
    const Tensor s = halves[0].sigmoid();
    gate = g * s * (1 + halves[0] * (1 - s));
  } else {
    gate = at::silu_backward(g, halves[0]);
  }
  return at::cat({gate, grad * at::silu(halves[0])}, dim);
}

Tensor swiglu_backward_native(const Tensor& grad, const Tensor& x, int64_t dim) {
  constexpr const char* label = "npu::npu_swiglu_backward";
  const int64_t d = at::maybe_wrap_dim(dim, x.dim());
  check_same_device(label, {&grad, &x});
  const Tensor out = at::empty(x.sizes(), x.options()), g = grad.resolve_neg();
  Nest nest(NPU_MAP, label, g.sizes());
  Halves(out, d, label).add_to(nest);
  nest.with(g);
  Halves(x, d, label).add_to(nest);
  nest.run(table::swiglu_backward.of(compute_type(x, label)));
  return out;
}

struct Swiglu : torch::autograd::Function<Swiglu> {
  static Tensor forward(AutogradContext* context, const Tensor& x, int64_t dim) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x});
    context->saved_data["dim"] = dim;
    static const auto op = npu_op<Tensor(const Tensor&, int64_t)>("npu::npu_swiglu");
    return op.call(x, dim);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    static const auto op = npu_op<Tensor(const Tensor&, const Tensor&, int64_t)>("npu::npu_swiglu_backward");
    const Tensor x = context->get_saved_variables()[0];
    const int64_t dim = context->saved_data["dim"].toInt();
    return {c10::GradMode::is_enabled() ? swiglu_backward_composition(grads[0], x, dim) : op.call(grads[0], x, dim),
            Tensor()};
  }
};

Tensor swiglu_autograd(const Tensor& x, int64_t dim) {
  return in_functorch() ? swiglu_composition(x, dim) : Swiglu::apply(x, dim);
}

// -- npu_geglu --

Pair geglu_meta(const Tensor& x, int64_t dim, int64_t approximate, bool) {
  check_approximate(approximate);
  const int64_t d = check_halves("npu_geglu", x, dim);
  return {empty_half(x, d), empty_half(x, d)};
}

const char* gelu_kind(int64_t approximate) {
  return approximate == 1 ? "tanh" : "none";
}

Pair geglu_composition(const Tensor& x, int64_t dim, int64_t approximate, bool left) {
  check_approximate(approximate);
  const auto halves = x.chunk(2, check_halves("npu_geglu", x, dim));
  const Tensor gelu = at::gelu(halves[left ? 0 : 1], gelu_kind(approximate));
  return {(halves[left ? 1 : 0] * gelu).contiguous(), gelu.detach().contiguous()};
}

Pair geglu_native(const Tensor& x, int64_t dim, int64_t approximate, bool left) {
  constexpr const char* label = "npu::npu_geglu";
  check_approximate(approximate);
  const int64_t d = check_halves("npu_geglu", x, dim);
  const Tensor out = empty_half(x, d), gelu = empty_half(x, d);
  Nest nest(NPU_MAP, label, out.sizes());
  nest.with(out).with(gelu);
  Halves(x, d, label).add_to(nest, left);
  nest.run((approximate ? table::geglu_tanh : table::geglu).of(compute_type(x, label)));
  return {out, gelu};
}

Tensor geglu_backward_meta(const Tensor&, const Tensor& x, const Tensor&, int64_t, int64_t, bool) {
  return at::empty_symint(x.sym_sizes(), x.options());
}

Tensor geglu_backward_composition(const Tensor& grad, const Tensor& x, const Tensor&, int64_t dim, int64_t approximate,
                                  bool left) {
  const auto halves = x.chunk(2, dim);
  const Tensor &gate = halves[left ? 0 : 1], &line = halves[left ? 1 : 0];
  // From the gate and not from the saved gelu, so that it can be differentiated again.
  const Tensor grad_line = grad * at::gelu(gate, gelu_kind(approximate));
  const Tensor grad_gate = at::gelu_backward(grad * line, gate, gelu_kind(approximate));
  return left ? at::cat({grad_gate, grad_line}, dim) : at::cat({grad_line, grad_gate}, dim);
}

Tensor geglu_backward_native(const Tensor& grad, const Tensor& x, const Tensor& gelu, int64_t dim, int64_t approximate,
                             bool left) {
  constexpr const char* label = "npu::npu_geglu_backward";
  const int64_t d = at::maybe_wrap_dim(dim, x.dim());
  check_same_device(label, {&grad, &x, &gelu});
  const Tensor out = at::empty(x.sizes(), x.options()), g = grad.resolve_neg();
  Nest nest(NPU_MAP, label, g.sizes());
  Halves(out, d, label).add_to(nest, left);
  nest.with(g);
  Halves(x, d, label).add_to(nest, left);
  nest.with(gelu);
  nest.run((approximate ? table::geglu_tanh_backward : table::geglu_backward).of(compute_type(x, label)));
  return out;
}

using GegluSignature = Pair(const Tensor&, int64_t, int64_t, bool);
using GegluBackwardSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t, int64_t, bool);

struct Geglu : torch::autograd::Function<Geglu> {
  static variable_list forward(AutogradContext* context, const Tensor& x, int64_t dim, int64_t approximate, bool left) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto op = npu_op<GegluSignature>("npu::npu_geglu");
    auto [out, gelu] = op.call(x, dim, approximate, left);
    context->save_for_backward({x, gelu});
    context->mark_non_differentiable({gelu});
    context->set_materialize_grads(false);  // no zeros for gelu
    context->saved_data["dim"] = dim;
    context->saved_data["approximate"] = approximate;
    context->saved_data["left"] = left;
    return {out, gelu};
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    static const auto op = npu_op<GegluBackwardSignature>("npu::npu_geglu_backward");
    if (!grads[0].defined()) return variable_list(4);
    const auto saved = context->get_saved_variables();
    const int64_t dim = context->saved_data["dim"].toInt(), approximate = context->saved_data["approximate"].toInt();
    const bool left = context->saved_data["left"].toBool();
    return {c10::GradMode::is_enabled()
                ? geglu_backward_composition(grads[0], saved[0], saved[1], dim, approximate, left)
                : op.call(grads[0], saved[0], saved[1], dim, approximate, left),
            Tensor(), Tensor(), Tensor()};
  }
};

Pair geglu_autograd(const Tensor& x, int64_t dim, int64_t approximate, bool left) {
  if (in_functorch()) return geglu_composition(x, dim, approximate, left);
  const auto out = Geglu::apply(x, dim, approximate, left);
  return {out[0], out[1]};
}

TORCH_LIBRARY_FRAGMENT(npu, m) {
  m.def("npu_swiglu(Tensor input, int dim=-1) -> Tensor");
  m.def("npu_swiglu_backward(Tensor grad, Tensor input, int dim=-1) -> Tensor");
  m.def("npu_geglu(Tensor input, int dim=-1, int approximate=1, bool activate_left=False) -> (Tensor, Tensor)");
  m.def(
      "npu_geglu_backward(Tensor grad, Tensor input, Tensor gelu, int dim=-1, int approximate=1, "
      "bool activate_left=False) -> Tensor");
}

TORCH_LIBRARY_IMPL(npu, PrivateUse1, m) {
  m.impl("npu_swiglu", Either<swiglu_native, swiglu_composition>::call);
  m.impl("npu_swiglu_backward", Either<swiglu_backward_native, swiglu_backward_composition>::call);
  m.impl("npu_geglu", Either<geglu_native, geglu_composition>::call);
  m.impl("npu_geglu_backward", Either<geglu_backward_native, geglu_backward_composition>::call);
}

TORCH_LIBRARY_IMPL(npu, CompositeExplicitAutograd, m) {
  m.impl("npu_swiglu", swiglu_composition);
  m.impl("npu_swiglu_backward", swiglu_backward_composition);
  m.impl("npu_geglu", geglu_composition);
  m.impl("npu_geglu_backward", geglu_backward_composition);
}

TORCH_LIBRARY_IMPL(npu, Meta, m) {
  m.impl("npu_swiglu", swiglu_meta);
  m.impl("npu_swiglu_backward", swiglu_backward_meta);
  m.impl("npu_geglu", geglu_meta);
  m.impl("npu_geglu_backward", geglu_backward_meta);
}

TORCH_LIBRARY_IMPL(npu, Autograd, m) {
  m.impl("npu_swiglu", swiglu_autograd);
  m.impl("npu_geglu", geglu_autograd);
}

TORCH_LIBRARY_IMPL(npu, FuncTorchBatched, m) {
  m.impl("npu_swiglu", swiglu_composition);
  m.impl("npu_geglu", geglu_composition);
}

}  // namespace
}  // namespace torch_npu::fused_glu_cpp
