// Products of vectors, and the comparison of whole tensors: one REDUCE each. A matrix times a vector is a MATMUL.
#include <ATen/ops/addmm.h>
#include <ATen/ops/addmv_meta.h>
#include <ATen/ops/addmv_ops.h>
#include <ATen/ops/dot_ops.h>
#include <ATen/ops/equal_ops.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/trace_ops.h>
#include <ATen/ops/vdot_ops.h>

#include "csrc/aten/dispatch/complex.h"
#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::products_cpp {
namespace {

using at::Tensor;

TypedProgram k_dot(R"(
formula dot(out, x, y)
each:
  %s = fold(sum, x * y)
row:
  out = %s
)");

// The signs are those of the imaginary parts: -1 for a conjugated operand.
TypedProgram k_complex_dot(R"(
formula complex_dot(out_re, out_im, x_re, x_im, y_re, y_im; x_sign, y_sign)
each:
  %b = x_im * x_sign
  %d = y_im * y_sign
  %r = fold(sum, x_re * y_re - %b * %d)
  %i = fold(sum, x_re * %d + %b * y_re)
row:
  out_re = %r
  out_im = %i
)");

Tensor complex_dot(const Tensor& self, const Tensor& other, bool conjugate, const char* name) {
  const Tensor x = self.resolve_neg(), y = other.resolve_neg();
  const Tensor out = make_empty({}, {}, x.options());
  const Tensor re = real_part(out), im = imag_part(out);
  Rows(name, x.sizes(), 1)
      .scalar(re)
      .scalar(im)
      .add(real_part(x))
      .add(imag_part(x))
      .add(real_part(y))
      .add(imag_part(y))
      .reduce(k_complex_dot.of(compute_type(re, name)),
              {number(x.is_conj() != conjugate ? -1 : 1), number(y.is_conj() ? -1 : 1)});
  return out;
}

TypedProgram k_equal(R"(
formula equal(out, x, y)
each:
  %s = fold(and, x == y)
row:
  out = %s
)");

Tensor dot_product(const Tensor& self, const Tensor& other, bool conjugate, const char* name) {
  TORCH_CHECK(self.dim() == 1 && other.dim() == 1, "1D tensors expected, but got ", self.dim(), "D and ", other.dim(),
              "D tensors");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), name,
              " : expected both vectors to have same dtype, but found ", self.scalar_type(), " and ",
              other.scalar_type());
  TORCH_CHECK(self.numel() == other.numel(), "inconsistent tensor size, expected tensor [", self.numel(), "] and src [",
              other.numel(), "] to have the same number of elements, but got ", self.numel(), " and ", other.numel(),
              " elements respectively");
  check_same_device(name, {&self, &other});
  if (self.is_complex()) {
    return complex_dot(self, other, conjugate, name);
  }
  const npu_dtype compute = compute_type(self, name);
  if (compute == NPU_BOOL) {
    throw Unsupported(name);
  }
  const Tensor out = make_empty({}, {}, self.options());
  Rows(name, self.sizes(), 1).scalar(out).add(self).add(other).reduce(k_dot.of(compute));
  return out;
}

Tensor dot(const Tensor& self, const Tensor& other) {
  return dot_product(self, other, false, "dot");
}
Tensor vdot(const Tensor& self, const Tensor& other) {
  return dot_product(self, other, true, "vdot");
}

void launch_addmv(at::impl::MetaBase&, const Tensor& out, const Tensor& self, const Tensor& mat, const Tensor& vec,
                  const at::Scalar& beta, const at::Scalar& alpha) {
  if (out.numel() == 0) {
    return;
  }
  Tensor column = out.unsqueeze(1);
  at::addmm_out(column, self.expand({mat.size(0)}).unsqueeze(1), mat, vec.unsqueeze(1), beta, alpha);
}

Tensor trace(const Tensor& self) {
  TORCH_CHECK(self.dim() == 2, "trace: expected a matrix, but got tensor with dim ", self.dim());
  return at::sum(self.diagonal());
}

bool equal(const Tensor& self, const Tensor& other) {
  const char* label = "aten::equal";
  TORCH_CHECK(self.device() == other.device(), "Cannot compare two tensors on different devices. Got: ", self.device(),
              " and ", other.device());
  if (self.scalar_type() != other.scalar_type()) {
    throw Unsupported(label);  // for PyTorch's own sentence
  }
  if (self.sizes() != other.sizes()) {
    return false;
  }
  if (self.numel() == 0) {
    return true;
  }
  if (self.is_complex()) {
    return products_cpp::equal(parts(self.resolve_conj().resolve_neg()), parts(other.resolve_conj().resolve_neg()));
  }
  const Tensor out = make_empty({}, {}, self.options().dtype(at::kBool));
  const npu_dtype compute = compute_type(self, label);
  Rows(label, self.sizes(), DimMask().flip()).scalar(out).add(self).add(other).reduce(k_equal.of(compute));
  return out.item<bool>();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_native<ops::dot, dot>(m);
  register_native<ops::vdot, vdot>(m);
  register_native<ops::trace, trace>(m);
  register_native<ops::equal, equal>(m);
  structured<at::meta::structured_addmv, launch_addmv>(m)
      .functional<ops::addmv>()
      .inplace<ops::addmv_>()
      .out<ops::addmv_out>();
}

}  // namespace
}  // namespace torch_npu::products_cpp
