// What nn.TransformerEncoderLayer and nn.MultiheadAttention call for inference. PyTorch's own functions for the layer
// and the attention are made of other ops; the pieces that are kernels there are here.
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_addmm_activation_meta.h>
#include <ATen/ops/_addmm_activation_ops.h>
#include <ATen/ops/_masked_softmax_backward_ops.h>
#include <ATen/ops/_masked_softmax_ops.h>
#include <ATen/ops/_native_multi_head_attention_native.h>
#include <ATen/ops/_transformer_encoder_layer_fwd_native.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>

#include <cmath>

#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::transformer_cpp {
namespace {

using at::Tensor;

// A mask is true where an element takes no part; a row without any is NaN.
TypedProgram k_masked_softmax(R"(
formula masked_softmax(out, x, mask: bool)
each:
  %max = fold(max, x, mask not mask)
each:
  %sum = fold(sum, exp(x - %max), mask not mask)
row:
  %f = where(%sum == 0, nan, reciprocal(%sum))
each:
  out = where(mask, 0, exp(x - %max)) * %f
)");

TypedProgram k_masked_softmax_backward(R"(
formula masked_softmax_backward(out, grad, y, mask: bool)
each:
  %sum = fold(sum, grad * y, mask not mask)
each:
  out = where(mask, 0, y * (grad - %sum))
)");

Tensor masked_softmax(const Tensor& input, const Tensor& mask, std::optional<int64_t> dim,
                      std::optional<int64_t> mask_type) {
  constexpr const char* label = "aten::_masked_softmax";
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be a boolean tensor");
  check_same_device(label, {&input, &mask});
  // 0: queries x keys, 1: batch x keys, 2: as the input. The first two exist for [batch, heads, queries, keys] only.
  const int64_t kind = mask.dim() != 2 || input.dim() != 4 ? 2 : mask_type.value_or(-1);
  TORCH_CHECK(kind != -1, "Mask Type should be defined");
  TORCH_CHECK(kind == 0 || kind == 1 || kind == 2,
              "Mask Type should be 0 (src_mask) or 1 (src_key_padding_mask), or 2 (default_mask)");
  Tensor wide = mask;
  if (kind == 2) {
    TORCH_CHECK(input.sizes() == mask.sizes(), "For mask_type == 2 mask shape should match input shape");
  } else if (kind == 1) {
    TORCH_CHECK(input.size(0) == mask.size(0) && input.size(2) == mask.size(1),
                "For mask_type == 1 mask shape should be (B, L)");
    wide = mask.unsqueeze(1).unsqueeze(1);
  } else {
    TORCH_CHECK(input.size(2) == mask.size(0) && input.size(2) == mask.size(1),
                "For mask_type == 0 mask shape should be (L, L)");
  }
  Tensor out = at::empty_like(input);
  Rows(label, input.sizes(), input.dim() == 0 ? DimMask(1) : one_dim(input, dim.value_or(input.dim() - 1)))
      .add(out)
      .add(input)
      .add(wide)
      .reduce(k_masked_softmax.of(compute_type(input, label)));
  return out;
}

Tensor masked_softmax_backward(const Tensor& grad, const Tensor& output, const Tensor& mask,
                               std::optional<int64_t> dim) {
  constexpr const char* label = "aten::_masked_softmax_backward";
  TORCH_CHECK(grad.sizes() == mask.sizes(), "Mask shape should match grad shape");
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be a boolean tensor");
  check_same_device(label, {&grad, &output, &mask});
  Tensor out = at::empty_like(grad);
  Rows(label, grad.sizes(), grad.dim() == 0 ? DimMask(1) : one_dim(grad, dim.value_or(grad.dim() - 1)))
      .add(out)
      .add(grad)
      .add(output)
      .add(mask)
      .reduce(k_masked_softmax_backward.of(compute_type(grad, label)));
  return out;
}

// (q + bias) / sqrt(features), k + bias, v + bias, with the heads in front, side by side in one memory.
std::tuple<Tensor, Tensor, Tensor> transform_bias_rescale_qkv(const Tensor& qkv, const Tensor& bias, int64_t heads) {
  const int64_t features = qkv.size(2) / 3;
  TORCH_CHECK(qkv.size(2) % 3 == 0 && features % heads == 0,
              "_transform_bias_rescale_qkv: expected three times a multiple of ", heads, " features, got ",
              qkv.size(2));
  const int64_t each = features / heads;
  const Tensor split = qkv.view({qkv.size(0), qkv.size(1), 3, heads, each}).permute({2, 0, 3, 1, 4});
  const Tensor all = (split + bias.view({3, 1, heads, 1, each})).contiguous();
  const Tensor q = all.select(0, 0);
  q.div_(std::sqrt(static_cast<double>(each)));
  return {q, all.select(0, 1), all.select(0, 2)};
}

void launch_addmm_activation(at::impl::MetaBase&, const Tensor& out, const Tensor& self, const Tensor& a,
                             const Tensor& b, const at::Scalar& beta, const at::Scalar& alpha, bool use_gelu) {
  Tensor result = out;
  at::addmm_out(result, self, a, b, beta, alpha);
  use_gelu ? at::gelu_(result) : at::relu_(result);
}

// nn.TransformerEncoder asks before it makes a nested tensor, which npu does not have.
bool nothing_is_nested(const Tensor&, const Tensor&) {
  return false;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<at::meta::structured__addmm_activation, launch_addmm_activation>(m)
      .functional<at::_ops::_addmm_activation>()
      .out<at::_ops::_addmm_activation_out>();
  register_native<at::_ops::_masked_softmax, masked_softmax>(m);
  register_native<at::_ops::_masked_softmax_backward, masked_softmax_backward>(m);
  register_function(m, "aten::_transform_bias_rescale_qkv", transform_bias_rescale_qkv);
  register_function(m, "aten::_native_multi_head_attention", at::native::native_multi_head_attention_cpu);
  register_function(m, "aten::_transformer_encoder_layer_fwd", at::native::transformer_encoder_layer_forward);
  register_function(m, "aten::_nested_tensor_from_mask_left_aligned", nothing_is_nested);
}

}  // namespace
}  // namespace torch_npu::transformer_cpp
