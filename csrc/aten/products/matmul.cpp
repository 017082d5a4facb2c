// The matmul family: one MATMUL each; bias and scaling are its epilogue program.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/baddbmm_meta.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm_meta.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_meta.h>
#include <ATen/ops/mm_ops.h>

#include "csrc/aten/dispatch/complex.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/reduction.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::matmul_cpp {
namespace {

TypedProgram k_plus(R"(
formula matmul_plus(a, b, out, c)
each:
  out = acc + c
)");

TypedProgram k_scaled(R"(
formula matmul_scaled(a, b, out; alpha)
each:
  out = acc * alpha
)");

TypedProgram k_scaled_plus(R"(
formula matmul_scaled_plus(a, b, out, c; alpha, beta)
each:
  out = acc * alpha + c * beta
)");

// Each element of b becomes two by two: (re, im) above (-im, re).
TypedProgram k_expand_complex(R"(
formula expand_complex(b_re, b_im, o00, o01, o10, o11; sign)
each:
  %im = b_im * sign
  o00 = b_re
  o01 = %im
  o10 = -%im
  o11 = b_re
)");

at::Tensor expand_complex(const at::Tensor& b, const char* label) {
  const at::Tensor plain = b.is_neg() ? b.resolve_neg() : b;
  const at::Tensor in = parts(plain);
  at::DimVector sizes(b.sizes());
  sizes[b.dim() - 2] *= 2;
  sizes[b.dim() - 1] *= 2;
  const at::Tensor out = at::empty(sizes, in.options());
  at::DimVector strides(out.strides());
  strides[b.dim() - 2] *= 2;
  strides[b.dim() - 1] *= 2;
  const int64_t row = out.stride(-2);
  const auto from = in.strides().slice(0, b.dim());
  Nest(NPU_MAP, label, b.sizes())
      .with(in, from)
      .with(in, from, 1)
      .with(out, strides)
      .with(out, strides, 1)
      .with(out, strides, row)
      .with(out, strides, row + 1)
      .number(b.is_conj() ? -1 : 1)
      .run(k_expand_complex.of(part_dtype(b.scalar_type())));
  return out;
}

// A row of n complex numbers as a row of 2 n real ones.
at::Tensor flat_rows(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.resolve_conj().resolve_neg();
  const at::Tensor dense = plain.stride(-1) == 1 || plain.size(-1) == 1 ? plain : plain.contiguous();
  return parts(dense).flatten(-2);
}

void launch_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                    const at::Scalar& beta, const at::Scalar& alpha, const char* label);

// A complex product is one real product of twice the depth and width: rows of a and of the result are read as pairs,
// and b is expanded. Complex factors go into the operands first.
void launch_complex_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                            const at::Scalar& beta, const at::Scalar& alpha, const char* label) {
  if (part_dtype(out.scalar_type()) == NPU_DTYPE_NONE || (c.defined() && c.scalar_type() != out.scalar_type())) {
    throw Unsupported(label);
  }
  const bool plus = c.defined() && !beta.equal(0);
  const auto is_real = [](const at::Scalar& value) { return value.toComplexDouble().imag() == 0; };
  const at::Tensor right = is_real(alpha) ? b : b * alpha;
  at::Tensor added;
  if (plus) {
    const at::Tensor wide = c.expand(out.sizes());
    added = flat_rows(is_real(beta) ? wide : wide * beta);
  }
  const bool direct = (out.stride(-1) == 1 || out.size(-1) == 1) && !out.is_conj() && !out.is_neg();
  const at::Tensor target = direct ? out : at::empty(out.sizes(), out.options());
  const double by = is_real(alpha) ? alpha.toComplexDouble().real() : 1;
  const double keep = is_real(beta) ? beta.toComplexDouble().real() : 1;
  launch_product(flat_rows(target), flat_rows(a), expand_complex(right, label), added, plus ? keep : 0, by, label);
  if (!direct) {
    out.copy_(target);
  }
}

// out = alpha * a @ b + beta * c; c may be undefined.
void launch_product(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, const at::Tensor& c,
                    const at::Scalar& beta, const at::Scalar& alpha, const char* label) {
  TORCH_CHECK(a.dtype() == b.dtype(), "expected m1 and m2 to have the same dtype, but got: ", a.dtype(),
              " != ", b.dtype());
  if (out.numel() == 0) {
    return;
  }
  if (out.is_complex()) {
    return launch_complex_product(out, a, b, c, beta, alpha, label);
  }
  const npu_dtype compute = compute_type(a, label);
  if (compute == NPU_BOOL) {
    throw Unsupported(label);
  }
  const npu_dtype acc = compute == NPU_U64 ? NPU_I64 : compute;
  Command command(NPU_MATMUL, label, out.sizes());
  for (const at::Tensor* tensor : {&a, &b, &out}) command.add(*tensor);
  command->u.matmul.k = a.size(-1);
  command->u.matmul.acc_dtype = acc;

  // beta 0 means that c is not read at all, NaN or not.
  const bool plus = c.defined() && !beta.equal(0);
  const bool scaled = !alpha.equal(1) || (plus && !beta.equal(1));
  if (plus) command.add(c.expand(out.sizes()));
  if (scaled) command.param(scalar_param(alpha, acc));
  if (scaled && plus) command.param(scalar_param(beta, acc));
  if (!plus && !scaled) return command.run();
  command.run((!plus ? k_scaled : scaled ? k_scaled_plus : k_plus).of(acc));
}

void launch_mm(at::impl::MetaBase&, const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  launch_product(out, a, b, {}, 0, 1, "aten::mm");
}

void launch_addmm(at::impl::MetaBase&, const at::Tensor& out, const at::Tensor& c, const at::Tensor& a,
                  const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
  launch_product(out, a, b, c, beta, alpha, "aten::addmm");
}

void launch_bmm(at::impl::MetaBase&, const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  launch_product(out, a, b, {}, 0, 1, "aten::bmm");
}

void launch_baddbmm(at::impl::MetaBase&, const at::Tensor& out, const at::Tensor& c, const at::Tensor& a,
                    const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha) {
  launch_product(out, a, b, c, beta, alpha, "aten::baddbmm");
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<at::meta::structured_mm, launch_mm>(m).functional<at::_ops::mm>().out<at::_ops::mm_out>();
  structured<at::meta::structured_addmm, launch_addmm>(m)
      .functional<at::_ops::addmm>()
      .inplace<at::_ops::addmm_>()
      .out<at::_ops::addmm_out>();
  structured<at::meta::structured_bmm, launch_bmm>(m).functional<at::_ops::bmm>().out<at::_ops::bmm_out>();
  structured<at::meta::structured_baddbmm, launch_baddbmm>(m)
      .functional<at::_ops::baddbmm>()
      .inplace<at::_ops::baddbmm_>()
      .out<at::_ops::baddbmm_out>();
}

}  // namespace
}  // namespace torch_npu::matmul_cpp
