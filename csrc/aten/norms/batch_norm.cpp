// Batch norm: one REDUCE per channel that computes the statistics, updates the running ones and normalises; one MAP
// in evaluation; one REDUCE for the gradient.
#include <ATen/ops/_batch_norm_with_update_ops.h>
#include <ATen/ops/_native_batch_norm_legit_ops.h>
#include <ATen/ops/batch_norm_backward_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>

#include "csrc/aten/dispatch/optional.h"
#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::batch_norm_cpp {
namespace {

using at::Tensor;
using Three = std::tuple<Tensor, Tensor, Tensor>;

TypedProgram k_train(R"(
formula batch_norm(out, mean, invstd, x, weight, bias; eps, n, momentum, unbiased)
each:
  %w = fold(welford, x)
row:
  %mean = get(%w, 0)
  %invstd = rsqrt(get(%w, 1) / n + eps)
  mean = %mean
  invstd = %invstd
each:
  out = (x - %mean) * %invstd * weight + bias
)");

TypedProgram k_train_running(R"(
formula batch_norm_running(out, mean, invstd, x, weight, bias, running_mean, running_var; eps, n, momentum, unbiased)
each:
  %w = fold(welford, x)
row:
  %mean = get(%w, 0)
  %m2 = get(%w, 1)
  %invstd = rsqrt(%m2 / n + eps)
  mean = %mean
  invstd = %invstd
  running_mean = running_mean * (1 - momentum) + %mean * momentum
  running_var = running_var * (1 - momentum) + %m2 / unbiased * momentum
each:
  out = (x - %mean) * %invstd * weight + bias
)");

TypedProgram k_eval(R"(
formula batch_norm_eval(out, mean, var, x, weight, bias; eps)
each:
  out = (x - mean) * rsqrt(var + eps) * weight + bias
)");

// `stat` is the inverse deviation in training and the running variance in evaluation.
std::string backward_text(bool train, bool with_input) {
  std::string text = with_input ? "formula batch_norm_backward(" : "formula batch_norm_weight_grad(";
  text += "weight_grad, bias_grad, grad, x, mean, stat, weight";
  text += with_input ? ", out; n, eps)" : "; n, eps)";
  text += std::string("\nrow:\n  %mean = mean\n  %invstd = ") + (train ? "stat" : "rsqrt(stat + eps)");
  text += R"(
each:
  %a = fold(sum, grad)
  %b = fold(sum, grad * (x - %mean))
row:
  bias_grad = %a
  %wg = %b * %invstd
  weight_grad = %wg
)";
  if (!with_input) return text;
  return text + (train ? R"(
  %am = %a / n
  %k = %wg / n * %invstd
  %scale = %invstd * weight
each:
  out = (grad - %am - (x - %mean) * %k) * %scale
)"
                       : R"(
  %scale = %invstd * weight
each:
  out = grad * %scale
)");
}

TypedProgram k_backward_train(backward_text(true, true)), k_backward_eval(backward_text(false, true));
TypedProgram k_weight_train(backward_text(true, false)), k_weight_eval(backward_text(false, false));

// Every dimension but the channels'.
DimMask all_but_channels(const Tensor& input) {
  DimMask mask;
  for (int64_t d = 0; d < input.dim(); ++d) {
    mask[d] = d != 1;
  }
  return mask;
}

Rows& channel(Rows& rows, const Tensor& tensor, double otherwise) {
  return tensor.defined() ? rows.reduced(tensor) : rows.number(otherwise);
}

// As PyTorch's CPU kernels: in the input's type, unless a half input meets float parameters.
at::ScalarType stat_type(const Tensor& input, std::initializer_list<const Tensor*> parameters) {
  for (const Tensor* parameter : parameters) {
    if (parameter->defined() && parameter->scalar_type() != input.scalar_type()) {
      return at::kFloat;
    }
  }
  return input.scalar_type();
}

void check(const Tensor& input, std::initializer_list<const Tensor*> parameters, const char* label) {
  if (input.dim() < 2 || !at::isFloatingType(input.scalar_type())) {
    throw Unsupported(label);
  }
  for (const Tensor* parameter : parameters) {
    const bool fits = !parameter->defined() ||
                      (parameter->dim() == 1 && parameter->size(0) == input.size(1) &&
                       (parameter->scalar_type() == input.scalar_type() || parameter->scalar_type() == at::kFloat));
    if (!fits) {
      throw Unsupported(label);
    }
  }
}

void forward(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
             const Tensor& running_var, bool train, double momentum, double eps, const Tensor& out,
             const Tensor& save_mean, const Tensor& save_invstd, const char* label) {
  const npu_dtype compute = compute_type(input, label);
  Rows rows(label, input.sizes(), all_but_channels(input));
  rows.add(out);
  if (!train) {
    rows.reduced(running_mean).reduced(running_var).add(input);
    channel(channel(rows, weight, 1), bias, 0).map(k_eval.of(compute), {number(eps)});
    return;
  }
  rows.reduced(save_mean).reduced(save_invstd).add(input);
  channel(channel(rows, weight, 1), bias, 0);
  const bool running = running_mean.defined();
  if (running) {
    rows.reduced(running_mean).reduced(running_var);
  }
  const double n = static_cast<double>(input.numel()) / static_cast<double>(input.size(1));
  rows.reduce((running ? k_train_running : k_train).of(compute),
              {number(eps), number(n), number(momentum), number(n - 1)});
}

