// Variances (Welford's fold) and vector norms, one REDUCE each.
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/linalg_vector_norm_meta.h>
#include <ATen/ops/linalg_vector_norm_ops.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/norm_ops.h>
#include <ATen/ops/std_mean_ops.h>
#include <ATen/ops/std_ops.h>
#include <ATen/ops/var.h>
#include <ATen/ops/var_mean_ops.h>
#include <ATen/ops/var_ops.h>

#include <cmath>

#include "csrc/aten/dispatch/complex.h"
#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::reduce_moments_cpp {
namespace {

using at::Tensor;

// `by` is the divisor: the number of elements less the correction, at least 0. The mean of no elements is 0 / 0.
std::string moments_text(bool root, bool with_mean) {
  const std::string variance = "get(%w, 1) / by";
  return std::string("formula moments(out") + (with_mean ? ", mean" : "") +
         ", x; by, n)\neach:\n  %w = fold(welford, x)\nrow:\n  out = " + (root ? "sqrt(" + variance + ")" : variance) +
         (with_mean ? "\n  mean = get(%w, 0) + 0 / n\n" : "\n");
}
TypedProgram k_var(moments_text(false, false)), k_std(moments_text(true, false));
TypedProgram k_var_mean(moments_text(false, true)), k_std_mean(moments_text(true, true));

// "aten::var" without its namespace, for sentences.
const char* op_of(const char* label) {
  return label + 6;
}

void fold_moments(TypedProgram& program, const Tensor& out, const Tensor& mean, const Tensor& self, DimMask mask,
                  const std::optional<at::Scalar>& correction, const char* label) {
  double n = 1;
  for (int64_t d = 0; d < self.dim(); ++d) {
    n *= mask[d] ? static_cast<double>(self.size(d)) : 1;
  }
  const double by = n - correction.value_or(1).toDouble();
  if (by <= 0 && out.numel() > 0) {
    TORCH_WARN(op_of(label),
               "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input "
               "numel divided by output numel).");
  }
  Rows rows(label, self.sizes(), mask);
  rows.reduced(out);
  if (mean.defined()) {
    rows.reduced(mean);
  }
  rows.add(self).reduce(program.of(compute_type(out, label)), {number(std::max(by, 0.0)), number(n)});
}

void check_moments(const Tensor& self, const char* name) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()), name,
              " only support floating point and complex dtypes");
}

// The variance of complex numbers is that of their real parts plus that of their imaginary ones.
Tensor complex_moment(TypedProgram& program, const Tensor& self, at::OptionalIntArrayRef dim,
                      const std::optional<at::Scalar>& correction, bool keepdim) {
  Tensor out = at::var(real_part(self), dim, correction, keepdim);
  out.add_(at::var(imag_part(self), dim, correction, keepdim));
  return &program == &k_std || &program == &k_std_mean ? out.sqrt_() : out;
}

Tensor moment(TypedProgram& program, const Tensor& self, at::OptionalIntArrayRef dim,
              const std::optional<at::Scalar>& correction, bool keepdim, const char* name) {
  check_moments(self, "std and var");
  if (self.is_complex()) {
    return complex_moment(program, self, dim, correction, keepdim);
  }
  const DimMask mask = at::native::make_dim_mask(dim, self.dim());
  const Tensor out = make_empty(at::native::shape_from_dim_mask(self, mask, keepdim), {}, self.options());
  fold_moments(program, out, {}, self, mask, correction, name);
  return out;
}

Tensor& moment_out(TypedProgram& program, const Tensor& self, at::OptionalIntArrayRef dim,
                   const std::optional<at::Scalar>& correction, bool keepdim, Tensor& out, const char* name) {
  check_moments(self, "std and var");
  if (out.scalar_type() != c10::toRealValueType(self.scalar_type())) {
    throw Unsupported(name);  // for PyTorch's own rules and sentences
  }
  if (self.is_complex()) {
    const Tensor value = complex_moment(program, self, dim, correction, keepdim);
    at::native::resize_output(out, value.sizes());
    return out.copy_(value);
  }
  const DimMask mask = at::native::make_dim_mask(dim, self.dim());
  at::native::resize_output(out, at::native::shape_from_dim_mask(self, mask, keepdim));
  fold_moments(program, out, {}, self, mask, correction, name);
  return out;
}

std::tuple<Tensor, Tensor> moment_mean(TypedProgram& program, const Tensor& self, at::OptionalIntArrayRef dim,
                                       const std::optional<at::Scalar>& correction, bool keepdim, const char* name) {
  check_moments(self, op_of(name));
  if (self.is_complex()) {
    return {complex_moment(program, self, dim, correction, keepdim), at::mean(self, dim, keepdim)};
  }
  const DimMask mask = at::native::make_dim_mask(dim, self.dim());
  const auto shape = at::native::shape_from_dim_mask(self, mask, keepdim);
  const Tensor out = make_empty(shape, {}, self.options());
  const Tensor mean = make_empty(shape, {}, self.options());
  fold_moments(program, out, mean, self, mask, correction, name);
  return {out, mean};
}

using Dims = at::OptionalIntArrayRef;
using Correction = std::optional<at::Scalar>;

