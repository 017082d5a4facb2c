// Numbers made of their parts, and conjugation in memory.
#include "csrc/aten/dispatch/complex.h"

#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/complex_ops.h>
#include <ATen/ops/conj.h>
#include <ATen/ops/conj_physical_ops.h>
#include <ATen/ops/polar_ops.h>
#include <ATen/ops/view_as_real_native.h>

#include "csrc/aten/dispatch/map.h"
#include "csrc/aten/dispatch/registration.h"
#include "table/kernels.h"

namespace torch_npu {

at::Tensor parts(const at::Tensor& tensor) {
  at::Tensor plain = tensor;
  if (plain.is_conj()) {
    plain = plain.conj();
  }
  if (plain.is_neg()) {
    plain = plain._neg_view();
  }
  return at::native::view_as_real(plain);
}

at::Tensor truth(const at::Tensor& tensor) {
  return tensor.to(at::kBool);
}

namespace {

using at::Tensor;

void check_parts(const Tensor& x, const Tensor& y, const Tensor& out) {
  const auto type = x.scalar_type();
  TORCH_CHECK(x.scalar_type() == y.scalar_type(), "Expected object of scalar type ", x.scalar_type(),
              " but got scalar type ", y.scalar_type(), " for second argument");
  if ((type != at::kFloat && type != at::kDouble) || out.scalar_type() != c10::toComplexType(type)) {
    throw Unsupported("complex");  // for PyTorch's own sentence
  }
}

// out = (first result, second result) of a program of two tensors.
Tensor& from_parts(const Tensor& x, const Tensor& y, Tensor& out, TypedProgram& program, const char* label) {
  check_parts(x, y, out);
  auto iter = at::TensorIteratorConfig()
                  .add_output(out)
                  .add_const_input(x)
                  .add_const_input(y)
                  .check_all_same_dtype(false)
                  .build();
  launch_map_as(out.scalar_type(), iter, program, label);
  return out;
}

Tensor& complex_out(const Tensor& real, const Tensor& imag, Tensor& out) {
  return from_parts(real, imag, out, table::complex_of, "aten::complex");
}
Tensor& polar_out(const Tensor& abs, const Tensor& angle, Tensor& out) {
  return from_parts(abs, angle, out, table::polar, "aten::polar");
}

Tensor& conj_physical_out(const Tensor& self, Tensor& out) {
  if (out.scalar_type() != self.scalar_type()) {
    throw Unsupported("aten::conj_physical");
  }
  at::native::resize_output(out, self.sizes());
  return out.copy_(self.conj());
}

// PyTorch's own is a stub of the CPU's and of CUDA's.
Tensor& conj_physical_(Tensor& self) {
  return self.is_complex() ? self.copy_(self.conj()) : self;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::complex_out, complex_out>(m);
  register_native<at::_ops::polar_out, polar_out>(m);
  register_native<at::_ops::conj_physical_out, conj_physical_out>(m);
  register_native<at::_ops::conj_physical_, conj_physical_>(m);
}

}  // namespace
}  // namespace torch_npu
