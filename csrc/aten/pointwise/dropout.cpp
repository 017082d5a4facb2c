// Dropout, permutations and draws from a table: ops on top of random numbers.
#include <ATen/TensorOperators.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/multinomial_native.h>
#include <ATen/ops/multinomial_ops.h>
#include <ATen/ops/native_dropout_backward_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randperm_ops.h>

#include <cmath>

#include "csrc/aten/dispatch/reduction.h"
#include "csrc/aten/pointwise/random.h"

namespace torch_npu::dropout_cpp {
namespace {

TypedProgram k_dropout(R"(
formula dropout(out, x, kept; seed: i64, offset: i64, threshold: i64, scale)
each:
  %keep = philox(seed, offset, index(0), 0) >= threshold
  out = where(%keep, x * scale, 0)
  kept = %keep
)");

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  constexpr const char* label = "aten::native_dropout";
  if (!train.value_or(true) || input.numel() == 0) {
    return {input.clone(), at::ones_like(input, input.options().dtype(at::kBool))};
  }
  TORCH_CHECK(p >= 0 && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  const npu_dtype compute = compute_dtype(numeric_dtype(input.scalar_type(), label));
  if (!is_float(compute)) {
    throw Unsupported(label);
  }
  const at::Tensor x = input.is_non_overlapping_and_dense() ? input : input.contiguous();
  at::Tensor out = at::empty_like(x);
  at::Tensor kept = at::empty_like(x, x.options().dtype(at::kBool));
  RandomNest nest(label, x.numel(), out, std::nullopt);
  nest.with(x, {1}).with(kept, {1});
  nest.integer(std::llround(std::ldexp(p, 32))).number(p == 1 ? 0.0 : 1.0 / (1.0 - p)).run(k_dropout.of(compute));
  return {out, kept};
}

TypedProgram k_dropout_backward(R"(
formula dropout_backward(out, grad, kept: bool; scale)
each:
  out = where(kept, grad * scale, 0)
)");

at::Tensor native_dropout_backward(const at::Tensor& grad, const at::Tensor& mask, double scale) {
  constexpr const char* label = "aten::native_dropout_backward";
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be Bool Scalar Type", mask.scalar_type());
  const npu_dtype compute = compute_dtype(numeric_dtype(grad.scalar_type(), label));
  if (!is_float(compute)) {
    return grad * mask * scale;  // promotes
  }
  at::Tensor out = at::empty_like(grad);
  auto iter = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .add_output(out)
                  .add_const_input(grad)
                  .add_const_input(mask)
                  .build();
  if (iter.numel() > 0) {
    Nest(NPU_MAP, label, iter).number(scale).run(k_dropout_backward.of(compute));
  }
  return out;
}

TypedProgram k_keys(R"(
formula random_keys(out; seed, offset): i64
each:
  %bits = xor(shl(philox(seed, offset, index(0), 1), 31), philox(seed, offset, index(0), 0))
  out = %bits
)");

at::Tensor& randperm_out(int64_t n, std::optional<at::Generator> generator, at::Tensor& result) {
  constexpr const char* label = "aten::randperm";
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  at::native::check_supported_max_int_with_precision(n, result);
  result.resize_({n});
  if (n == 0) {
    return result;
  }
  numeric_dtype(result.scalar_type(), label);
  const at::Tensor keys = at::empty({n}, result.options().dtype(at::kLong));
  RandomNest(label, n, keys, generator).run(k_keys.of(NPU_I64));
  const bool direct = c10::isIntegralType(result.scalar_type(), /*includeBool=*/false);
  const at::Tensor out = direct ? result : at::empty({n}, keys.options());
  // 0 .. n - 1 in the order of the keys.
  Rows(label, {n}, first_dims(1)).add(keys).number(0).add(keys).add(out).sort(n, false, true);
  if (!direct) {
    result.copy_(out);
  }
  return result;
}

// With replacement: the number of categories whose cumulated weight is at most u times the total.
TypedProgram k_draw(R"(
formula multinomial(cumulated, u, total, out; last: i64)
each:
  %n = fold(sum, i64(cumulated <= u * total))
row:
  out = min(%n, last)
)");

void launch_multinomial(at::Tensor& result, const at::Tensor& self, int64_t samples,
                        std::optional<at::Generator> generator) {
  constexpr const char* label = "aten::multinomial";
  const npu_dtype compute = compute_dtype(numeric_dtype(self.scalar_type(), label));
  const at::Tensor weights = self.dim() == 1 ? self.unsqueeze(0) : self;
  const int64_t rows = weights.size(0), categories = weights.size(1);
  const auto wide = compute == NPU_F64 ? at::kDouble : at::kFloat;
  const at::Tensor cumulated = at::cumsum(weights, 1, wide).contiguous();
  const at::Tensor u = at::empty({rows, samples}, cumulated.options()).uniform_(0, 1, generator);
  result.resize_(self.dim() == 1 ? at::DimVector{samples} : at::DimVector{rows, samples});
  const at::Tensor out = self.dim() == 1 ? result.unsqueeze(0) : result;
  Nest(NPU_REDUCE, label, {rows, samples, categories}, 1)
      .with(cumulated, {categories, 0, 1})
      .with(u, {samples, 1, 0})
      .with(cumulated, {categories, 0, 0}, categories - 1)
      .with(out, {out.stride(0), out.stride(1), 0})
      .integer(categories - 1)
      .run(k_draw.of(compute));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::native_dropout, native_dropout>(m);
  register_native<at::_ops::native_dropout_backward, native_dropout_backward>(m);
  register_native<at::_ops::randperm_generator_out, randperm_out>(m);
  register_native<at::_ops::multinomial, at::native::multinomial>(m);
  register_native<at::_ops::multinomial_out, at::native::multinomial_out>(m);
}

}  // namespace
}  // namespace torch_npu::dropout_cpp

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(multinomial_with_replacement_stub, &torch_npu::dropout_cpp::launch_multinomial)
}  // namespace at::native
