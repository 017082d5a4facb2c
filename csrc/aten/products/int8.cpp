// Products of 8-bit integers: PyTorch's _int_mm and _weight_int8pack_mm, quantisation of activations row by row
// (npu_dynamic_quant), and npu_int8_linear, which the modules of torch_npu.quantization call. A weight is int8 with one
// scale per row of results; MATMUL takes it as it is, and the scales are its epilogue.
#include <ATen/TensorOperators.h>
#include <ATen/ops/_int_mm.h>
#include <ATen/ops/_int_mm_ops.h>
#include <ATen/ops/_weight_int8pack_mm_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/round.h>

#include "csrc/aten/dispatch/custom_op.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/optional.h"
#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::int8_cpp {
namespace {

using at::Tensor;
using Pair = std::tuple<Tensor, Tensor>;

// The epilogue: the sum times the scale of its column, with `rows` that of its row too, plus a bias.
ProgramFamily epilogues;
DeviceProgram& epilogue(bool rows, bool bias) {
  return epilogues.get(2 * rows + bias, NPU_F32, [&] {
    const std::string operands = std::string(", scale") + (rows ? ", rows" : "") + (bias ? ", bias" : "");
    const std::string value =
        std::string(rows ? "number(acc(i32)) * scale * rows" : "acc * scale") + (bias ? " + bias" : "");
    return "formula int8_product(a, b, out" + operands + ")\neach:\n  out = " + value + "\n";
  });
}

// A row of zeros has the scale 0 and stays zero.
TypedProgram k_dynamic_quant(R"(
formula dynamic_quant(out, scale, x)
each:
  %m = fold(max, abs(x))
row:
  scale = %m / 127
  %by = where(%m == 0, 0, 127 / %m)
each:
  out = round(x * %by)
)");

// -- PyTorch's own --

// What does not fit gets PyTorch's sentence from its own kernel.
bool is_matrix(const Tensor& tensor, at::ScalarType type) {
  return tensor.dim() == 2 && tensor.scalar_type() == type;
}

Tensor& int_mm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  constexpr const char* label = "aten::_int_mm";
  check_same_device(label, {&self, &mat2, &out});
  if (!is_matrix(self, at::kChar) || !is_matrix(mat2, at::kChar) || !is_matrix(out, at::kInt) ||
      self.size(1) != mat2.size(0) || out.size(0) != self.size(0) || out.size(1) != mat2.size(1)) {
    throw Unsupported(label);
  }
  Nest(NPU_MATMUL, label, out.sizes()).contract(self.size(1), NPU_I32).with(self).with(mat2).with(out).run();
  return out;
}

Tensor int_mm(const Tensor& self, const Tensor& mat2) {
  if (self.dim() != 2 || mat2.dim() != 2) throw Unsupported("aten::_int_mm");
  Tensor out = at::empty({self.size(0), mat2.size(1)}, self.options().dtype(at::kInt));
  return int_mm_out(self, mat2, out);
}

Tensor weight_int8pack_mm(const Tensor& self, const Tensor& mat2, const Tensor& scales) {
  constexpr const char* label = "aten::_weight_int8pack_mm";
  check_same_device(label, {&self, &mat2, &scales});
  const bool floats = at::isFloatingType(self.scalar_type()) && self.scalar_type() != at::kDouble;
  if (!floats || self.dim() != 2 || !is_matrix(mat2, at::kChar) || self.size(1) != mat2.size(1) || scales.dim() != 1 ||
      scales.size(0) != mat2.size(0)) {
    throw Unsupported(label);
  }
  const Tensor out = at::empty({self.size(0), mat2.size(0)}, self.options());
  Nest(NPU_MATMUL, label, out.sizes())
      .contract(self.size(1), NPU_F32)
      .with(self)
      .with(mat2, {mat2.stride(1), mat2.stride(0)})
      .with(out)
      .with(scales, {0, scales.stride(0)})
      .run(epilogue(false, false));
  return out;
}

