// What a gradient scaler does on the device, without waiting for a result: unscale, look for infinities, update the
// scale.
#include <ATen/native/ForeachUtils.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale_ops.h>
#include <ATen/ops/_amp_update_scale_ops.h>

#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::amp_cpp {
namespace {

using at::Tensor;

TypedProgram k_unscale(R"(
formula amp_unscale(grad, inv_scale, found)
each:
  %any = fold(or, grad - grad != 0)
  grad = grad * inv_scale
row:
  found = 1, mask %any
)");

DeviceProgram k_update_scale(R"(
formula amp_update_scale(scale, tracker: i64, found; growth, backoff, interval: i64): f64
each:
  %larger = via(scale * growth, f32)
  %steps = tracker + 1
  %bad = found != 0
  %due = %steps == interval
  scale = where(%bad, scale * backoff, where(%due and %larger < inf, %larger, scale))
  tracker = where(%bad or %due, 0, %steps)
)");

void check_number(const Tensor& tensor, at::ScalarType type, const char* name, const char* kind) {
  TORCH_CHECK(tensor.is_privateuseone(), name, " must be an npu tensor.");
  TORCH_CHECK(tensor.numel() == 1, name, " must be a 1-element tensor.");
  TORCH_CHECK(tensor.scalar_type() == type, name, " must be ", kind, " tensor.");
}

void unscale(at::TensorList grads, Tensor& found_inf, const Tensor& inv_scale) {
  constexpr const char* label = "aten::_amp_foreach_non_finite_check_and_unscale_";
  if (grads.empty()) {
    return;
  }
  check_number(inv_scale, at::kFloat, "inv_scale", "a float");
  check_number(found_inf, at::kFloat, "found_inf", "a float");
  at::native::check_foreach_api_restrictions(grads);
  for (const Tensor& grad : grads) {
    TORCH_CHECK(grad.is_privateuseone(), "one of scaled_grads was not an npu tensor.");
    TORCH_CHECK(grad.layout() == at::kStrided, "one of scaled_grads was not a strided tensor.");
    if (grad.numel() == 0) {
      continue;
    }
    const npu_dtype compute = compute_type(grad, label);
    if (!is_float(compute)) {
      throw Unsupported(label);
    }
    Rows(label, grad.sizes(), DimMask().flip())
        .add(grad)
        .scalar(inv_scale)
        .scalar(found_inf)
        .reduce(k_unscale.of(compute));
  }
}

Tensor& update_scale(Tensor& scale, Tensor& tracker, const Tensor& found_inf, double growth, double backoff,
                     int64_t interval) {
  check_number(tracker, at::kInt, "growth_tracker", "an int");
  check_number(scale, at::kFloat, "current_scale", "a float");
  check_number(found_inf, at::kFloat, "found_inf", "a float");
  Rows("aten::_amp_update_scale_", {}, {})
      .scalar(scale)
      .scalar(tracker)
      .scalar(found_inf)
      .map(k_update_scale, {number(growth), number(backoff), integer(interval)});
  return scale;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::_amp_foreach_non_finite_check_and_unscale_, unscale>(m);
  register_native<at::_ops::_amp_update_scale_, update_scale>(m);
}

}  // namespace
}  // namespace torch_npu::amp_cpp
