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

#include "csrc/aten/custom_op.h"
#include "csrc/aten/reduction.h"
#include "table/kernels.h"

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

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

void launch(const char* label, const Tensor& out, at::TensorList inputs, TypedKernel& kernel, npu_dtype compute) {
  Rows rows(label, out.sizes(), {});
  rows.add(out);
  for (const Tensor& input : inputs) {
    input.is_cpu() ? rows.number(input.item<double>()) : rows.add(input);
  }
  rows.map(kernel.of(compute));
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
struct Dequantize : torch::autograd::Function<Dequantize> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& scale, const Tensor& zero_point,
                        OptType dtype) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto op = npu_op<DequantizeSignature>("npu::custom_dequantize");
    context->save_for_backward({x, scale, zero_point});
    return op.call(x, scale, zero_point, dtype);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto saved = context->get_saved_variables();
    const Tensor& scale = saved[1];
    const auto wide = wide_of(grads[0]);
    const Tensor whole = grads[0].to(wide) * (saved[0].to(wide) - saved[2]);
    return {Tensor(), at::sum_to(whole, scale.sym_sizes()).to(scale.options()), Tensor(), Tensor()};
  }
};

Tensor dequantize_autograd(const Tensor& x, const Tensor& scale, const Tensor& zero_point, OptType dtype) {
  return in_functorch() ? dequantize_composition(x, scale, zero_point, dtype)
                        : Dequantize::apply(x, scale, zero_point, dtype);
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
  const Tensor q = at::clamp(steps(x, scale, zero_point), -128, 127);
  return ((q - zero_point) * scale.to(q.scalar_type())).to(x.scalar_type()).contiguous();
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
using FakeBackwardSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&);

struct FakeQuantize : torch::autograd::Function<FakeQuantize> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& scale, const Tensor& zero_point) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto op = npu_op<FakeSignature>("npu::custom_fake_quantize");
    context->save_for_backward({x, scale, zero_point});
    return op.call(x, scale, zero_point);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    static const auto op = npu_op<FakeBackwardSignature>("npu::custom_fake_quantize_backward");
    const auto saved = context->get_saved_variables();
    return {c10::GradMode::is_enabled() ? fake_backward_composition(grads[0], saved[0], saved[1], saved[2])
                                        : op.call(grads[0], saved[0], saved[1], saved[2]),
            Tensor(), Tensor()};
  }
};

Tensor fake_autograd(const Tensor& x, const Tensor& scale, const Tensor& zero_point) {
  return FakeQuantize::apply(x, scale, zero_point);
}

Tensor fake_number(const Tensor& x, double scale, int64_t zero_point) {
  static const auto op = npu_op<FakeSignature>("npu::custom_fake_quantize");
  check_number("custom_fake_quantize", scale, zero_point);
  return op.call(x, number_of(scale), number_of(zero_point));
}

// The form with tensors comes first: a 0-d tensor is taken as one, without waiting for its value.
TORCH_LIBRARY_FRAGMENT(npu, m) {
  m.def("custom_quantize(Tensor input, Tensor scale, Tensor zero_point) -> Tensor");
  m.def("custom_quantize.number(Tensor input, float scale, int zero_point) -> Tensor", quantize_number);
  m.def("custom_dequantize(Tensor input, Tensor scale, Tensor zero_point, *, ScalarType? dtype=None) -> Tensor");
  m.def("custom_dequantize.number(Tensor input, float scale, int zero_point, *, ScalarType? dtype=None) -> Tensor",
        dequantize_number);
  m.def("custom_fake_quantize(Tensor input, Tensor scale, Tensor zero_point) -> Tensor");
  m.def("custom_fake_quantize.number(Tensor input, float scale, int zero_point) -> Tensor", fake_number);
  m.def("custom_fake_quantize_backward(Tensor grad, Tensor input, Tensor scale, Tensor zero_point) -> Tensor");
}

TORCH_LIBRARY_IMPL(npu, PrivateUse1, m) {
  m.impl("custom_quantize", Either<quantize_native, quantize_composition>::call);
  m.impl("custom_dequantize", Either<dequantize_native, dequantize_composition>::call);
  m.impl("custom_fake_quantize", Either<fake_native, fake_composition>::call);
  m.impl("custom_fake_quantize_backward", Either<fake_backward_native, fake_backward_composition>::call);
}

TORCH_LIBRARY_IMPL(npu, CompositeExplicitAutograd, m) {
  m.impl("custom_quantize", quantize_composition);
  m.impl("custom_dequantize", dequantize_composition);
  m.impl("custom_fake_quantize", fake_composition);
  m.impl("custom_fake_quantize_backward", fake_backward_composition);
}

TORCH_LIBRARY_IMPL(npu, Meta, m) {
  m.impl("custom_quantize", quantize_meta);
  m.impl("custom_dequantize", dequantize_meta);
  m.impl("custom_fake_quantize", fake_meta);
  m.impl("custom_fake_quantize_backward", fake_backward_meta);
}

TORCH_LIBRARY_IMPL(npu, Autograd, m) {
  m.impl("custom_dequantize", dequantize_autograd);
  m.impl("custom_fake_quantize", fake_autograd);
}

TORCH_LIBRARY_IMPL(npu, FuncTorchBatched, m) {
  m.impl("custom_quantize", quantize_composition);
  m.impl("custom_dequantize", dequantize_composition);
}

}  // namespace
}  // namespace torch_npu::quantize_cpp
