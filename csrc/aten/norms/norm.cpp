// Layer, group and RMS norm. Forward is one REDUCE; backward is one for the input and one for weight and bias.
// Group norm is layer norm over [batch, group, channel, position] whose weight lies along group and channel.
#include <ATen/TensorOperators.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/_fused_rms_norm_backward_ops.h>
#include <ATen/ops/_fused_rms_norm_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_group_norm_backward_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>

#include "csrc/aten/dispatch/optional.h"
#include "csrc/aten/dispatch/reduction.h"
#include "csrc/aten/norms/rms_norm.h"

namespace torch_npu::norm_cpp {
namespace {

using at::Tensor;

TypedProgram k_norm(R"(
formula layer_norm(out, mean, rstd, x, weight, bias; eps, n)
each:
  %w = fold(welford, x)
row:
  %mean = get(%w, 0)
  %rstd = rsqrt(get(%w, 1) / n + eps)
  mean = %mean
  rstd = %rstd
each:
  out = (x - %mean) * %rstd * weight + bias
)");

TypedProgram k_norm_backward(R"(
formula layer_norm_backward(out, grad, x, mean, rstd, weight; n)
row:
  %mean = mean
  %rstd = rstd
each:
  %gw = grad * weight
  %a = fold(sum, %gw)
  %b = fold(sum, (x - %mean) * %gw)
row:
  %shift = %a / n * %rstd
  %slope = %b / n * (%rstd * %rstd * %rstd)
each:
  out = grad * weight * %rstd - (x - %mean) * %slope - %shift
)");

// Sums of the gradient, and of the gradient times the normalised input. Layer norm's rows are the weight's elements,
// and every point of a row has statistics of its own; group norm's are channels of one sample, which share theirs.
TypedProgram k_norm_weight(R"(
formula layer_norm_weight_grad(scaled, plain, grad, x, mean, rstd)
each:
  %a = fold(sum, grad * ((x - mean) * rstd))
  %b = fold(sum, grad)
row:
  scaled = %a
  plain = %b
)");

// The gradients of group norm: one pass over gradient and input for the sums of every channel, from which those of
// weight and bias and the coefficients of the input's follow, and one pass for the input.
TypedProgram k_group_sums(R"(
formula group_norm_sums(scaled, plain, grad, x, mean, rstd)
row:
  %mean = mean
  %rstd = rstd
each:
  %a = fold(sum, grad * ((x - %mean) * %rstd))
  %b = fold(sum, grad)
row:
  scaled = %a
  plain = %b
)");

TypedProgram k_group_parameters(R"(
formula group_norm_parameters(weight, bias, scaled, plain)
each:
  %as = fold(sum, scaled)
  %bs = fold(sum, plain)
row:
  weight = %as
  bias = %bs
)");

TypedProgram k_group_coefficients(R"(
formula group_norm_coefficients(slope, shift, scaled, plain, weight, rstd; n)
row:
  %rstd = rstd
each:
  %as = fold(sum, scaled * weight)
  %bs = fold(sum, plain * weight)
row:
  slope = %as / n * (%rstd * %rstd)
  shift = %bs / n * %rstd
)");

TypedProgram k_group_input(R"(
formula group_norm_input_grad(out, grad, x, mean, rstd, weight, slope, shift)
each:
  out = grad * (weight * rstd) - (x - mean) * slope - shift
)");

// PyTorch's CPU kernels keep statistics in the input's type, unless a half input meets float weights.
at::ScalarType stat_type(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  const Tensor& other = weight.defined() ? weight : bias;
  const bool mixed =
      at::isReducedFloatingType(input.scalar_type()) && other.defined() && other.scalar_type() == at::kFloat;
  return mixed ? at::kFloat : input.scalar_type();
}

void check_types(const Tensor& input, const Tensor& weight, const char* label) {
  const bool fits = !weight.defined() || weight.scalar_type() == input.scalar_type() ||
                    (at::isReducedFloatingType(input.scalar_type()) && weight.scalar_type() == at::kFloat);
  if (!fits) {
    throw Unsupported(label);  // for PyTorch's own rules and sentences
  }
}

std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& input, at::IntArrayRef normalized_shape,
                                              const OptTensor& weight_opt, const OptTensor& bias_opt, double eps) {
  const char* label = "aten::native_layer_norm";
  const Tensor weight = given(weight_opt), bias = given(bias_opt);
  const auto dims = static_cast<int64_t>(normalized_shape.size());
  const auto [m, n] = at::native::_check_layer_norm_inputs(input, normalized_shape, weight, bias);
  check_same_device(label, {&input, &weight, &bias});
  check_types(input, weight, label);
  check_types(input, bias, label);
  const Tensor out = at::empty_like(input, at::MemoryFormat::Contiguous);
  at::DimVector shape(input.sizes());
  for (size_t d = shape.size() - normalized_shape.size(); d < shape.size(); ++d) {
    shape[d] = 1;
  }
  const auto options = input.options().dtype(stat_type(input, weight, bias));
  const Tensor mean = make_empty(shape, {}, options);
  const Tensor rstd = make_empty(shape, {}, options);
  Rows(label, input.sizes(), last_dims(input, dims))
      .add(out)
      .add(mean)
      .add(rstd)
      .add(input)
      .add_or(weight, 1)
      .add_or(bias, 0)
      .reduce(k_norm.of(compute_type(input, label)), {number(eps), number(static_cast<double>(n))});
  return {out, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(const Tensor& grad, const Tensor& input,
                                                       at::IntArrayRef normalized_shape, const Tensor& mean,
                                                       const Tensor& rstd, const OptTensor& weight_opt,
                                                       const OptTensor&, std::array<bool, 3> wanted) {
  const char* label = "aten::native_layer_norm_backward";
  const Tensor weight = given(weight_opt);
  check_types(input, weight, label);
  const npu_dtype compute = compute_type(input, label);
  const auto dims = static_cast<int64_t>(normalized_shape.size());
  Tensor grad_input, grad_weight, grad_bias;
  if (wanted[0]) {
    grad_input = at::empty_like(input, at::MemoryFormat::Contiguous);
    Rows(label, input.sizes(), last_dims(input, dims))
        .add(grad_input)
        .add(grad)
        .add(input)
        .add(mean)
        .add(rstd)
        .add_or(weight, 1)
        .reduce(k_norm_backward.of(compute), {number(static_cast<double>(c10::multiply_integers(normalized_shape)))});
  }
  if (wanted[1] || wanted[2]) {
    const auto options = weight.defined() ? weight.options() : input.options();
    grad_weight = make_empty(normalized_shape, {}, options);
    grad_bias = make_empty(normalized_shape, {}, options);
    Rows(label, input.sizes(), first_dims(input.dim() - dims))
        .add(grad_weight)
        .add(grad_bias)
        .add(grad)
        .add(input)
        .add(mean)
        .add(rstd)
        .reduce(k_norm_weight.of(compute));
  }
  return {grad_input, wanted[1] ? grad_weight : Tensor(), wanted[2] ? grad_bias : Tensor()};
}

std::tuple<Tensor, Tensor, Tensor> group_norm(const Tensor& input, const OptTensor& weight_opt,
                                              const OptTensor& bias_opt, int64_t n, int64_t c, int64_t hw,
                                              int64_t group, double eps) {
  const char* label = "aten::native_group_norm";
  const Tensor weight = given(weight_opt), bias = given(bias_opt);
  check_same_device(label, {&input, &weight, &bias});
  check_types(input, weight, label);
  check_types(input, bias, label);
  // Shapes that do not fit get PyTorch's sentence from its own kernel.
  const bool fits = group > 0 && c % group == 0 && input.numel() == n * c * hw &&
                    (!weight.defined() || (weight.dim() == 1 && weight.numel() == c)) &&
                    (!bias.defined() || (bias.dim() == 1 && bias.numel() == c));
  if (!fits) {
    throw Unsupported(label);
  }
  const int64_t d = c / group;
  const Tensor x = input.reshape({n, group, d, hw});
  const Tensor out = at::empty_like(input, at::MemoryFormat::Contiguous);
  const auto options = input.options().dtype(stat_type(input, weight, bias));
  const Tensor mean = make_empty({n, group}, {}, options);
  const Tensor rstd = make_empty({n, group}, {}, options);
  const auto per_channel = [&](const Tensor& t) { return t.defined() ? t.reshape({group, d, 1}) : t; };
  Rows(label, x.sizes(), 0b1100)
      .add(out.view(x.sizes()))
      .reduced(mean)
      .reduced(rstd)
      .add(x)
      .add_or(per_channel(weight), 1)
      .add_or(per_channel(bias), 0)
      .reduce(k_norm.of(compute_type(input, label)), {number(eps), number(static_cast<double>(d * hw))});
  return {out, mean, rstd};
}

std::tuple<Tensor, Tensor, Tensor> group_norm_backward(const Tensor& grad_in, const Tensor& input,
                                                       const Tensor& mean_in, const Tensor& rstd_in,
                                                       const std::optional<Tensor>& weight, int64_t n, int64_t c,
                                                       int64_t hw, int64_t group, std::array<bool, 3> wanted) {
  const char* label = "aten::native_group_norm_backward";
  const npu_dtype compute = compute_type(input, label);
  const int64_t d = c / group;
  const at::DimVector space = {n, group, d, hw};
  const Tensor grad = grad_in.reshape(space), x = input.reshape(space);
  const Tensor mean = mean_in.reshape({n, group, 1, 1}), rstd = rstd_in.reshape({n, group, 1, 1});
  const Tensor gamma = weight && weight->defined() ? weight->reshape({group, d, 1}) : Tensor();
  const auto sums = input.options().dtype(compute == NPU_F64 ? at::kDouble : at::kFloat);
  const Tensor scaled = make_empty({n, group, d, 1}, {}, sums), plain = make_empty({n, group, d, 1}, {}, sums);
  Rows(label, space, 0b1000)
      .add(scaled)
      .add(plain)
      .add(grad)
      .add(x)
      .add(mean)
      .add(rstd)
      .reduce(k_group_sums.of(compute));
  Tensor grad_input, grad_weight, grad_bias;
  if (wanted[0]) {
    const Tensor slope = make_empty({n, group, 1, 1}, {}, sums), shift = make_empty({n, group, 1, 1}, {}, sums);
    Rows(label, scaled.sizes(), 0b0100)
        .add(slope)
        .add(shift)
        .add(scaled)
        .add(plain)
        .add_or(gamma, 1)
        .add(rstd)
        .reduce(k_group_coefficients.of(compute), {number(static_cast<double>(d * hw))});
    grad_input = at::empty_like(input, at::MemoryFormat::Contiguous);
    Rows(label, space, {})
        .add(grad_input.view(space))
        .add(grad)
        .add(x)
        .add(mean)
        .add(rstd)
        .add_or(gamma, 1)
        .add(slope)
        .add(shift)
        .map(k_group_input.of(compute));
  }
  if (wanted[1] || wanted[2]) {
    const auto options = gamma.defined() ? gamma.options() : input.options();
    grad_weight = make_empty({c}, {}, options);
    grad_bias = make_empty({c}, {}, options);
    Rows(label, scaled.sizes(), 0b0001)
        .add(grad_weight.view({group, d, 1}))
        .add(grad_bias.view({group, d, 1}))
        .add(scaled)
        .add(plain)
        .reduce(k_group_parameters.of(compute));
  }
  return {grad_input, wanted[1] ? grad_weight : Tensor(), wanted[2] ? grad_bias : Tensor()};
}

std::tuple<Tensor, Tensor> fused_rms_norm(const Tensor& input, at::IntArrayRef normalized_shape,
                                          const OptTensor& weight_opt, std::optional<double> eps) {
  const char* label = "aten::_fused_rms_norm";
  const Tensor weight = given(weight_opt);
  at::native::_check_rms_norm_inputs_symint(input, c10::fromIntArrayRefSlow(normalized_shape), weight);
  check_same_device(label, {&input, &weight});
  if (!at::isFloatingType(input.scalar_type())) {
    throw Unsupported(label);
  }
  // The default is the machine epsilon of the type that PyTorch computes in.
  const bool wide = input.scalar_type() == at::kDouble;
  const double least = wide ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
  const auto dims = static_cast<int64_t>(normalized_shape.size());
  auto [out, rstd, sum] = rms_norm::forward(label, input, Tensor(), weight, dims, eps.value_or(least));
  return {out, rstd};
}

// The CPU has no kernel of this op, so the usual fallback would find none: where the driver cannot run the command, the
// gradient is put together from plain ops.
std::tuple<Tensor, Tensor> fused_rms_norm_backward(const Tensor& grad, const Tensor& input,
                                                   at::IntArrayRef normalized_shape, const Tensor& rstd,
                                                   const OptTensor& weight_opt, std::array<bool, 2> wanted) {
  const Tensor weight = given(weight_opt);
  const auto dims = static_cast<int64_t>(normalized_shape.size());
  try {
    return rms_norm::backward("aten::_fused_rms_norm_backward", grad, Tensor(), input, rstd, weight, dims, wanted);
  } catch (const Unsupported&) {
    return rms_norm::backward_composition(grad, Tensor(), input, rstd, weight, dims, wanted);
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_native<ops::native_layer_norm, layer_norm>(m);
  register_native<ops::native_layer_norm_backward, layer_norm_backward>(m);
  register_native<ops::native_group_norm, group_norm>(m);
  register_native<ops::native_group_norm_backward, group_norm_backward>(m);
  register_native<ops::_fused_rms_norm, fused_rms_norm>(m);
  register_function(m, "aten::_fused_rms_norm_backward", fused_rms_norm_backward);
}

}  // namespace
}  // namespace torch_npu::norm_cpp
