// Reductions, one REDUCE each. The input is converted on load, so no cast of it is ever written to memory.
#include <ATen/TensorOperators.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/all_meta.h>
#include <ATen/ops/all_ops.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/amax_meta.h>
#include <ATen/ops/amax_ops.h>
#include <ATen/ops/amin_meta.h>
#include <ATen/ops/amin_ops.h>
#include <ATen/ops/any_meta.h>
#include <ATen/ops/any_ops.h>
#include <ATen/ops/count_nonzero_ops.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/log.h>
#include <ATen/ops/logsumexp_ops.h>
#include <ATen/ops/max_ops.h>
#include <ATen/ops/mean_meta.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/min_ops.h>
#include <ATen/ops/nansum_ops.h>
#include <ATen/ops/prod_meta.h>
#include <ATen/ops/prod_ops.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/sum_meta.h>
#include <ATen/ops/sum_ops.h>

#include "csrc/aten/dispatch/complex.h"
#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::reduce_cpp {
namespace {

using at::Tensor;
using at::native::make_dim_mask;

TypedProgram k_sum("program sum(out, x)\neach:\n  %x = load x : $t\n  %s = fold sum %x\nrow:\n  store out, %s\n");
TypedProgram k_prod("program prod(out, x)\neach:\n  %x = load x : $t\n  %s = fold prod %x\nrow:\n  store out, %s\n");
TypedProgram k_max("program amax(out, x)\neach:\n  %x = load x : $t\n  %s = fold max %x\nrow:\n  store out, %s\n");
TypedProgram k_min("program amin(out, x)\neach:\n  %x = load x : $t\n  %s = fold min %x\nrow:\n  store out, %s\n");
TypedProgram k_any("program any(out, x)\neach:\n  %x = load x : bool\n  %s = fold or %x\nrow:\n  store out, %s\n");
TypedProgram k_all("program all(out, x)\neach:\n  %x = load x : bool\n  %s = fold and %x\nrow:\n  store out, %s\n");

TypedProgram k_mean(R"(
formula mean(out, x; n)
each:
  %s = fold(sum, x)
row:
  out = %s / n
)");

TypedProgram k_nansum(R"(
formula nansum(out, x)
each:
  %s = fold(sum, where(isnan(x), 0, x))
row:
  out = %s
)");

TypedProgram k_count_nonzero(R"(
formula count_nonzero(out, x): bool
each:
  %s = fold(sum, i64(x))
row:
  out = %s
)");

// Shifted by the maximum, unless that is infinite: then exp gives what the sum needs.
TypedProgram k_logsumexp(R"(
formula logsumexp(out, x)
each:
  %max = fold(max, x)
row:
  %shift = where(isinf(%max), 0, %max)
each:
  %s = fold(sum, exp(x - %shift))
row:
  out = log(%s) + %shift
)");

void fold(TypedProgram& program, npu_dtype compute, const Tensor& out, const Tensor& self, DimMask mask,
          const char* label, Params params = {}) {
  Rows(label, self.sizes(), mask).reduced(out).add(self).reduce(program.of(compute), params);
}

int64_t folded_size(const Tensor& self, DimMask mask) {
  int64_t n = 1;
  for (int64_t d = 0; d < self.dim(); ++d) {
    n *= mask[d] ? self.size(d) : 1;
  }
  return n;
}

// A complex sum is two real ones.
bool fold_parts(TypedProgram& program, const Tensor& out, const Tensor& self, DimMask mask, bool keepdim,
                const char* label, Params params = {}) {
  if (!out.is_complex()) {
    return false;
  }
  const Tensor from = parts(self.is_complex() ? self : self.to(out.scalar_type()));
  mask[self.dim()] = false;
  const Tensor to = parts(at::native::review_reduce_result(out, self.dim(), mask, keepdim));
  fold(program, compute_type(to, label), to, from, mask, label, params);
  return true;
}

TypedProgram k_complex_prod(R"(
formula complex_prod(out_re, out_im, x_re, x_im)
combine:
  %a = arg(0)
  %b = arg(1)
  %c = arg(2)
  %d = arg(3)
  yield(0, %a * %c - %b * %d)
  yield(1, %a * %d + %b * %c)
each:
  %p = fold(custom, x_re, x_im)
row:
  out_re = get(%p, 0)
  out_im = get(%p, 1)
)");

// Sums and products of bool have an integer type.
npu_dtype sum_type(const Tensor& out, const char* label) {
  const npu_dtype type = compute_type(out, label);
  return type == NPU_BOOL ? NPU_I64 : type;
}

DimMask clipped(at::OptionalIntArrayRef dim, const Tensor& self) {
  DimMask mask = make_dim_mask(dim, self.dim());
  for (size_t d = self.dim(); d < mask.size(); ++d) {
    mask[d] = false;
  }
  return mask;
}

void launch_sum(at::impl::MetaBase&, const Tensor& out, const Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                std::optional<at::ScalarType>) {
  const DimMask mask = clipped(dim, self);
  if (!fold_parts(k_sum, out, self, mask, keepdim, "aten::sum")) {
    fold(k_sum, sum_type(out, "aten::sum"), out, self, mask, "aten::sum");
  }
}

void launch_mean(at::impl::MetaBase&, const Tensor& out, const Tensor& self, at::OptionalIntArrayRef dim, bool keepdim,
                 std::optional<at::ScalarType>) {
  const DimMask mask = clipped(dim, self);
  const npu_scalar n = number(static_cast<double>(folded_size(self, mask)));
  if (!fold_parts(k_mean, out, self, mask, keepdim, "aten::mean", {n})) {
    fold(k_mean, compute_type(out, "aten::mean"), out, self, mask, "aten::mean", {n});
  }
}

void fold_prod(const Tensor& out, const Tensor& self, DimMask mask) {
  constexpr const char* label = "aten::prod";
  if (!out.is_complex()) {
    return fold(k_prod, sum_type(out, label), out, self, mask, label);
  }
  if (folded_size(self, mask) == 0) {
    out.fill_(1);
    return;
  }
  const Tensor x = self.to(out.scalar_type());
  const Tensor re = real_part(out), im = imag_part(out);
  Rows(label, self.sizes(), mask)
      .reduced(re)
      .reduced(im)
      .add(real_part(x))
      .add(imag_part(x))
      .reduce(k_complex_prod.of(compute_type(re, label)));
}

void launch_prod_dim(at::impl::MetaBase&, const Tensor& out, const Tensor& self, int64_t dim, bool,
                     std::optional<at::ScalarType>) {
  fold_prod(out, self, clipped(dim, self));
}

Tensor prod(const Tensor& self, std::optional<at::ScalarType> dtype) {
  const Tensor out = make_empty({}, {}, self.options().dtype(at::native::get_dtype_from_self(self, dtype, true)));
  fold_prod(out, self, clipped(std::nullopt, self));
  return out;
}

template <TypedProgram& program>
void launch_extreme(at::impl::MetaBase&, const Tensor& out, const Tensor& self, at::IntArrayRef dim, bool) {
  fold(program, compute_type(self, "aten::amax"), out, self, clipped(dim, self),
       &program == &k_max ? "aten::amax" : "aten::amin");
}

Tensor extreme_all(TypedProgram& program, const Tensor& self, const char* label, const char* name) {
  TORCH_CHECK(self.numel() > 0, name,
              "(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
              "'dim' argument.");
  const Tensor out = make_empty({}, {}, self.options());
  fold(program, compute_type(self, label), out, self, clipped(std::nullopt, self), label);
  return out;
}

Tensor max_all(const Tensor& self) {
  return extreme_all(k_max, self, "aten::max", "max");
}
Tensor min_all(const Tensor& self) {
  return extreme_all(k_min, self, "aten::min", "min");
}

Tensor& extreme_all_out(TypedProgram& program, const Tensor& self, Tensor& out, const char* label) {
  TORCH_CHECK(self.device() == out.device());
  TORCH_CHECK(at::canCast(self.scalar_type(), out.scalar_type()));
  at::native::resize_output(out, {});
  fold(program, compute_type(self, label), out, self, clipped(std::nullopt, self), label);
  return out;
}
Tensor& max_all_out(const Tensor& self, Tensor& out) {
  return extreme_all_out(k_max, self, out, "aten::max");
}
Tensor& min_all_out(const Tensor& self, Tensor& out) {
  return extreme_all_out(k_min, self, out, "aten::min");
}

template <TypedProgram& program>
struct Truth {
  static constexpr const char* kLabel = &program == &k_any ? "aten::any" : "aten::all";
  static void fold(TypedProgram& k, npu_dtype compute, const Tensor& out, const Tensor& self, DimMask mask,
                   const char* label) {
    reduce_cpp::fold(k, compute, out, self.is_complex() ? truth(self) : self, mask, label);
  }
  static void dim(at::impl::MetaBase&, const Tensor& out, const Tensor& self, int64_t dim, bool) {
    fold(program, NPU_BOOL, out, self, clipped(dim, self), kLabel);
  }
  static void dims(at::impl::MetaBase&, const Tensor& out, const Tensor& self, at::OptionalIntArrayRef dims, bool) {
    // An empty list folds nothing: it is only the conversion to bool.
    const bool none = dims.has_value() && dims->empty();
    fold(program, NPU_BOOL, out, self, none ? DimMask() : clipped(dims, self), kLabel);
  }
  static void whole(at::impl::MetaBase&, const Tensor& out, const Tensor& self) {
    fold(program, NPU_BOOL, out, self, clipped(std::nullopt, self), kLabel);
  }
};

Tensor reduced_empty(const Tensor& self, DimMask mask, bool keepdim, at::ScalarType dtype) {
  return make_empty(at::native::shape_from_dim_mask(self, mask, keepdim), {}, self.options().dtype(dtype));
}

void fold_nansum(const Tensor& out, const Tensor& self, DimMask mask) {
  TORCH_CHECK(!self.is_complex(), "nansum does not support complex inputs");
  const npu_dtype type = sum_type(out, "aten::nansum");
  fold(is_float(type) ? k_nansum : k_sum, type, out, self, mask, "aten::nansum");
}

Tensor nansum(const Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, std::optional<at::ScalarType> dtype) {
  const DimMask mask = clipped(dim, self);
  const Tensor out = reduced_empty(self, mask, keepdim, at::native::get_dtype_from_self(self, dtype, true));
  fold_nansum(out, self, mask);
  return out;
}

Tensor& nansum_out(const Tensor& self, at::OptionalIntArrayRef dim, bool keepdim, std::optional<at::ScalarType> dtype,
                   Tensor& out) {
  if (dtype.value_or(out.scalar_type()) != out.scalar_type()) {
    throw Unsupported("aten::nansum");  // for PyTorch's own sentence
  }
  const DimMask mask = clipped(dim, self);
  at::native::resize_output(out, at::native::shape_from_dim_mask(self, mask, keepdim));
  fold_nansum(out, self, mask);
  return out;
}

Tensor count_nonzero(const Tensor& self, at::IntArrayRef dim) {
  const DimMask mask = clipped(dim, self);
  const Tensor out = reduced_empty(self, mask, false, at::kLong);
  fold(k_count_nonzero, NPU_I64, out, self.is_complex() ? truth(self) : self, mask, "aten::count_nonzero");
  return out;
}

at::ScalarType float_type(const Tensor& self) {
  return at::isIntegralType(self.scalar_type(), /*includeBool=*/true)
             ? at::typeMetaToScalarType(at::get_default_dtype())
             : self.scalar_type();
}

// Shifted by the greatest real part.
void complex_logsumexp(Tensor& out, const Tensor& self, at::IntArrayRef dim, bool keepdim) {
  if (self.numel() == 0) {
    out.fill_(-std::numeric_limits<double>::infinity());
    return;
  }
  const Tensor real = real_part(self);
  const Tensor top = at::amax(real, dim, /*keepdim=*/true);
  const Tensor shift = top.masked_fill(top.abs() == std::numeric_limits<double>::infinity(), 0);
  at::sum_out(out, at::exp(self - shift), dim, keepdim).log_();
  at::native::review_reduce_result(out, static_cast<int>(self.dim()), clipped(dim, self), keepdim).add_(shift);
}

Tensor logsumexp(const Tensor& self, at::IntArrayRef dim, bool keepdim) {
  const DimMask mask = clipped(dim, self);
  Tensor out = reduced_empty(self, mask, keepdim, float_type(self));
  if (self.is_complex()) {
    complex_logsumexp(out, self, dim, keepdim);
    return out;
  }
  fold(k_logsumexp, compute_type(out, "aten::logsumexp"), out, self, mask, "aten::logsumexp");
  return out;
}

Tensor& logsumexp_out(const Tensor& self, at::IntArrayRef dim, bool keepdim, Tensor& out) {
  TORCH_CHECK(at::isFloatingType(out.scalar_type()) || at::isComplexType(out.scalar_type()),
              "logsumexp(): Expected floating point type for result tensor, but got: ", out.scalar_type());
  const DimMask mask = clipped(dim, self);
  at::native::resize_output(out, at::native::shape_from_dim_mask(self, mask, keepdim));
  if (self.is_complex() && out.scalar_type() == self.scalar_type()) {
    complex_logsumexp(out, self, dim, keepdim);
    return out;
  }
  fold(k_logsumexp, compute_type(out, "aten::logsumexp"), out, self, mask, "aten::logsumexp");
  return out;
}

template <auto Launch, class Meta, class Op, class OutOp>
void both(torch::Library& m) {
  structured<Meta, Launch>(m).template functional<Op>().template out<OutOp>();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace meta = at::meta;
  namespace ops = at::_ops;
  both<launch_sum, meta::structured_sum_dim_IntList, ops::sum_dim_IntList, ops::sum_IntList_out>(m);
  both<launch_mean, meta::structured_mean_dim, ops::mean_dim, ops::mean_out>(m);
  both<launch_prod_dim, meta::structured_prod_dim_int, ops::prod_dim_int, ops::prod_int_out>(m);
  both<launch_extreme<k_max>, meta::structured_amax, ops::amax, ops::amax_out>(m);
  both<launch_extreme<k_min>, meta::structured_amin, ops::amin, ops::amin_out>(m);
  both<Truth<k_any>::dim, meta::structured_any_dim, ops::any_dim, ops::any_out>(m);
  both<Truth<k_any>::dims, meta::structured_any_dims, ops::any_dims, ops::any_dims_out>(m);
  both<Truth<k_any>::whole, meta::structured_any, ops::any, ops::any_all_out>(m);
  both<Truth<k_all>::dim, meta::structured_all_dim, ops::all_dim, ops::all_out>(m);
  both<Truth<k_all>::dims, meta::structured_all_dims, ops::all_dims, ops::all_dims_out>(m);
  both<Truth<k_all>::whole, meta::structured_all, ops::all, ops::all_all_out>(m);
  register_native<ops::prod, prod>(m);
  register_native<ops::max, max_all>(m);
  register_native<ops::max_unary_out, max_all_out>(m);
  register_native<ops::min, min_all>(m);
  register_native<ops::min_unary_out, min_all_out>(m);
  register_native<ops::nansum, nansum>(m);
  register_native<ops::nansum_out, nansum_out>(m);
  register_native<ops::count_nonzero_dim_IntList, count_nonzero>(m);
  register_native<ops::logsumexp, logsumexp>(m);
  register_native<ops::logsumexp_out, logsumexp_out>(m);
}

}  // namespace
}  // namespace torch_npu::reduce_cpp
