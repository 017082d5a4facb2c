// Losses of two tensors: one MAP where every element stays, one REDUCE where they are summed or averaged, one MAP for
// the gradient. A loss is two bodies below: %l from %x, %y, %w and %p; the slope %d likewise.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/binary_cross_entropy_backward_ops.h>
#include <ATen/ops/binary_cross_entropy_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/huber_loss_backward_ops.h>
#include <ATen/ops/huber_loss_ops.h>
#include <ATen/ops/mse_loss_backward_ops.h>
#include <ATen/ops/mse_loss_ops.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/smooth_l1_loss_backward_ops.h>
#include <ATen/ops/smooth_l1_loss_ops.h>

#include "csrc/aten/dispatch/optional.h"
#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::loss_cpp {
namespace {

using at::Tensor;

#define NPU_LOSS_HEAD(name)                                               \
  "program " name                                                         \
  "(out, x, y, w; p, n)\neach:\n  %x = load x : $t\n  %y = load y : $t\n" \
  "  %p = param p : $t\n  %zero = const 0 : $t\n  %one = const 1 : $t\n  %half = const 0.5 : $t\n"
#define NPU_LOSS_TAIL "  store out, %l\n"
#define NPU_LOSS_FOLD "  %s = fold sum %l\nrow:\n  %n = param n : $t\n  %r = div %s, %n\n  store out, %r\n"
#define NPU_SLOPE(name, body)                                                   \
  "program " name                                                               \
  "(out, x, y, grad, w; p, n)\neach:\n  %x = load x : $t\n  %y = load y : $t\n" \
  "  %p = param p : $t\n  %zero = const 0 : $t\n  %one = const 1 : $t\n" body   \
  "  %n = param n : $t\n  %q = div %d, %n\n  %g = load grad : $t\n  %r = mul %q, %g\n  store out, %r\n"

struct Loss {
  const char* label;
  TypedProgram each, folded, slope;
};

#define NPU_LOSS(variable, name, value, derivative)                       \
  Loss variable {                                                         \
    "aten::" name, TypedProgram(NPU_LOSS_HEAD(name) value NPU_LOSS_TAIL), \
        TypedProgram(NPU_LOSS_HEAD(name "_fold") value NPU_LOSS_FOLD),    \
        TypedProgram(NPU_SLOPE(name "_backward", derivative))             \
  }

NPU_LOSS(g_mse, "mse_loss", "  %e = sub %x, %y\n  %l = mul %e, %e\n", "  %e = sub %x, %y\n  %d = add %e, %e\n");

// |e| < beta: e^2 / (2 beta), else |e| - beta / 2. The slope's bounds are inclusive.
NPU_LOSS(g_smooth_l1, "smooth_l1_loss",
         "  %e = sub %x, %y\n  %a = abs %e\n  %in = lt %a, %p\n  %h = mul %half, %a\n  %h2 = mul %h, %a\n"
         "  %quad = div %h2, %p\n  %hp = mul %half, %p\n  %lin = sub %a, %hp\n  %l = where %in, %quad, %lin\n",
         "  %e = sub %x, %y\n  %a = abs %e\n  %in = lt %a, %p\n  %quad = div %e, %p\n  %lin = sign %e\n"
         "  %d = where %in, %quad, %lin\n");

NPU_LOSS(g_huber, "huber_loss",
         "  %e = sub %x, %y\n  %a = abs %e\n  %in = le %a, %p\n  %h = mul %half, %a\n  %quad = mul %h, %a\n"
         "  %hp = mul %half, %p\n  %b = sub %a, %hp\n  %lin = mul %p, %b\n  %l = where %in, %quad, %lin\n",
         "  %e = sub %x, %y\n  %a = abs %e\n  %in = le %a, %p\n  %s = sign %e\n  %lin = mul %s, %p\n"
         "  %d = where %in, %e, %lin\n");

// Logarithms are cut at -100, the denominator of the slope at 1e-12, as PyTorch does.
NPU_LOSS(g_bce, "binary_cross_entropy",
         "  %cut = const -100 : $t\n  %nx = neg %x\n  %l0 = log1p %nx\n  %l1 = max %l0, %cut\n  %m0 = log %x\n"
         "  %m1 = max %m0, %cut\n  %ym = sub %y, %one\n  %u = mul %ym, %l1\n  %v = mul %y, %m1\n  %k = sub %u, %v\n"
         "  %w = load w : $t\n  %l = mul %k, %w\n",
         "  %e = sub %x, %y\n  %rest = sub %one, %x\n  %den = mul %rest, %x\n  %tiny = const 1e-12 : $t\n"
         "  %by = max %den, %tiny\n  %k = div %e, %by\n  %w = load w : $t\n  %d = mul %k, %w\n");

at::DimVector common_shape(const Tensor& self, const Tensor& target, const Tensor& weight) {
  at::DimVector shape = at::infer_size_dimvector(self.sizes(), target.sizes());
  return weight.defined() ? at::infer_size_dimvector(shape, weight.sizes()) : shape;
}

void check_floats(const Loss& loss, const Tensor& self, const Tensor& target) {
  check_same_device(loss.label, {&self, &target});
  // Integer losses and mixtures are rare: PyTorch's own kernels know the rules.
  if (!self.is_floating_point() || !target.is_floating_point()) {
    throw Unsupported(loss.label);
  }
}

void value(Loss& loss, const Tensor& out, const Tensor& self, const Tensor& target, const Tensor& weight,
           int64_t reduction, at::IntArrayRef shape, double parameter) {
  const bool each = reduction == at::Reduction::None;
  Rows rows(loss.label, shape, each ? DimMask() : DimMask().flip());
  if (each) {
    rows.add(out);
  } else {
    rows.scalar(out);
  }
  rows.add(self).add(target).add_or(weight, 1);
  const double n = reduction == at::Reduction::Mean ? static_cast<double>(c10::multiply_integers(shape)) : 1;
  const npu_dtype compute = compute_type(out, loss.label);
  if (each) {
    rows.map(loss.each.of(compute), {number(parameter), number(n)});
  } else {
    rows.reduce(loss.folded.of(compute), {number(parameter), number(n)});
  }
}

Tensor make_value(Loss& loss, const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction,
                  double parameter) {
  check_floats(loss, self, target);
  const auto shape = common_shape(self, target, weight);
  const auto options = self.options().dtype(at::result_type(self, target));
  Tensor out;
  if (reduction != at::Reduction::None) {
    out = make_empty({}, {}, options);
  } else if (self.sizes() == shape) {
    out = at::empty_like(self, options);
  } else {
    out = make_empty(shape, {}, options);
  }
  value(loss, out, self, target, weight, reduction, shape, parameter);
  return out;
}

Tensor& make_value_out(Loss& loss, const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction,
                       double parameter, Tensor& out) {
  check_floats(loss, self, target);
  if (out.scalar_type() != at::result_type(self, target)) {
    throw Unsupported(loss.label);
  }
  const auto shape = common_shape(self, target, weight);
  at::native::resize_output(out, reduction == at::Reduction::None ? at::IntArrayRef(shape) : at::IntArrayRef());
  value(loss, out, self, target, weight, reduction, shape, parameter);
  return out;
}

Tensor make_slope(Loss& loss, const Tensor& grad, const Tensor& self, const Tensor& target, const Tensor& weight,
                  int64_t reduction, double parameter) {
  check_floats(loss, self, target);
  const auto shape = common_shape(self, target, weight);
  // The mean is over the input's elements, which is PyTorch's rule also where the target broadcasts.
  const double n = reduction == at::Reduction::Mean ? static_cast<double>(self.numel()) : 1;
  const Tensor out = self.sizes() == shape ? at::empty_like(self) : make_empty(shape, {}, self.options());
  Rows(loss.label, shape, DimMask())
      .add(out)
      .add(self)
      .add(target)
      .add(grad)
      .add_or(weight, 1)
      .map(loss.slope.of(compute_type(out, loss.label)), {number(parameter), number(n)});
  return out;
}

Tensor mse(const Tensor& self, const Tensor& target, int64_t reduction) {
  return make_value(g_mse, self, target, {}, reduction, 0);
}
Tensor& mse_out(const Tensor& self, const Tensor& target, int64_t reduction, Tensor& out) {
  return make_value_out(g_mse, self, target, {}, reduction, 0, out);
}
Tensor mse_backward(const Tensor& grad, const Tensor& self, const Tensor& target, int64_t reduction) {
  return make_slope(g_mse, grad, self, target, {}, reduction, 0);
}

void check_beta(double beta) {
  TORCH_CHECK(beta >= 0, "smooth_l1_loss does not support negative values for beta.");
}
Tensor smooth_l1(const Tensor& self, const Tensor& target, int64_t reduction, double beta) {
  check_beta(beta);
  return make_value(g_smooth_l1, self, target, {}, reduction, beta);
}
Tensor& smooth_l1_out(const Tensor& self, const Tensor& target, int64_t reduction, double beta, Tensor& out) {
  check_beta(beta);
  return make_value_out(g_smooth_l1, self, target, {}, reduction, beta, out);
}
Tensor smooth_l1_backward(const Tensor& grad, const Tensor& self, const Tensor& target, int64_t reduction,
                          double beta) {
  return make_slope(g_smooth_l1, grad, self, target, {}, reduction, beta);
}

void check_delta(double delta) {
  TORCH_CHECK(delta > 0, "huber_loss does not support non-positive values for delta.");
}
Tensor huber(const Tensor& self, const Tensor& target, int64_t reduction, double delta) {
  check_delta(delta);
  return make_value(g_huber, self, target, {}, reduction, delta);
}
Tensor& huber_out(const Tensor& self, const Tensor& target, int64_t reduction, double delta, Tensor& out) {
  check_delta(delta);
  return make_value_out(g_huber, self, target, {}, reduction, delta, out);
}
Tensor huber_backward(const Tensor& grad, const Tensor& self, const Tensor& target, int64_t reduction, double delta) {
  return make_slope(g_huber, grad, self, target, {}, reduction, delta);
}

Tensor bce(const Tensor& self, const Tensor& target, const OptTensor& weight, int64_t reduction) {
  return make_value(g_bce, self, target, given(weight), reduction, 0);
}
Tensor& bce_out(const Tensor& self, const Tensor& target, const OptTensor& weight, int64_t reduction, Tensor& out) {
  return make_value_out(g_bce, self, target, given(weight), reduction, 0, out);
}
Tensor bce_backward(const Tensor& grad, const Tensor& self, const Tensor& target, const OptTensor& weight,
                    int64_t reduction) {
  return make_slope(g_bce, grad, self, target, given(weight), reduction, 0);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_native<ops::mse_loss, mse>(m);
  register_native<ops::mse_loss_out, mse_out>(m);
  register_native<ops::mse_loss_backward, mse_backward>(m);
  register_native<ops::smooth_l1_loss, smooth_l1>(m);
  register_native<ops::smooth_l1_loss_out, smooth_l1_out>(m);
  register_native<ops::smooth_l1_loss_backward, smooth_l1_backward>(m);
  register_native<ops::huber_loss, huber>(m);
  register_native<ops::huber_loss_out, huber_out>(m);
  register_native<ops::huber_loss_backward, huber_backward>(m);
  register_native<ops::binary_cross_entropy, bce>(m);
  register_native<ops::binary_cross_entropy_out, bce_out>(m);
  register_native<ops::binary_cross_entropy_backward, bce_backward>(m);
}

}  // namespace
}  // namespace torch_npu::loss_cpp