// -- npu_dynamic_quant --

Pair quant_results(const Tensor& x) {
  check_floating("npu_dynamic_quant", "x", x);
  TORCH_CHECK(x.dim() > 0, "npu_dynamic_quant: expected x of at least one dimension, got a number");
  return {at::empty_symint(x.sym_sizes(), x.options().dtype(at::kChar)),
          at::empty_symint(x.sym_sizes().slice(0, x.dim() - 1), x.options().dtype(at::kFloat))};
}

Pair quant_native(const Tensor& x) {
  constexpr const char* label = "npu::npu_dynamic_quant";
  auto [out, scale] = quant_results(x);
  Rows(label, x.sizes(), one_dim(x, -1)).add(out).reduced(scale).add(x).reduce(k_dynamic_quant.of(NPU_F32));
  return {out, scale};
}

Pair quant_composition(const Tensor& x) {
  quant_results(x);
  const Tensor wide = x.to(at::kFloat), top = wide.abs().amax(-1, /*keepdim=*/true);
  const Tensor by = (127 / top).masked_fill(top == 0, 0);
  return {at::round(wide * by).to(at::kChar).contiguous(), (top / 127).squeeze(-1)};
}

// -- npu_int8_linear --

void check_linear(const Tensor& x, const Tensor& weight, const Tensor& scale, const Tensor& bias) {
  constexpr const char* op = "npu_int8_linear";
  check_floating(op, "input", x);
  TORCH_CHECK_TYPE(weight.scalar_type() == at::kChar, op, ": expected weight of type Char (int8), got ",
                   weight.scalar_type(), "; torch_npu.quantization.quantize_ makes one");
  check_floating(op, "scale", scale);
  if (bias.defined()) check_floating(op, "bias", bias);
  check_same_device(op, {&x, &weight, &scale, &bias});
  TORCH_CHECK(weight.dim() == 2 && x.dim() > 0 && x.sym_size(-1) == weight.sym_size(1), op,
              ": expected input [..., k] and weight [n, k], got ", x.sym_sizes(), " and ", weight.sym_sizes());
  TORCH_CHECK(scale.dim() == 1 && scale.sym_size(0) == weight.sym_size(0), op, ": expected scale of ",
              weight.sym_size(0), " elements, one for each row of weight, got ", scale.sym_sizes());
  TORCH_CHECK(!bias.defined() || (bias.dim() == 1 && bias.sym_size(0) == weight.sym_size(0)), op, ": expected bias of ",
              weight.sym_size(0), " elements, got ", bias.defined() ? bias.sym_sizes() : x.sym_sizes());
}

Tensor empty_result(const Tensor& x, const Tensor& weight) {
  c10::SymDimVector sizes(x.sym_sizes());
  sizes.back() = weight.sym_size(0);
  return at::empty_symint(sizes, x.options());
}

Tensor linear_meta(const Tensor& x, const Tensor& weight, const Tensor& scale, const OptTensor& bias, bool) {
  check_linear(x, weight, scale, given(bias));
  return empty_result(x, weight);
}

Tensor linear_composition(const Tensor& x, const Tensor& weight, const Tensor& scale, const OptTensor& bias,
                          bool dynamic) {
  check_linear(x, weight, scale, given(bias));
  Tensor out;
  if (dynamic) {
    auto [rows, row_scale] = quant_composition(x);
    const Tensor sums = at::_int_mm(rows.reshape({-1, x.size(-1)}), weight.t());
    c10::DimVector sizes(x.sizes());
    sizes.back() = weight.size(0);
    out = sums.view(sizes).to(at::kFloat) * scale * row_scale.unsqueeze(-1);
  } else {
    out = at::matmul(x.to(at::kFloat), weight.to(at::kFloat).t()) * scale;
  }
  if (bias && bias->defined()) out = out + *bias;
  return out.to(x.scalar_type());
}

