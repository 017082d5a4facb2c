// Running folds along one dimension, one SCAN each.
#include <ATen/ops/_cummax_helper_ops.h>
#include <ATen/ops/_cummin_helper_ops.h>
#include <ATen/ops/_logcumsumexp_ops.h>
#include <ATen/ops/cumprod_meta.h>
#include <ATen/ops/cumprod_ops.h>
#include <ATen/ops/cumsum_meta.h>
#include <ATen/ops/cumsum_ops.h>

#include "csrc/aten/dispatch/complex.h"
#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::scan_cpp {
namespace {

using at::Tensor;

#define NPU_SCAN_TEXT(name, kind)                                          \
  "program " name "(out, x)\neach:\n  %x = load x : $t\n  %s = scan " kind \
  " %x\neach:\n"                                                           \
  "  store out, %s\n"

TypedProgram k_cumsum(NPU_SCAN_TEXT("cumsum", "sum"));
TypedProgram k_cumprod(NPU_SCAN_TEXT("cumprod", "prod"));

// The later of equals wins, and a NaN stays once it is there; `nan` says whether the right value is one.
#define NPU_CUM_ARG(name, order, nan)                                                            \
  "program " name                                                                                \
  "(values, positions, x)\ncombine:\n  %a = arg 0 : $t\n  %i = arg 1 : i64\n"                    \
  "  %b = arg 2 : $t\n  %j = arg 3 : i64\n  %o = " order " %b, %a\n" nan                         \
  "  %v = where %t, %b, %a\n  %k = where %t, %j, %i\n  yield 0, %v\n  yield 1, %k\neach:\n"      \
  "  %x = load x : $t\n  %n = index 7\n  %s = scan custom %x, %n\neach:\n  %value = get %s, 0\n" \
  "  %at = get %s, 1\n  store values, %value\n  store positions, %at\n"
#define NPU_OR_NAN "  %nan = isnan %b\n  %t = or %o, %nan\n"
#define NPU_NO_NAN "  %t = or %o, %o\n"

TypedProgram k_cummax(NPU_CUM_ARG("cummax", "ge", NPU_OR_NAN));
TypedProgram k_cummin(NPU_CUM_ARG("cummin", "le", NPU_OR_NAN));
TypedProgram k_cummax_int(NPU_CUM_ARG("cummax_int", "ge", NPU_NO_NAN));
TypedProgram k_cummin_int(NPU_CUM_ARG("cummin_int", "le", NPU_NO_NAN));

TypedProgram k_logcumsumexp(R"(
program logcumsumexp(out, x)
combine:
  %left = arg 0 : $t
  %right = arg 1 : $t
  %max = max %left, %right
  %min = min %left, %right
  %d = sub %min, %max
  %e = exp %d
  %l = log1p %e
  %s = add %max, %l
  %same = eq %left, %right       # two infinities of one sign
  %inf = isinf %left
  %stay = and %same, %inf
  %result = where %stay, %left, %s
  yield 0, %result
each:
  %x = load x : $t
  %run = scan custom %x
each:
  store out, %run
)");

// Of complex numbers: both parts are members of the scan.
#define NPU_COMPLEX_SCAN(name, lines)                                                                                \
  "program " name                                                                                                    \
  "(out_re, out_im, x_re, x_im)\ncombine:\n  %a = arg 0 : $t\n  %b = arg 1 : $t\n  %c = arg 2 : $t\n"                \
  "  %d = arg 3 : $t\n" lines                                                                                        \
  "  yield 0, %re\n  yield 1, %im\neach:\n  %x = load x_re : $t\n  %y = load x_im : $t\n  %s = scan custom %x, %y\n" \
  "each:\n  %r = get %s, 0\n  %i = get %s, 1\n  store out_re, %r\n  store out_im, %i\n"

TypedProgram k_complex_cumprod(NPU_COMPLEX_SCAN("complex_cumprod", R"(
  %ac = mul %a, %c
  %bd = mul %b, %d
  %ad = mul %a, %d
  %bc = mul %b, %c
  %re = sub %ac, %bd
  %im = add %ad, %bc
)"));

// high + log1p(exp(low - high)), ordered by the real parts; two infinite ones that are equal stay, if they are
// negative.
TypedProgram k_complex_logcumsumexp(NPU_COMPLEX_SCAN("complex_logcumsumexp", R"(
  %less = lt %a, %c
  %lr = where %less, %a, %c
  %li = where %less, %b, %d
  %hr = where %less, %c, %a
  %hi = where %less, %d, %b
  %dr = sub %lr, %hr
  %di = sub %li, %hi
  %e = exp %dr
  %cos = cos %di
  %sin = sin %di
  %er = mul %e, %cos
  %ei = mul %e, %sin
  %one = const 1 : $t
  %sr = add %one, %er
  %angle = atan2 %ei, %sr
  %two = const 2 : $t
  %half = const 0.5 : $t
  %e2 = add %two, %er
  %m = mul %er, %e2
  %ii = mul %ei, %ei
  %mm = add %m, %ii
  %l = log1p %mm
  %log = mul %l, %half
  %tr = add %hr, %log
  %ti = add %hi, %angle
  %same = eq %a, %c
  %inf = isinf %a
  %stay = and %same, %inf
  %re = where %stay, %lr, %tr
  %im = where %stay, %li, %ti
)"));

void complex_scan(TypedProgram& program, npu_dtype compute, const Tensor& out, const Tensor& self, int64_t dim,
                  const char* label) {
  const Tensor x = self.to(out.scalar_type());
  Rows(label, self.sizes(), one_dim(self, dim))
      .add(real_part(out))
      .add(imag_part(out))
      .add(real_part(x))
      .add(imag_part(x))
      .scan(program.of(compute));
}

template <TypedProgram& program>
void launch_cum(at::impl::MetaBase& op, const Tensor& out, const Tensor& self, int64_t dim,
                std::optional<at::ScalarType> dtype) {
  const char* label = &program == &k_cumsum ? "aten::cumsum" : "aten::cumprod";
  if (out.is_complex()) {
    if (&program == &k_cumprod) {
      const npu_dtype part = part_dtype(out.scalar_type());
      return complex_scan(k_complex_cumprod, part, out, self, dim, label);
    }
    if (self.dim() == 0) {
      out.copy_(self);
      return;
    }
    const int64_t wrapped = at::maybe_wrap_dim(dim, self.dim());
    return launch_cum<program>(op, parts(out), parts(self.to(out.scalar_type())), wrapped, dtype);
  }
  const npu_dtype type = compute_type(out, label);
  Rows(label, self.sizes(), one_dim(self, dim)).add(out).add(self).scan(program.of(type == NPU_BOOL ? NPU_I64 : type));
}

void cum_arg(TypedProgram& floats, TypedProgram& integers, const Tensor& self, const Tensor& values,
             const Tensor& indices, int64_t dim, const char* label) {
  const npu_dtype type = compute_type(self, label);
  Rows(label, self.sizes(), one_dim(self, dim))
      .indexed()
      .add(values)
      .add(indices)
      .add(self)
      .scan((is_float(type) ? floats : integers).of(type));
}

void cummax_helper(const Tensor& self, Tensor& values, Tensor& indices, int64_t dim) {
  cum_arg(k_cummax, k_cummax_int, self, values, indices, dim, "aten::cummax");
}
void cummin_helper(const Tensor& self, Tensor& values, Tensor& indices, int64_t dim) {
  cum_arg(k_cummin, k_cummin_int, self, values, indices, dim, "aten::cummin");
}

Tensor& logcumsumexp_out(const Tensor& self, int64_t dim, Tensor& out) {
  const char* label = "aten::_logcumsumexp";
  at::native::resize_output(out, self.sizes());
  if (out.scalar_type() != self.scalar_type()) {
    throw Unsupported(label);
  }
  // In double, as PyTorch on the CPU: its gradient subtracts neighbours of the result.
  if (self.is_complex()) {
    complex_scan(k_complex_logcumsumexp, NPU_F64, out, self, dim, label);
    return out;
  }
  const npu_dtype type = self.scalar_type() == at::kFloat ? NPU_F64 : compute_type(self, label);
  Rows(label, self.sizes(), one_dim(self, dim)).add(out).add(self).scan(k_logcumsumexp.of(type));
  return out;
}

Tensor logcumsumexp(const Tensor& self, int64_t dim) {
  Tensor out = make_empty(self.sizes(), {}, self.options());
  return logcumsumexp_out(self, dim, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  structured<at::meta::structured_cumsum, launch_cum<k_cumsum>>(m)
      .functional<ops::cumsum>()
      .inplace<ops::cumsum_>()
      .out<ops::cumsum_out>();
  structured<at::meta::structured_cumprod, launch_cum<k_cumprod>>(m)
      .functional<ops::cumprod>()
      .inplace<ops::cumprod_>()
      .out<ops::cumprod_out>();
  register_native<ops::_cummax_helper, cummax_helper>(m);
  register_native<ops::_cummin_helper, cummin_helper>(m);
  register_native<ops::_logcumsumexp, logcumsumexp>(m);
  register_native<ops::_logcumsumexp_out, logcumsumexp_out>(m);
}

}  // namespace
}  // namespace torch_npu::scan_cpp
