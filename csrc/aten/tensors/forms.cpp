// Forms of ops whose other form is native: results given with out=, numbers in place of tensors.
#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_aminmax_ops.h>
#include <ATen/ops/_native_batch_norm_legit_ops.h>
#include <ATen/ops/_weight_norm_interface_backward_ops.h>
#include <ATen/ops/_weight_norm_interface_ops.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/binary_cross_entropy_backward_ops.h>
#include <ATen/ops/huber_loss_backward_ops.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/is_set_to_ops.h>
#include <ATen/ops/lshift_ops.h>
#include <ATen/ops/mse_loss_backward_ops.h>
#include <ATen/ops/mvlgamma_ops.h>
#include <ATen/ops/narrow_copy_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/nll_loss2d_backward_ops.h>
#include <ATen/ops/norm_except_dim.h>
#include <ATen/ops/norm_ops.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/remainder_ops.h>
#include <ATen/ops/rshift_ops.h>
#include <ATen/ops/smooth_l1_loss_backward_ops.h>

#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::forms_cpp {
namespace {

using at::Scalar;
using at::Tensor;

Tensor& give(Tensor& out, const Tensor& value) {
  at::native::resize_output(out, value.sizes());
  return out.copy_(value);
}

// The out form of an op with one or three results: the functional form, and a copy.
template <class Functional, class Schema = typename Functional::schema>
struct ByCopy;

template <class Functional, class... Args>
struct ByCopy<Functional, Tensor(Args...)> {
  static Tensor& out(no_symint<Args>... args, Tensor& result) { return give(result, Functional::call(args...)); }
};

template <class Functional, class... Args>
struct ByCopy<Functional, std::tuple<Tensor, Tensor, Tensor>(Args...)> {
  static std::tuple<Tensor&, Tensor&, Tensor&> out(no_symint<Args>... args, Tensor& a, Tensor& b, Tensor& c) {
    const auto values = Functional::call(args...);
    give(a, std::get<0>(values));
    give(b, std::get<1>(values));
    give(c, std::get<2>(values));
    return {a, b, c};
  }
};

template <class Functional, class Out>
void register_copied(torch::Library& m) {
  register_native<Out, ByCopy<Functional>::out>(m);
}

// ---- numbers

Tensor wrapped(const Scalar& value) {
  Tensor tensor = at::scalar_to_tensor(value);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}
Tensor remainder_of_number(const Scalar& self, const Tensor& other) {
  return at::remainder(wrapped(self), other);
}
Tensor& shift_left_(Tensor& self, const Scalar& other) {
  return self.__ilshift__(wrapped(other));
}
Tensor& shift_right_(Tensor& self, const Scalar& other) {
  return self.__irshift__(wrapped(other));
}

// ---- older names

std::tuple<Tensor, Tensor> aminmax(const Tensor& self) {
  return at::aminmax(self);
}
std::tuple<Tensor, Tensor> aminmax_dim(const Tensor& self, int64_t dim, bool keepdim) {
  return at::aminmax(self, dim, keepdim);
}

// ---- weight_norm: w = v * g / |v|, the norm over all dimensions but one.

std::tuple<Tensor, Tensor> weight_norm(const Tensor& v, const Tensor& g, int64_t dim) {
  const Tensor norm = at::norm_except_dim(v, 2, dim);
  return {v * (g / norm), norm};
}

std::tuple<Tensor, Tensor> weight_norm_backward(const Tensor& grad, const Tensor& v, const Tensor& g,
                                                const Tensor& norm, int64_t dim) {
  at::DimVector others;
  for (int64_t d = 0; d < v.dim(); ++d) {
    if (d != dim) others.push_back(d);
  }
  const Tensor dot = (grad * v).sum(others, /*keepdim=*/true);
  const Tensor grad_v = (g / norm) * (grad - v * (dot / (norm * norm)));
  return {grad_v, dot / norm};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_copied<ops::mse_loss_backward, ops::mse_loss_backward_grad_input>(m);
  register_copied<ops::smooth_l1_loss_backward, ops::smooth_l1_loss_backward_grad_input>(m);
  register_copied<ops::huber_loss_backward, ops::huber_loss_backward_out>(m);
  register_copied<ops::binary_cross_entropy_backward, ops::binary_cross_entropy_backward_grad_input>(m);
  register_copied<ops::nll_loss2d_backward, ops::nll_loss2d_backward_grad_input>(m);
  register_copied<ops::norm_ScalarOpt_dim, ops::norm_out>(m);
  register_copied<ops::norm_ScalarOpt_dim_dtype, ops::norm_dtype_out>(m);
  register_copied<ops::narrow_copy, ops::narrow_copy_out>(m);
  register_copied<ops::mvlgamma, ops::mvlgamma_out>(m);
  register_copied<ops::native_batch_norm, ops::native_batch_norm_out>(m);
  register_copied<ops::_native_batch_norm_legit, ops::_native_batch_norm_legit_out>(m);
  register_copied<ops::_native_batch_norm_legit_no_stats, ops::_native_batch_norm_legit_no_stats_out>(m);
  register_native<ops::remainder_Scalar_Tensor, remainder_of_number>(m);
  register_native<ops::__ilshift___Scalar, shift_left_>(m);
  register_native<ops::__irshift___Scalar, shift_right_>(m);
  register_native<ops::_aminmax, aminmax>(m);
  register_native<ops::_aminmax_dim, aminmax_dim>(m);
  register_native<ops::_weight_norm_interface, weight_norm>(m);
  register_native<ops::_weight_norm_interface_backward, weight_norm_backward>(m);
  m.impl("is_set_to", TORCH_FN(at::native::is_set_to));
}

}  // namespace
}  // namespace torch_npu::forms_cpp