Three batch_norm(const Tensor& input, const OptTensor& weight_opt, const OptTensor& bias_opt,
                 const OptTensor& running_mean_opt, const OptTensor& running_var_opt, bool train, double momentum,
                 double eps) {
  const char* label = "aten::native_batch_norm";
  const Tensor weight = given(weight_opt), bias = given(bias_opt);
  const Tensor running_mean = given(running_mean_opt), running_var = given(running_var_opt);
  check_same_device(label, {&input, &weight, &bias, &running_mean, &running_var});
  check(input, {&weight, &bias, &running_mean, &running_var}, label);
  if (running_mean.defined() != running_var.defined() || (!train && !running_mean.defined()) || input.numel() == 0) {
    throw Unsupported(label);
  }
  const auto type = stat_type(input, {&weight, &bias, &running_mean, &running_var});
  const Tensor out = at::empty_like(input, input.suggest_memory_format());
  const int64_t channels = train ? input.size(1) : 0;
  const Tensor mean = make_empty({channels}, {}, input.options().dtype(type));
  const Tensor invstd = make_empty({channels}, {}, input.options().dtype(type));
  forward(input, weight, bias, running_mean, running_var, train, momentum, eps, out, mean, invstd, label);
  return {out, mean, invstd};
}

Three batch_norm_legit(const Tensor& input, const OptTensor& weight, const OptTensor& bias, Tensor& running_mean,
                       Tensor& running_var, bool train, double momentum, double eps) {
  return batch_norm(input, weight, bias, running_mean, running_var, train, momentum, eps);
}

Three batch_norm_no_stats(const Tensor& input, const OptTensor& weight, const OptTensor& bias, bool train,
                          double momentum, double eps) {
  return batch_norm(input, weight, bias, {}, {}, train, momentum, eps);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm_with_update(const Tensor& input, const OptTensor& weight,
                                                                  const OptTensor& bias, Tensor& running_mean,
                                                                  Tensor& running_var, double momentum, double eps) {
  auto [out, mean, invstd] = batch_norm(input, weight, bias, running_mean, running_var, true, momentum, eps);
  return {out, mean, invstd, make_empty({0}, {}, input.options().dtype(at::kByte))};
}

Three batch_norm_backward(const Tensor& grad, const Tensor& input, const OptTensor& weight_opt,
                          const OptTensor& running_mean, const OptTensor& running_var, const OptTensor& save_mean,
                          const OptTensor& save_invstd, bool train, double eps, std::array<bool, 3> wanted) {
  const char* label = "aten::native_batch_norm_backward";
  const Tensor weight = given(weight_opt);
  const Tensor mean = given(train ? save_mean : running_mean);
  const Tensor stat = given(train ? save_invstd : running_var);
  check(input, {&weight, &mean, &stat}, label);
  if (!mean.defined() || !stat.defined() || input.numel() == 0) {
    throw Unsupported(label);
  }
  const auto options = weight.defined() ? weight.options() : input.options();
  const Tensor grad_weight = make_empty({input.size(1)}, {}, options);
  const Tensor grad_bias = make_empty({input.size(1)}, {}, options);
  Tensor grad_input;
  Rows rows(label, input.sizes(), all_but_channels(input));
  rows.reduced(grad_weight).reduced(grad_bias).add(grad).add(input).reduced(mean).reduced(stat);
  channel(rows, weight, 1);
  TypedProgram* program = train ? &k_weight_train : &k_weight_eval;
  if (wanted[0]) {
    grad_input = at::empty_like(input, input.suggest_memory_format());
    rows.add(grad_input);
    program = train ? &k_backward_train : &k_backward_eval;
  }
  const double n = static_cast<double>(input.numel()) / static_cast<double>(input.size(1));
  rows.reduce(program->of(compute_type(input, label)), {number(n), number(eps)});
  return {grad_input, wanted[1] ? grad_weight : Tensor(), wanted[2] ? grad_bias : Tensor()};
}

Three batch_norm_backward_reserve(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                  const OptTensor& running_mean, const OptTensor& running_var,
                                  const OptTensor& save_mean, const OptTensor& save_invstd, bool train, double eps,
                                  std::array<bool, 3> wanted, const Tensor&) {
  return batch_norm_backward(grad, input, weight, running_mean, running_var, save_mean, save_invstd, train, eps,
                             wanted);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_native<ops::native_batch_norm, batch_norm>(m);
  register_native<ops::_native_batch_norm_legit, batch_norm_legit>(m);
  register_native<ops::_native_batch_norm_legit_no_stats, batch_norm_no_stats>(m);
  register_native<ops::_batch_norm_with_update, batch_norm_with_update>(m);
  register_native<ops::native_batch_norm_backward, batch_norm_backward>(m);
  register_native<ops::batch_norm_backward, batch_norm_backward_reserve>(m);
}

}  // namespace
}  // namespace torch_npu::batch_norm_cpp
