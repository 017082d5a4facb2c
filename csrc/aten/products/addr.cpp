// addr: beta * self + alpha * outer(vec1, vec2) in one command, so that 16-bit types round once. PyTorch's own function
// checks the arguments and builds the iterator.
#include <ATen/native/LinearAlgebra.h>
#include <ATen/ops/addr_native.h>
#include <ATen/ops/addr_ops.h>

#include "csrc/aten/dispatch/pointwise.h"
#include "csrc/aten/dispatch/registration.h"
#include "table/kernels.h"

namespace torch_npu::addr_cpp {
namespace {

void launch_addr(at::TensorIterator& iter, const at::Scalar& beta, const at::Scalar& alpha) {
  const PointwiseCall call(iter, "aten::addr");
  // A beta of zero means that self is not even read: it may hold NaN.
  call.run(beta.equal(0) ? table::addr_outer : table::addr, {call.param(beta), call.param(alpha)});
}

bool is_complex(const at::Tensor& self, const at::Tensor& vec1, const at::Tensor& vec2, const at::Scalar& beta,
                const at::Scalar& alpha) {
  return self.is_complex() || vec1.is_complex() || vec2.is_complex() || beta.isComplex() || alpha.isComplex();
}

at::Tensor addr(const at::Tensor& self, const at::Tensor& vec1, const at::Tensor& vec2, const at::Scalar& beta,
                const at::Scalar& alpha) {
  if (is_complex(self, vec1, vec2, beta, alpha)) {
    return at::native::math_addr(self, vec1, vec2, beta, alpha);
  }
  return at::native::addr(self, vec1, vec2, beta, alpha);
}

at::Tensor& addr_out(const at::Tensor& self, const at::Tensor& vec1, const at::Tensor& vec2, const at::Scalar& beta,
                     const at::Scalar& alpha, at::Tensor& out) {
  if (is_complex(self, vec1, vec2, beta, alpha)) {
    return at::native::math_addr_out(self, vec1, vec2, beta, alpha, out);
  }
  return at::native::addr_out(self, vec1, vec2, beta, alpha, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::addr, addr>(m);
  register_native<at::_ops::addr_out, addr_out>(m);
}

}  // namespace
}  // namespace torch_npu::addr_cpp

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(addr_stub, &torch_npu::addr_cpp::launch_addr)
}  // namespace at::native