Tensor var(const Tensor& self, Dims dim, const Correction& correction, bool keepdim) {
  return moment(k_var, self, dim, correction, keepdim, "aten::var");
}
Tensor std_dev(const Tensor& self, Dims dim, const Correction& correction, bool keepdim) {
  return moment(k_std, self, dim, correction, keepdim, "aten::std");
}
Tensor& var_out(const Tensor& self, Dims dim, const Correction& correction, bool keepdim, Tensor& out) {
  return moment_out(k_var, self, dim, correction, keepdim, out, "aten::var");
}
Tensor& std_out(const Tensor& self, Dims dim, const Correction& correction, bool keepdim, Tensor& out) {
  return moment_out(k_std, self, dim, correction, keepdim, out, "aten::std");
}
std::tuple<Tensor, Tensor> var_mean(const Tensor& self, Dims dim, const Correction& correction, bool keepdim) {
  return moment_mean(k_var_mean, self, dim, correction, keepdim, "aten::var_mean");
}
std::tuple<Tensor, Tensor> std_mean(const Tensor& self, Dims dim, const Correction& correction, bool keepdim) {
  return moment_mean(k_std_mean, self, dim, correction, keepdim, "aten::std_mean");
}

#define NPU_NORM(name, value, kind, result)                                                              \
  "program " name "(out, x; p, q)\neach:\n  %x = load x : $t\n  %a = abs %x\n" value "  %s = fold " kind \
  " %v\n"                                                                                                \
  "row:\n" result "  store out, %r\n"

TypedProgram k_norm0(NPU_NORM("norm_0", "  %b = cast %a : bool\n  %v = cast %b : $t\n", "sum", "  %r = abs %s\n"));
TypedProgram k_norm1(
    "program norm_1(out, x)\neach:\n  %x = load x : $t\n  %a = abs %x\n  %s = fold sum %a\nrow:\n"
    "  store out, %s\n");
TypedProgram k_norm2(NPU_NORM("norm_2", "  %v = mul %x, %x\n", "sum", "  %r = sqrt %s\n"));
TypedProgram k_norm_inf(
    "program norm_inf(out, x)\neach:\n  %x = load x : $t\n  %a = abs %x\n  %s = fold max %a\nrow:\n"
    "  %r = abs %s\n  store out, %r\n");
TypedProgram k_norm_min(
    "program norm_min(out, x)\neach:\n  %x = load x : $t\n  %a = abs %x\n  %s = fold min %a\nrow:\n"
    "  store out, %s\n");
TypedProgram k_norm_p(NPU_NORM("norm_p", "  %p = param p : $t\n  %v = pow %a, %p\n", "sum",
                               "  %q = param q : $t\n  %r = pow %s, %q\n"));

void launch_vector_norm(at::impl::MetaBase& op, const Tensor& out, const Tensor& self, const at::Scalar& ord, Dims dim,
                        bool keepdim, std::optional<at::ScalarType>) {
  const char* label = "aten::linalg_vector_norm";
  const double p = ord.toDouble();
  if (self.is_complex()) {
    const Tensor wide = self.to(c10::toComplexType(out.scalar_type()));
    if (p != 2) {
      return launch_vector_norm(op, out, at::abs(wide), ord, dim, keepdim, {});
    }
    // The squares of both parts.
    const Tensor both = parts(wide);
    DimMask mask = at::native::make_dim_mask(dim, self.dim());
    mask[self.dim()] = true;
    const Tensor whole = at::native::review_reduce_result(out, static_cast<int>(self.dim()), mask, keepdim);
    Rows(label, both.sizes(), mask)
        .reduced(whole.unsqueeze(-1))
        .add(both)
        .reduce(k_norm2.of(compute_type(out, label)), {number(2), number(0.5)});
    return;
  }
  TypedProgram& program = p == 0           ? k_norm0
                          : p == 1         ? k_norm1
                          : p == 2         ? k_norm2
                          : !std::isinf(p) ? k_norm_p
                          : p > 0          ? k_norm_inf
                                           : k_norm_min;
  Rows(label, self.sizes(), at::native::make_dim_mask(dim, self.dim()))
      .reduced(out)
      .add(self)
      .reduce(program.of(compute_type(out, label)), {number(p), number(1 / p)});
}

void check_norm(const Tensor& self, std::optional<at::ScalarType> dtype) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()),
              "norm(): input dtype should be either floating point or complex. Got ", self.scalar_type(), " instead.");
  if (dtype) {
    TORCH_CHECK(at::isFloatingType(*dtype) || at::isComplexType(*dtype),
                "norm(): the desired output dtype should be either floating point or complex. Got ", *dtype,
                " instead.");
  }
}

Tensor norm(const Tensor& self, const std::optional<at::Scalar>& p, at::IntArrayRef dim, bool keepdim) {
  check_norm(self, {});
  return at::_ops::linalg_vector_norm::call(self, p.value_or(2), dim, keepdim, {});
}
Tensor norm_dtype(const Tensor& self, const std::optional<at::Scalar>& p, at::IntArrayRef dim, bool keepdim,
                  at::ScalarType dtype) {
  check_norm(self, dtype);
  return at::_ops::linalg_vector_norm::call(self, p.value_or(2), dim, keepdim, dtype);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_native<ops::var_correction, var>(m);
  register_native<ops::std_correction, std_dev>(m);
  register_native<ops::var_correction_out, var_out>(m);
  register_native<ops::std_correction_out, std_out>(m);
  register_native<ops::var_mean_correction, var_mean>(m);
  register_native<ops::std_mean_correction, std_mean>(m);
  structured<at::meta::structured_linalg_vector_norm, launch_vector_norm>(m)
      .functional<ops::linalg_vector_norm>()
      .out<ops::linalg_vector_norm_out>();
  register_native<ops::norm_ScalarOpt_dim, norm>(m);
  register_native<ops::norm_ScalarOpt_dim_dtype, norm_dtype>(m);
}

}  // namespace
}  // namespace torch_npu::reduce_moments_cpp