Tensor linear_native(const Tensor& x, const Tensor& weight, const Tensor& scale, const OptTensor& bias_opt,
                     bool dynamic) {
  constexpr const char* label = "npu::npu_int8_linear";
  const Tensor bias = given(bias_opt);
  check_linear(x, weight, scale, bias);
  const Tensor out = empty_result(x, weight);
  const int64_t m = x.numel() / std::max<int64_t>(1, x.size(-1)), n = weight.size(0);
  Tensor left = x.reshape({m, x.size(-1)}), row_scale;
  if (left.is_neg()) throw Unsupported(label);
  if (dynamic) std::tie(left, row_scale) = quant_native(left);
  Nest nest(NPU_MATMUL, label, {m, n});
  nest.contract(x.size(-1), dynamic ? NPU_I32 : NPU_F32)
      .with(left)
      .with(weight, {weight.stride(1), weight.stride(0)})
      .with(out, {n, 1})
      .with(scale, {0, scale.stride(0)});
  if (dynamic) nest.with(row_scale, {1, 0});
  if (bias.defined()) nest.with(bias, {0, bias.stride(0)});
  nest.run(epilogue(dynamic, bias.defined()));
  return out;
}

// The gradient of the input, as if the rows had not been rounded: (grad * scale) @ weight.
Tensor linear_backward_meta(const Tensor& grad, const Tensor& weight, const Tensor&) {
  c10::SymDimVector sizes(grad.sym_sizes());
  sizes.back() = weight.sym_size(1);
  return at::empty_symint(sizes, grad.options());
}

Tensor linear_backward_composition(const Tensor& grad, const Tensor& weight, const Tensor& scale) {
  return at::matmul(grad * scale.to(at::kFloat), weight.to(at::kFloat)).to(grad.scalar_type());
}

Tensor linear_backward_native(const Tensor& grad, const Tensor& weight, const Tensor& scale) {
  constexpr const char* label = "npu::npu_int8_linear_backward";
  const Tensor scaled = grad * scale.to(grad.scalar_type());
  const Tensor out = linear_backward_meta(grad, weight, scale);
  const int64_t k = grad.size(-1), m = grad.numel() / std::max<int64_t>(1, k);
  Nest(NPU_MATMUL, label, {m, weight.size(1)})
      .contract(k, NPU_F32)
      .with(scaled.contiguous(), {k, 1})
      .with(weight)
      .with(out, {weight.size(1), 1})
      .run();
  return out;
}

void linear_gradient(BackwardCall& call) {
  static const auto op = npu_op<Tensor(const Tensor&, const Tensor&, const Tensor&)>("npu::npu_int8_linear_backward");
  const Tensor& grad = call.grad(0);
  if (call.wants(0)) call.give(0, op.call(grad, call.argument(1), call.argument(2)));
  if (call.wants(3)) call.give(3, grad.reshape({-1, grad.size(-1)}).sum(0));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::_int_mm, int_mm>(m);
  register_native<at::_ops::_int_mm_out, int_mm_out>(m);
  register_native<at::_ops::_weight_int8pack_mm, weight_int8pack_mm>(m);
}

TORCH_LIBRARY_FRAGMENT(npu, m) {
  define<quant_native, quant_composition>(m, "npu_dynamic_quant(Tensor x) -> (Tensor, Tensor)", quant_results,
                                          {.constant = true});
  define<linear_native, linear_composition>(
      m, "npu_int8_linear(Tensor input, Tensor weight, Tensor scale, Tensor? bias=None, bool dynamic=False) -> Tensor",
      linear_meta, {{linear_gradient, {{0, places(1, 2)}, {3}}}, /*lower_precision=*/places(0)});
  define<linear_backward_native, linear_backward_composition>(
      m, "npu_int8_linear_backward(Tensor grad, Tensor weight, Tensor scale) -> Tensor", linear_backward_meta);
}

}  // namespace
}  // namespace torch_npu::int8_cpp
