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
program amp_unscale(grad, inv_scale, found)
each:
  %g = load grad : $t
  %s = load inv_scale : $t
  %zero = const 0 : $t
  %d = sub %g, %g
  %bad = ne %d, %zero
  %any = fold or %bad
  %r = mul %g, %s
  store grad, %r
row:
  %one = const 1 : $t
  store found, %one, mask %any
)");

DeviceProgram k_update_scale(R"(
program amp_update_scale(scale, tracker, found; growth, backoff, interval)
each:
  %scale = load scale : f64
  %found = load found : f64
  %zero = const 0 : f64
  %bad = ne %found, %zero
  %backoff = param backoff : f64
  %smaller = mul %scale, %backoff
  %growth = param growth : f64
  %product = mul %scale, %growth
  %larger = cast %product via f32 : f64
  %tracker = load tracker : i64
  %one = const 1 : i64
  %steps = add %tracker, %one
  %interval = param interval : i64
  %due = eq %steps, %interval
  %inf = const inf : f64
  %finite = lt %larger, %inf
  %grows = and %due, %finite
  %grown = where %grows, %larger, %scale
  %new = where %bad, %smaller, %grown
  store scale, %new
  %none = const 0 : i64
  %again = or %bad, %due
  %count = where %again, %none, %steps
  store tracker, %count
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
