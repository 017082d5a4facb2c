// The parts of torch.nn.SyncBatchNorm, which PyTorch has on GPUs only: statistics of one process, their union over all,
// and the two halves of the gradient. In terms of other ops; statistics in float for 16-bit inputs.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include "csrc/aten/dispatch/optional.h"
#include "csrc/aten/dispatch/registration.h"

namespace torch_npu::sync_batch_norm_cpp {
namespace {

using at::Tensor;

bool present(const OptTensor& tensor) {
  return tensor && tensor->defined();
}

at::ScalarType stat_type(const Tensor& input) {
  return at::isReducedFloatingType(input.scalar_type()) ? at::kFloat : input.scalar_type();
}

// Every dimension but the channels'.
at::DimVector all_but_channels(const Tensor& input) {
  at::DimVector dims;
  for (int64_t d = 0; d < input.dim(); ++d) {
    if (d != 1) dims.push_back(d);
  }
  return dims;
}

// A value per channel, shaped to broadcast against `input`.
Tensor per_channel(const Tensor& values, const Tensor& input) {
  at::DimVector shape(input.dim(), 1);
  shape[1] = -1;
  return values.to(stat_type(input)).reshape(shape);
}

std::tuple<Tensor, Tensor> stats(const Tensor& input, double eps) {
  const Tensor wide = input.to(stat_type(input));
  const at::DimVector dims = all_but_channels(input);
  const Tensor var = wide.var(dims, /*unbiased=*/false);
  return {wide.mean(dims), (var + eps).rsqrt()};
}

Tensor elemt(const Tensor& input, const OptTensor& weight, const OptTensor& bias, const Tensor& mean,
             const Tensor& invstd, double) {
  Tensor out = (input.to(stat_type(input)) - per_channel(mean, input)) * per_channel(invstd, input);
  if (present(weight)) out = out * per_channel(*weight, input);
  if (present(bias)) out = out + per_channel(*bias, input);
  return out.to(input.scalar_type());
}

Tensor& elemt_out(const Tensor& input, const OptTensor& weight, const OptTensor& bias, const Tensor& mean,
                  const Tensor& invstd, double eps, Tensor& out) {
  out.resize_(input.sizes());
  return out.copy_(elemt(input, weight, bias, mean, invstd, eps));
}

// Row i of mean and invstd comes from process i, which saw counts[i] elements per channel.
std::tuple<Tensor, Tensor> gather_stats_with_counts(const Tensor&, const Tensor& mean, const Tensor& invstd,
                                                    const OptTensor& running_mean, const OptTensor& running_var,
                                                    double momentum, double eps, const Tensor& counts) {
  const Tensor weight = counts.to(mean.scalar_type()).reshape({-1, 1});
  const Tensor total = weight.sum();
  const Tensor all_mean = (mean * weight).sum(0) / total;
  const Tensor apart = mean - all_mean;
  const Tensor squares = ((invstd.reciprocal().square() - eps + apart.square()) * weight).sum(0);
  if (present(running_mean)) {
    running_mean->copy_(*running_mean * (1 - momentum) + all_mean * momentum);
  }
  if (present(running_var)) {
    running_var->copy_(*running_var * (1 - momentum) + squares / (total - 1) * momentum);
  }
  return {all_mean, (squares / total + eps).rsqrt()};
}

std::tuple<Tensor, Tensor> gather_stats(const Tensor& input, const Tensor& mean, const Tensor& invstd,
                                        const OptTensor& running_mean, const OptTensor& running_var, double momentum,
                                        double eps, int64_t count) {
  const Tensor counts = at::full({mean.size(0)}, count, mean.options());
  return gather_stats_with_counts(input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward_reduce(const Tensor& grad_out, const Tensor& input,
                                                           const Tensor& mean, const Tensor& invstd,
                                                           const OptTensor& weight, bool input_g, bool weight_g,
                                                           bool bias_g) {
  const Tensor grad = grad_out.to(stat_type(grad_out));
  const at::DimVector dims = all_but_channels(input);
  const Tensor sum_dy = grad.sum(dims);
  const Tensor sum_dy_xmu = (grad * (input.to(stat_type(input)) - per_channel(mean, input))).sum(dims);
  const at::ScalarType grad_type = present(weight) ? weight->scalar_type() : sum_dy.scalar_type();
  return {input_g ? sum_dy : Tensor(), input_g ? sum_dy_xmu : Tensor(),
          weight_g ? (sum_dy_xmu * invstd).to(grad_type) : Tensor(),
          bias_g ? sum_dy.to(grad_type, false, true) : Tensor()};
}

Tensor backward_elemt(const Tensor& grad_out, const Tensor& input, const Tensor& mean, const Tensor& invstd,
                      const OptTensor& weight, const Tensor& sum_dy, const Tensor& sum_dy_xmu, const Tensor& count) {
  const Tensor total = count.sum().to(sum_dy.scalar_type());
  const Tensor shift = per_channel(sum_dy / total, input);
  const Tensor slope = per_channel(invstd * invstd * sum_dy_xmu / total, input);
  const Tensor scale = per_channel(present(weight) ? invstd * *weight : invstd, input);
  const Tensor centred = input.to(stat_type(input)) - per_channel(mean, input);
  return ((grad_out.to(stat_type(grad_out)) - shift - centred * slope) * scale).to(input.scalar_type());
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_function(m, "aten::batch_norm_stats", stats);
  register_function(m, "aten::batch_norm_elemt", elemt);
  register_function(m, "aten::batch_norm_elemt.out", elemt_out);
  register_function(m, "aten::batch_norm_gather_stats", gather_stats);
  register_function(m, "aten::batch_norm_gather_stats_with_counts", gather_stats_with_counts);
  register_function(m, "aten::batch_norm_backward_reduce", backward_reduce);
  register_function(m, "aten::batch_norm_backward_elemt", backward_elemt);
}

}  // namespace torch_npu::sync_batch_norm_cpp
