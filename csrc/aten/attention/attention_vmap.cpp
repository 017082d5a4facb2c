// scaled_dot_product_attention inside torch.vmap: PyTorch has no batching rule for its two ops. npu::fusion_attention
// computes the same and has one.
#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include <cmath>

#include "csrc/aten/attention/attention.h"
#include "csrc/aten/dispatch/custom_op.h"

namespace torch_npu::attention_vmap_cpp {
namespace {

using at::Tensor;
using OptTensor = std::optional<Tensor>;
using Four = std::tuple<Tensor, Tensor, Tensor, Tensor>;
using Ints = std::optional<at::IntArrayRef>;

double scale_of(const Tensor& query, std::optional<double> scale) {
  return scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(3))));
}

c10::SymInt last_key(bool causal) {
  return causal ? 0 : attention::Window::kFar;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor> forward(
    const Tensor& query, const Tensor& key, const Tensor& value, const OptTensor& bias, double dropout, bool causal,
    bool, std::optional<double> scale) {
  TORCH_CHECK(dropout == 0, "scaled_dot_product_attention: expected dropout_p 0 inside vmap, got ", dropout,
              "; sdpa_kernel(SDPBackend.MATH) has dropout there");
  using Signature = Four(const Tensor&, const Tensor&, const Tensor&, const OptTensor&, const OptTensor&,
                         const OptTensor&, Ints, double, double, int64_t, int64_t, c10::SymInt, c10::SymInt);
  static const auto op = npu_op<Signature>("npu::fusion_attention");
  const auto [out, logsumexp, max, sum] =
      op.call(query, key, value, bias, {}, {}, std::nullopt, scale_of(query, scale), /*dropout=*/0, /*seed=*/0,
              /*offset=*/0, -attention::Window::kFar, last_key(causal));
  const Tensor none = at::scalar_tensor(0, at::kLong);
  return {out, logsumexp, Tensor(), Tensor(), query.size(2), key.size(2), none, none, Tensor()};
}

Four backward(const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
              std::array<bool, 4> wanted, const Tensor& out, const Tensor& logsumexp, const Tensor&, const Tensor&,
              c10::SymInt, c10::SymInt, double, bool causal, const Tensor&, const Tensor&,
              std::optional<double> scale) {
  if (!grad.defined()) return {};
  using Signature = Four(const Tensor&, const OptTensor&, const Tensor&, const Tensor&, const Tensor&, const OptTensor&,
                         const OptTensor&, const OptTensor&, Ints, const Tensor&, const Tensor&, double, double,
                         int64_t, int64_t, c10::SymInt, c10::SymInt, bool);
  static const auto op = npu_op<Signature>("npu::fusion_attention_backward");
  auto [q, k, v, b] =
      op.call(grad, {}, query, key, value, bias, {}, {}, std::nullopt, out, logsumexp, scale_of(query, scale),
              /*dropout=*/0, /*seed=*/0, /*offset=*/0, -attention::Window::kFar, last_key(causal), wanted[3]);
  return {q, k, v, wanted[3] ? b : Tensor()};
}

TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(forward));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(backward));
}

}  // namespace
}  // namespace torch_npu::attention_vmap_cpp
