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
#include "csrc/aten/dispatch/map.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::matmul_cpp {
namespace {

TypedProgram k_plus(R"(
program matmul_plus(a, b, out, c)
each:
  %p = acc : $t
  %c = load c : $t
  %r = add %p, %c
  store out, %r
)");

TypedProgram k_scaled(R"(
program matmul_scaled(a, b, out; alpha)
each:
  %p = acc : $t
  %a = param alpha : $t
  %r = mul %p, %a
  store out, %r
)");

TypedProgram k_scaled_plus(R"(
program matmul_scaled_plus(a, b, out, c; alpha, beta)
each:
  %p = acc : $t
  %a = param alpha : $t
  %s = mul %p, %a
  %c = load c : $t
  %b = param beta : $t
  %t = mul %c, %b
  %r = add %s, %t
  store out, %r
)");

void set_operand(npu_operand& operand, const at::Tensor& tensor, const char* label) {
  const npu_dtype type = storage_dtype(tensor.scalar_type());
  if (type == NPU_DTYPE_NONE || tensor.is_conj() || tensor.is_neg()) {
    throw Unsupported(label);
  }
  operand.addr = reinterpret_cast<npu_addr>(tensor.data_ptr());
  operand.dtype = type;
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    operand.stride[d] = tensor.stride(d);
  }
}

// Each element of b becomes two by two: (re, im) above (-im, re).
TypedProgram k_expand_complex(R"(
program expand_complex(b_re, b_im, o00, o01, o10, o11; sign)
each:
  %re = load b_re : $t
  %b = load b_im : $t
  %s = param sign : $t
  %im = mul %b, %s
  %minus = neg %im
  store o00, %re
  store o01, %im
  store o10, %minus
  store o11, %re
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
  npu_operand operands[4] = {};
  set_operand(operands[0], a, label);
  set_operand(operands[1], b, label);
  set_operand(operands[2], out, label);
  const npu_dtype compute = compute_dtype(static_cast<npu_dtype>(operands[0].dtype));
  if (compute == NPU_BOOL) {
    throw Unsupported(label);
  }
  npu_command command{};
  command.struct_size = sizeof(command);
  command.kind = NPU_MATMUL;
  command.rank = static_cast<uint8_t>(out.dim());
  for (int64_t d = 0; d < out.dim(); ++d) {
    command.size[d] = out.size(d);
  }
  command.u.matmul.k = a.size(-1);
  command.u.matmul.acc_dtype = compute == NPU_U64 ? NPU_I64 : compute;
  command.operands = operands;
  command.operand_count = 3;
  command.label = label;

  // beta 0 means that c is not read at all, NaN or not.
  const bool scaled = !alpha.equal(1);
  const bool plus = c.defined() && !beta.equal(0);
  npu_scalar params[2];
  const auto acc = static_cast<npu_dtype>(command.u.matmul.acc_dtype);
  const auto device = out.device().index();
  if (plus) {
    set_operand(operands[3], c.expand(out.sizes()), label);
    command.operand_count = 4;
  }
  if (plus && (scaled || !beta.equal(1))) {
    params[0] = scalar_param(alpha, acc);
    params[1] = scalar_param(beta, acc);
    command.params = params;
    command.param_count = 2;
    command.program = k_scaled_plus.of(acc).on(device);
  } else if (plus) {
    command.program = k_plus.of(acc).on(device);
  } else if (scaled) {
    params[0] = scalar_param(alpha, acc);
    command.params = params;
    command.param_count = 1;
    command.program = k_scaled.of(acc).on(device);
  }
  submit(device, command);
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
