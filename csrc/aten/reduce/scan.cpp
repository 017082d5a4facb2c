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

TypedProgram k_cumsum("formula cumsum(out, x)\neach:\n  %s = scan(sum, x)\neach:\n  out = %s\n");
TypedProgram k_cumprod("formula cumprod(out, x)\neach:\n  %s = scan(prod, x)\neach:\n  out = %s\n");

// The later of equals wins, and a NaN stays once it is there: `wins` of %left and %right.
std::string cum_arg_text(const char* name, const char* wins) {
  return std::string("formula ") + name + R"((values, positions, x)
combine:
  %left = arg(0)
  %right = arg(2)
  %later = )" +
         wins + R"(
  yield(0, where(%later, %right, %left))
  yield(1, where(%later, arg(3, i64), arg(1, i64)))
each:
  %s = scan(custom, x, index(7))
each:
  values = get(%s, 0)
  positions = get(%s, 1)
)";
}

TypedProgram k_cummax(cum_arg_text("cummax", "%right >= %left or isnan(%right)"));
TypedProgram k_cummin(cum_arg_text("cummin", "%right <= %left or isnan(%right)"));
TypedProgram k_cummax_int(cum_arg_text("cummax_int", "%right >= %left"));
TypedProgram k_cummin_int(cum_arg_text("cummin_int", "%right <= %left"));

TypedProgram k_logcumsumexp(R"(
formula logcumsumexp(out, x)
combine:
  %left = arg(0)
  %right = arg(1)
  %max = max(%left, %right)
  # two infinities of one sign
  %result = where(%left == %right and isinf(%left), %left, %max + log1p(exp(min(%left, %right) - %max)))
  yield(0, %result)
each:
  %run = scan(custom, x)
each:
  out = %run
)");

// Of complex numbers: both parts are members of the scan.
std::string complex_scan_text(const char* name, const char* lines) {
  return std::string("formula ") + name + "(out_re, out_im, x_re, x_im)\ncombine:" + lines + R"(
  yield(0, %re)
  yield(1, %im)
each:
  %s = scan(custom, x_re, x_im)
each:
  out_re = get(%s, 0)
  out_im = get(%s, 1)
)";
}

TypedProgram k_complex_cumprod(complex_scan_text("complex_cumprod", R"(
  %re = arg(0) * arg(2) - arg(1) * arg(3)
  %im = arg(0) * arg(3) + arg(1) * arg(2)
)"));

// high + log1p(exp(low - high)), ordered by the real parts; two infinite ones that are equal stay, if they are
// negative.
TypedProgram k_complex_logcumsumexp(complex_scan_text("complex_logcumsumexp", R"(
  %less = arg(0) < arg(2)
  %lr = where(%less, arg(0), arg(2))
  %li = where(%less, arg(1), arg(3))
  %hr = where(%less, arg(2), arg(0))
  %hi = where(%less, arg(3), arg(1))
  %e = exp(%lr - %hr)
  %er = %e * cos(%li - %hi)
  %ei = %e * sin(%li - %hi)
  %log = log1p(%er * (2 + %er) + %ei * %ei) * 0.5
  %stay = arg(0) == arg(2) and isinf(arg(0))
  %re = where(%stay, %lr, %hr + %log)
  %im = where(%stay, %li, %hi + atan2(%ei, 1 + %er))
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
