// npu_swiglu and npu_geglu: the gated units of a transformer's feed-forward layer. Forward and backward are one MAP
// each, which reads the two halves of x where they lie.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "csrc/aten/dispatch/custom_op.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/reduction.h"
#include "table/kernels.h"

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

void swiglu_gradient(BackwardCall& call) {
  static const auto op = npu_op<Tensor(const Tensor&, const Tensor&, int64_t)>("npu::npu_swiglu_backward");
  call.give(0, op.call(call.grad(0), call.argument(0), call.value<int64_t>(1)));
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

void geglu_gradient(BackwardCall& call) {
  using Signature = Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t, int64_t, bool);
  static const auto op = npu_op<Signature>("npu::npu_geglu_backward");
  call.give(0, op.call(call.grad(0), call.argument(0), call.result(1), call.value<int64_t>(1), call.value<int64_t>(2),
                       call.value<bool>(3)));
}

TORCH_LIBRARY_FRAGMENT(npu, m) {
  define<swiglu_native, swiglu_composition>(m, "npu_swiglu(Tensor input, int dim=-1) -> Tensor", swiglu_meta,
                                            {{swiglu_gradient, {{0, places(0)}}}});
  define<swiglu_backward_native, swiglu_backward_composition>(
      m, "npu_swiglu_backward(Tensor grad, Tensor input, int dim=-1) -> Tensor", swiglu_backward_meta);
  define<geglu_native, geglu_composition>(
      m, "npu_geglu(Tensor input, int dim=-1, int approximate=1, bool activate_left=False) -> (Tensor, Tensor)",
      geglu_meta, {{geglu_gradient, {{0, places(0), places(1)}}}});
  define<geglu_backward_native, geglu_backward_composition>(
      m,
      "npu_geglu_backward(Tensor grad, Tensor input, Tensor gelu, int dim=-1, int approximate=1, "
      "bool activate_left=False) -> Tensor",
      geglu_backward_meta);
}

}  // namespace
}  // namespace torch_npu::fused_glu_cpp
