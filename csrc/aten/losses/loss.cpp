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

// The programs of one loss, from its value for x, y, w and the parameter p, and from its slope along x.
struct Loss {
  const char* label;
  TypedProgram each, folded, slope;

  Loss(const char* label, const std::string& value, const std::string& derivative)
      : label(label),
        each(head(label, "", "w") + "  out = " + value),
        folded(head(label, "_fold", "w") + "  %s = fold(sum, " + value + ")\nrow:\n  out = %s / n"),
        slope(head(label, "_backward", "grad, w") + "  out = (" + derivative + ") / n * grad") {}

 private:
  static std::string head(const std::string& label, const std::string& suffix, const std::string& last) {
    return "formula " + label.substr(6) + suffix + "(out, x, y, " + last + "; p, n)\neach:\n";
  }
};

Loss g_mse("aten::mse_loss", "(x - y) * (x - y)", "(x - y) + (x - y)");

// |e| < beta: e^2 / (2 beta), else |e| - beta / 2. The slope's bounds are inclusive.
Loss g_smooth_l1("aten::smooth_l1_loss",
                 "where(abs(x - y) < p, 0.5 * abs(x - y) * abs(x - y) / p, abs(x - y) - 0.5 * p)",
                 "where(abs(x - y) < p, (x - y) / p, sign(x - y))");

Loss g_huber("aten::huber_loss", "where(abs(x - y) <= p, 0.5 * abs(x - y) * abs(x - y), p * (abs(x - y) - 0.5 * p))",
             "where(abs(x - y) <= p, x - y, sign(x - y) * p)");

// Logarithms are cut at -100, the denominator of the slope at 1e-12, as PyTorch does.
Loss g_bce("aten::binary_cross_entropy", "((y - 1) * max(log1p(-x), -100) - y * max(log(x), -100)) * w",
           "(x - y) / max((1 - x) * x, 1e-12) * w");

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
