// scaled_dot_product_attention: which form is taken, and PyTorch's two ops around attention_core.cpp.
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/library.h>

#include <atomic>
#include <cmath>

#include "csrc/aten/attention/attention.h"
#include "csrc/aten/dispatch/optional.h"
#include "csrc/aten/dispatch/registration.h"
#include "csrc/core/random/generator.h"

namespace torch_npu::attention_cpp {
namespace {

using at::Tensor;

constexpr const char* kForward = "aten::_scaled_dot_product_fused_attention_overrideable";
constexpr const char* kBackward = "aten::_scaled_dot_product_fused_attention_overrideable_backward";

// Sizes may be symbols: torch.compile asks too.
bool fits(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask, bool gqa) {
  for (const Tensor* tensor : {&query, &key, &value}) {
    if (tensor->is_nested() || tensor->dim() != 4 || !tensor->is_privateuseone() || tensor->sym_numel() == 0) {
      return false;
    }
    if (!is_float(storage_dtype(tensor->scalar_type())) || tensor->scalar_type() != query.scalar_type()) return false;
  }
  const auto q = query.sym_sizes(), k = key.sym_sizes(), v = value.sym_sizes();
  if (k[0] != q[0] || v[0] != q[0] || k[1] != v[1] || k[2] != v[2] || k[3] != q[3]) return false;
  if (k[1] != q[1] && !(gqa && q[1] % k[1] == 0)) return false;
  if (!mask || !mask->defined()) return true;
  const c10::SymInt scores[] = {q[0], q[1], q[2], k[2]};
  return mask->dim() <= 4 && mask->is_privateuseone() && storage_dtype(mask->scalar_type()) != NPU_DTYPE_NONE &&
         at::is_expandable_to(mask->sym_sizes(), scores);
}

// A driver may lack MATMUL with an epilogue or REDUCE: each device is asked once, with the smallest problem there is.
bool device_can(c10::DeviceIndex device);

// torch.nn.attention.sdpa_kernel decides what may be used; this is a flash attention, so either name allows it.
int64_t choose(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask, double,
               bool, std::optional<double>, bool gqa) {
  const auto& context = at::globalContext();
  if ((context.userEnabledOverrideableSDP() || context.userEnabledFlashSDP()) && fits(query, key, value, mask, gqa) &&
      device_can(query.device().index())) {
    return static_cast<int64_t>(sdp::SDPBackend::overrideable);
  }
  TORCH_CHECK(context.userEnabledMathSDP(),
              "scaled_dot_product_attention: no allowed backend takes these inputs. npu has OVERRIDEABLE (alias "
              "FLASH_ATTENTION: 4-D, one floating type, equal batch sizes, a mask that broadcasts) and MATH");
  return static_cast<int64_t>(sdp::SDPBackend::math);
}

attention::Options options_of(const char* label, const Tensor& query, const Tensor& key, const Tensor& value,
                              const std::optional<Tensor>& bias, double dropout, bool causal,
                              std::optional<double> scale) {
  TORCH_CHECK(fits(query, key, value, bias, /*gqa=*/true), label,
              ": expected 4-D query, key and value of one floating type that fit together, got ", query.sizes(), ", ",
              key.sizes(), " and ", value.sizes());
  attention::Options options;
  options.scale = scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(3))));
  options.dropout = dropout;
  options.bias = given(bias);
  TORCH_CHECK(!causal || !options.bias.defined(), label, ": expected attn_bias or is_causal, got both");
  if (causal) options.window.high = 0;
  return options;
}

using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

Forward forward(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& attn_bias,
                double dropout, bool causal, bool, std::optional<double> scale) {
  auto options = options_of(kForward, query, key, value, attn_bias, dropout, causal, scale);
  if (dropout > 0) {
    std::tie(options.seed, options.offset) = draw_philox(std::nullopt, query.device().index(), 4);
  }
  const auto result = attention::forward(kForward, query, key, value, options);
  const auto word = [](uint64_t bits) { return at::scalar_tensor(static_cast<int64_t>(bits), at::kLong); };
  return {result.out,         result.logsumexp,     Tensor(), Tensor(), query.size(2), key.size(2),
          word(options.seed), word(options.offset), Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward(const Tensor& grad, const Tensor& query, const Tensor& key,
                                                    const Tensor& value, const Tensor& attn_bias,
                                                    std::array<bool, 4> wanted, const Tensor& out,
                                                    const Tensor& logsumexp, const Tensor&, const Tensor&, int64_t,
                                                    int64_t, double dropout, bool causal, const Tensor& seed,
                                                    const Tensor& offset, std::optional<double> scale) {
  if (!grad.defined()) return {};
  auto options = options_of(kBackward, query, key, value, attn_bias, dropout, causal, scale);
  if (dropout > 0) {
    options.seed = static_cast<uint64_t>(seed.item<int64_t>());
    options.offset = static_cast<uint64_t>(offset.item<int64_t>());
  }
  const auto grads = attention::backward(kBackward, grad, query, key, value, out, logsumexp, options, wanted[3]);
  return {grads.query, grads.key, grads.value, grads.bias};
}

bool device_can(c10::DeviceIndex device) {
  static std::atomic<int8_t> answers[64];  // 0: not asked, 1: yes, 2: no
  std::atomic<int8_t>& answer = answers[device];
  if (answer == 0) {
    // A real problem, also where torch.compile asks while it traces with tensors that have no data.
    const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::DispatchKeySet(
        {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::Functionalize}));
    const at::AutoDispatchBelowADInplaceOrView no_autograd;
    const Tensor one = at::empty({1, 1, 1, 1}, at::TensorOptions().device(c10::kPrivateUse1, device));
    try {
      one.zero_();
      const auto out = forward(one, one, one, std::nullopt, 0, true, false, std::nullopt);
      backward(one, one, one, one, {}, {}, std::get<0>(out), std::get<1>(out), {}, {}, 1, 1, 0, true, {}, {}, {});
      answer = 1;
    } catch (const Unsupported&) {
      answer = 2;
    }
  }
  return answer == 1;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_function(m, "aten::_fused_sdp_choice", choose);
  // Not register_native: there is no CPU kernel behind these two. A driver that refuses a command makes them raise.
  register_function(m, "aten::_scaled_dot_product_fused_attention_overrideable", forward);
  register_function(m, "aten::_scaled_dot_product_fused_attention_overrideable_backward", backward);
}

}  // namespace
}  // namespace torch_npu::attention_cpp

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_npu::attention_cpp::choose)
}  // namespace at::native
