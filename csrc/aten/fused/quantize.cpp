// custom_quantize, custom_dequantize and custom_fake_quantize: affine quantisation to int8, one MAP each. scale and
// zero_point are tensors that broadcast against the input (per tensor, per channel, per token), or numbers.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/round.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "csrc/aten/dispatch/custom_op.h"
#include "csrc/aten/dispatch/reduction.h"
#include "table/kernels.h"

namespace torch_npu::quantize_cpp {
namespace {

using at::Tensor;
using OptType = std::optional<at::ScalarType>;

// Numbers (0-d tensors of the CPU) may stand beside a tensor of any device.
void check(const char* op, const Tensor& x, const Tensor& scale, const Tensor& zero_point) {
  check_floating(op, "scale", scale);
  TORCH_CHECK_TYPE(at::isIntegralType(zero_point.scalar_type(), /*includeBool=*/false), op,
                   ": expected zero_point of an integer type, got ", zero_point.scalar_type());
  for (const Tensor* tensor : {&scale, &zero_point}) {
    if (tensor->dim() > 0 || !tensor->is_cpu()) check_same_device(op, {&x, tensor});
    const auto sizes = tensor->sym_sizes();
    bool fits = tensor->dim() <= x.dim();
    for (int64_t d = 1; fits && d <= tensor->dim(); ++d) {
      fits = sizes[tensor->dim() - d] == 1 || sizes[tensor->dim() - d] == x.sym_size(-d);
    }
    TORCH_CHECK(fits, op, ": expected scale and zero_point that broadcast to input ", x.sym_sizes(), ", got ",
                scale.sym_sizes(), " and ", zero_point.sym_sizes());
  }
}

void check_number(const char* op, double scale, int64_t zero_point) {
  TORCH_CHECK_VALUE(scale > 0, op, ": expected scale above 0, got ", scale);
  TORCH_CHECK_VALUE(zero_point >= -128 && zero_point <= 127, op, ": expected zero_point from -128 to 127, got ",
                    zero_point);
}

Tensor number_of(double value) {
  return at::scalar_tensor(value, at::kDouble);
}
Tensor number_of(int64_t value) {
  return at::scalar_tensor(value, at::kLong);
}

void launch(const char* label, const Tensor& out, at::TensorList inputs, TypedProgram& program, npu_dtype compute) {
  Rows rows(label, out.sizes(), {});
  rows.add(out);
  for (const Tensor& input : inputs) {
    input.is_cpu() ? rows.number(input.item<double>()) : rows.add(input);
  }
  rows.map(program.of(compute));
}

npu_dtype compute_of(const Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? NPU_F64 : NPU_F32;
}

// The type that compositions compute in: that of the kernels.
at::ScalarType wide_of(const Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// -- custom_quantize --

Tensor quantize_meta(const Tensor& x, const Tensor& scale, const Tensor& zero_point) {
  check_floating("custom_quantize", "input", x);
  check("custom_quantize", x, scale, zero_point);
  return at::empty_symint(x.sym_sizes(), x.options().dtype(at::kChar));
}

Tensor steps(const Tensor& x, const Tensor& scale, const Tensor& zero_point) {
  const auto wide = wide_of(x);
  return at::round(x.to(wide) / scale.to(wide)) + zero_point;
}

Tensor quantize_composition(const Tensor& x, const Tensor& scale, const Tensor& zero_point) {
  check_floating("custom_quantize", "input", x);
  check("custom_quantize", x, scale, zero_point);
  return at::clamp(steps(x, scale, zero_point), -128, 127).to(at::kChar).contiguous();
}

Tensor quantize_native(const Tensor& x, const Tensor& scale, const Tensor& zero_point) {
  const Tensor out = quantize_meta(x, scale, zero_point);
  launch("npu::custom_quantize", out, {x, scale, zero_point}, table::custom_quantize, compute_of(x));
  return out;
}

Tensor quantize_number(const Tensor& x, double scale, int64_t zero_point) {
  static const auto op = npu_op<Tensor(const Tensor&, const Tensor&, const Tensor&)>("npu::custom_quantize");
  check_number("custom_quantize", scale, zero_point);
  return op.call(x, number_of(scale), number_of(zero_point));
}

// -- custom_dequantize --

using DequantizeSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, OptType);

Tensor dequantize_meta(const Tensor& x, const Tensor& scale, const Tensor& zero_point, OptType dtype) {
  constexpr const char* op = "custom_dequantize";
  TORCH_CHECK_TYPE(at::isIntegralType(x.scalar_type(), /*includeBool=*/false), op,
                   ": expected input of an integer type, got ", x.scalar_type());
  const auto type = dtype.value_or(at::kFloat);
  TORCH_CHECK_TYPE(at::isFloatingType(type), op, ": expected dtype to be a floating type, got ", type);
  check(op, x, scale, zero_point);
  return at::empty_symint(x.sym_sizes(), x.options().dtype(type));
}

Tensor dequantize_composition(const Tensor& x, const Tensor& scale, const Tensor& zero_point, OptType dtype) {
  const Tensor like = dequantize_meta(x, scale, zero_point, dtype);
  const auto wide = wide_of(like);
  return ((x.to(wide) - zero_point) * scale.to(wide)).to(like.scalar_type()).contiguous();
}

Tensor dequantize_native(const Tensor& x, const Tensor& scale, const Tensor& zero_point, OptType dtype) {
  const Tensor out = dequantize_meta(x, scale, zero_point, dtype);
  launch("npu::custom_dequantize", out, {x, scale, zero_point}, table::custom_dequantize, compute_of(out));
  return out;
}

// Differentiable in the scale.
void dequantize_gradient(BackwardCall& call) {
  const Tensor &grad = call.grad(0), &scale = call.argument(1);
  const auto wide = wide_of(grad);
  const Tensor whole = grad.to(wide) * (call.argument(0).to(wide) - call.argument(2));
  call.give(1, at::sum_to(whole, scale.sym_sizes()).to(scale.options()));
}

Tensor dequantize_number(const Tensor& x, double scale, int64_t zero_point, OptType dtype) {
  static const auto op = npu_op<DequantizeSignature>("npu::custom_dequantize");
  check_number("custom_dequantize", scale, zero_point);
  return op.call(x, number_of(scale), number_of(zero_point), dtype);
}

// -- custom_fake_quantize: both, with a gradient that passes where nothing was cut off --

Tensor fake_meta(const Tensor& x, const Tensor& scale, const Tensor& zero_point) {
  check_floating("custom_fake_quantize", "input", x);
  check("custom_fake_quantize", x, scale, zero_point);
  return at::empty_symint(x.sym_sizes(), x.options());
}

Tensor fake_composition(const Tensor& x, const Tensor& scale, const Tensor& zero_point) {
  fake_meta(x, scale, zero_point);
  const Tensor whole = steps(x, scale, zero_point).detach(), q = at::clamp(whole, -128, 127);
  const Tensor y = (q - zero_point) * scale.detach().to(q.scalar_type()), wide = x.to(q.scalar_type());
  // wide - (wide - y) is y, to the last bit as y is the nearest step, and has the gradient of x.
  return at::where(whole == q, wide - (wide - y).detach(), y).to(x.scalar_type()).contiguous();
}

Tensor fake_native(const Tensor& x, const Tensor& scale, const Tensor& zero_point) {
  const Tensor out = fake_meta(x, scale, zero_point);
  launch("npu::custom_fake_quantize", out, {x, scale, zero_point}, table::fake_quantize, compute_of(x));
  return out;
}

Tensor fake_backward_meta(const Tensor&, const Tensor& x, const Tensor&, const Tensor&) {
  return at::empty_symint(x.sym_sizes(), x.options());
}

Tensor fake_backward_composition(const Tensor& grad, const Tensor& x, const Tensor& scale, const Tensor& zero_point) {
  const Tensor q = steps(x, scale, zero_point);
  return at::where((q >= -128).logical_and(q <= 127), grad, at::zeros_like(grad)).to(x.scalar_type()).contiguous();
}

Tensor fake_backward_native(const Tensor& grad, const Tensor& x, const Tensor& scale, const Tensor& zero_point) {
  const Tensor out = at::empty(x.sizes(), x.options());
  launch("npu::custom_fake_quantize_backward", out, {grad, x, scale, zero_point}, table::fake_quantize_backward,
         compute_of(x));
  return out;
}

using FakeSignature = Tensor(const Tensor&, const Tensor&, const Tensor&);

void fake_gradient(BackwardCall& call) {
  using Signature = Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&);
  static const auto op = npu_op<Signature>("npu::custom_fake_quantize_backward");
  call.give(0, op.call(call.grad(0), call.argument(0), call.argument(1), call.argument(2)));
}

Tensor fake_number(const Tensor& x, double scale, int64_t zero_point) {
  static const auto op = npu_op<FakeSignature>("npu::custom_fake_quantize");
  check_number("custom_fake_quantize", scale, zero_point);
  return op.call(x, number_of(scale), number_of(zero_point));
}

// The form with tensors comes first: a 0-d tensor is taken as one, without waiting for its value.
TORCH_LIBRARY_FRAGMENT(npu, m) {
  const Places all = places(0, 1, 2);
  define<quantize_native, quantize_composition>(
      m, "custom_quantize(Tensor input, Tensor scale, Tensor zero_point) -> Tensor", quantize_meta, {.constant = true});
  m.def("custom_quantize.number(Tensor input, float scale, int zero_point) -> Tensor", quantize_number);
  define<dequantize_native, dequantize_composition>(
      m, "custom_dequantize(Tensor input, Tensor scale, Tensor zero_point, *, ScalarType? dtype=None) -> Tensor",
      dequantize_meta, {{dequantize_gradient, {{1, all}}}});
  m.def("custom_dequantize.number(Tensor input, float scale, int zero_point, *, ScalarType? dtype=None) -> Tensor",
        dequantize_number);
  define<fake_native, fake_composition>(m,
                                        "custom_fake_quantize(Tensor input, Tensor scale, Tensor zero_point) -> Tensor",
                                        fake_meta, {{fake_gradient, {{0, all}}}});
  m.def("custom_fake_quantize.number(Tensor input, float scale, int zero_point) -> Tensor", fake_number);
  define<fake_backward_native, fake_backward_composition>(
      m, "custom_fake_quantize_backward(Tensor grad, Tensor input, Tensor scale, Tensor zero_point) -> Tensor",
      fake_backward_meta);
}

}  // namespace
}  // namespace torch_npu::quantize_cpp
