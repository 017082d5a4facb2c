// Pointwise ops that need more than a table line: operands of different types, values from the host, two results.
#include <ATen/ExpandUtils.h>
#include <ATen/ScalarOps.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_prelu_kernel_backward_ops.h>
#include <ATen/ops/frexp_ops.h>
#include <ATen/ops/glu_backward_ops.h>
#include <ATen/ops/log_sigmoid_forward_ops.h>
#include <ATen/ops/lshift.h>
#include <ATen/ops/lshift_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/nan_to_num_ops.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/rshift.h>
#include <ATen/ops/rshift_ops.h>
#include <ATen/ops/rsub_ops.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where_ops.h>

#include <limits>

#include "csrc/aten/dispatch/pointwise.h"
#include "table/kernels.h"

namespace torch_npu::pointwise_select_cpp {
namespace {

npu_dtype compute_type(c10::ScalarType type, const char* label) {
  const npu_dtype storage = storage_dtype(type);
  if (storage == NPU_DTYPE_NONE) {
    throw Unsupported(label);
  }
  return compute_dtype(storage);
}

// An iterator whose operands keep their types. Numbers on the host are fine; results are made as `dtype`.
at::TensorIteratorConfig mixed_types(c10::ScalarType dtype, c10::Device device) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).allow_cpu_scalars(true).declare_static_dtype_and_device(dtype, device);
  return config;
}

void check_condition(const at::Tensor& condition) {
  TORCH_CHECK(condition.scalar_type() == at::kBool || condition.scalar_type() == at::kByte,
              "where expected condition to be a boolean tensor, but got a tensor with dtype ", condition.scalar_type());
  if (condition.scalar_type() == at::kByte) {
    TORCH_WARN_ONCE(
        "where received a uint8 condition tensor. This behavior is deprecated and will be removed in a future version "
        "of PyTorch. Use a boolean condition instead.");
  }
}

// Conversions and their overflow errors are PyTorch's own; where a number does not fit, the fallback says so.
npu_scalar fitting_param(const at::Scalar& value, c10::ScalarType type, npu_dtype compute, const char* label) {
  if (value.isComplex()) {
    throw Unsupported(label);
  }
  if (c10::isIntegralType(type, /*includeBool=*/false) && type != at::kLong && type != at::kUInt64) {
    const double number = std::trunc(value.toDouble());
    const int bits = static_cast<int>(c10::elementSize(type)) * 8;
    const bool is_signed = c10::isSignedType(type);
    const double low = is_signed ? -std::ldexp(1.0, bits - 1) : 0, high = std::ldexp(1.0, is_signed ? bits - 1 : bits);
    if (!(number >= low && number < high)) {
      throw Unsupported(label);
    }
  }
  return scalar_param(value, compute);
}

at::Tensor& where_out(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  check_condition(condition);
  const auto type = at::result_type(self, other);
  TORCH_CHECK(out.scalar_type() == type, "Expected out type to be ", type, " but got ", out.scalar_type());
  at::TensorIteratorConfig config;
  auto iter = config.check_all_same_dtype(false)
                  .allow_cpu_scalars(true)
                  .add_output(out)
                  .add_const_input(condition)
                  .add_const_input(self)
                  .add_const_input(other)
                  .build();
  launch_map_as(type, iter, table::where, "aten::where");
  return out;
}

at::Tensor where(const at::Tensor& condition, const at::Tensor& self, const at::Tensor& other) {
  check_condition(condition);
  const auto type = at::result_type(self, other);
  const at::Tensor& anchor = condition.is_privateuseone() ? condition : self.is_privateuseone() ? self : other;
  auto iter = mixed_types(type, anchor.device())
                  .add_owned_output(at::Tensor())
                  .add_const_input(condition)
                  .add_const_input(self)
                  .add_const_input(other)
                  .build();
  launch_map_as(type, iter, table::where, "aten::where");
  return iter.output();
}

void check_mask(const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_fill_ only supports boolean masks, but got mask with dtype ",
              mask.scalar_type());
}

// The iterator of masked_fill, but for a value on the device.
at::TensorIteratorConfig filling(const at::Tensor& out, const at::Tensor& self, const at::Tensor& mask) {
  at::TensorIteratorConfig config = mixed_types(self.scalar_type(), self.device());
  config.set_check_mem_overlap(true).resize_outputs(!out.defined());
  config.add_owned_output(out).add_const_input(self).add_const_input(mask);
  return config;
}

// In place if `out` is self, else into a new tensor, which is returned.
at::Tensor fill_masked(const at::Tensor& out, const at::Tensor& self, const at::Tensor& mask, const at::Scalar& value) {
  constexpr const char* label = "aten::masked_fill";
  check_mask(mask);
  const npu_dtype part = part_dtype(self.scalar_type());
  const bool is_complex = part != NPU_DTYPE_NONE;
  const npu_dtype compute = is_complex ? part : compute_type(self.scalar_type(), label);
  const npu_scalar number =
      is_complex ? PointwiseCall::real(value) : fitting_param(value, self.scalar_type(), compute, label);
  auto iter = filling(out, self, mask).build();
  if (is_complex) {
    launch_map_as(self.scalar_type(), iter, table::masked_fill, label, {number, PointwiseCall::imag(value)});
  } else {
    launch_map_as(self.scalar_type(), iter, table::masked_fill.of(compute), label, {number});
  }
  return iter.output();
}

at::Tensor fill_masked(const at::Tensor& out, const at::Tensor& self, const at::Tensor& mask, const at::Tensor& value) {
  constexpr const char* label = "aten::masked_fill";
  check_mask(mask);
  TORCH_CHECK(value.dim() == 0, "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  if (value.is_cpu()) {
    return fill_masked(out, self, mask, value.item());
  }
  TORCH_CHECK(at::canCast(value.scalar_type(), self.scalar_type()) || !out.defined(),
              "value cannot be converted to type ", self.scalar_type(), " without overflow");
  auto iter = filling(out, self, mask).add_const_input(value).build();
  launch_map_as(self.scalar_type(), iter, table::masked_fill_tensor, label);
  return iter.output();
}

template <class T>
at::Tensor& masked_fill_inplace(at::Tensor& self, const at::Tensor& mask, const T& value) {
  fill_masked(self, self, mask, value);
  return self;
}

template <class T>
at::Tensor masked_fill(const at::Tensor& self, const at::Tensor& mask, const T& value) {
  return fill_masked(at::Tensor(), self, mask, value);
}

struct NanToNumMeta : PointwiseMeta {
  void meta(const at::Tensor& self, const auto&...) {
    refuse_complex({&self});
    unary(self);
  }
};

double largest(c10::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return static_cast<double>(std::numeric_limits<at::Half>::max());
    case at::kBFloat16:
      return static_cast<double>(std::numeric_limits<at::BFloat16>::max());
    case at::kFloat:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

void launch_nan_to_num(at::TensorIteratorBase& iter, const at::Tensor&, const at::Tensor& self,
                       std::optional<double> nan, std::optional<double> posinf, std::optional<double> neginf) {
  PointwiseCall call(iter, "aten::nan_to_num");
  const double limit = largest(self.scalar_type());
  npu_scalar values[3];
  values[0].f = nan.value_or(0);
  values[1].f = posinf.value_or(limit);
  values[2].f = neginf.value_or(-limit);
  call.run(table::nan_to_num, {values[0], values[1], values[2]});
}

// A number to the power of a tensor, the reverse of sub, shifts by a number: other overloads do them.
at::Tensor wrapped(const at::Scalar& value) {
  at::Tensor tensor = at::scalar_to_tensor(value);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}
at::Tensor pow_scalar(const at::Scalar& base, const at::Tensor& exponent) {
  return at::pow(wrapped(base), exponent);
}
at::Tensor& pow_scalar_out(const at::Scalar& base, const at::Tensor& exponent, at::Tensor& out) {
  return at::pow_out(out, wrapped(base), exponent);
}
at::Tensor rsub(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha) {
  return at::sub(other, self, alpha);
}
at::Tensor shift_left(const at::Tensor& self, const at::Scalar& other) {
  return at::__lshift__(self, wrapped(other));
}
at::Tensor shift_right(const at::Tensor& self, const at::Scalar& other) {
  return at::__rshift__(self, wrapped(other));
}

// The buffer is the CPU kernels' own affair; the gradient is computed from the input.
std::tuple<at::Tensor, at::Tensor> log_sigmoid_forward(const at::Tensor& self) {
  at::Tensor out;
  auto iter = at::TensorIterator::unary_op(out, self);
  PointwiseCall(iter, "aten::log_sigmoid_forward").run(table::log_sigmoid, {});
  return {iter.output(), make_empty({0}, {}, self.options())};
}
std::tuple<at::Tensor&, at::Tensor&> log_sigmoid_forward_out(const at::Tensor& self, at::Tensor& out,
                                                             at::Tensor& buffer) {
  auto iter = at::TensorIterator::unary_op(out, self);
  PointwiseCall(iter, "aten::log_sigmoid_forward").run(table::log_sigmoid, {});
  return {out, buffer};
}

std::tuple<at::Tensor&, at::Tensor&> frexp_out(const at::Tensor& self, at::Tensor& mantissa, at::Tensor& exponent) {
  TORCH_CHECK(at::isFloatingType(self.scalar_type()), "torch.frexp() only supports floating-point dtypes");
  TORCH_CHECK(mantissa.dtype() == self.dtype(), "torch.frexp() expects mantissa to have dtype ", self.dtype(),
              " but got ", mantissa.dtype());
  TORCH_CHECK(exponent.dtype() == at::kInt, "torch.frexp() expects exponent to have int dtype but got ",
              exponent.dtype());
  auto iter = at::TensorIteratorConfig()
                  .add_output(mantissa)
                  .add_output(exponent)
                  .add_const_input(self)
                  .check_all_same_dtype(false)
                  .set_check_mem_overlap(true)
                  .build();
  launch_map_as(at::ScalarType::Undefined, iter, table::frexp.of(compute_type(self.scalar_type(), "aten::frexp")),
                "aten::frexp");
  return {mantissa, exponent};
}

std::tuple<at::Tensor, at::Tensor> prelu_backward(const at::Tensor& grad, const at::Tensor& self,
                                                  const at::Tensor& weight) {
  auto iter = at::TensorIteratorConfig()
                  .add_owned_output(at::Tensor())
                  .add_owned_output(at::Tensor())
                  .add_const_input(grad)
                  .add_const_input(self)
                  .add_const_input(weight)
                  .build();
  PointwiseCall(iter, "aten::_prelu_kernel_backward").run(table::prelu_backward, {});
  return {iter.output(0), iter.output(1)};
}

at::Tensor& glu_backward_out(const at::Tensor& grad, const at::Tensor& self, int64_t dim, at::Tensor& out) {
  TORCH_CHECK(self.dim() > 0, "glu does not support 0-dimensional tensors");
  const int64_t wrapped_dim = at::maybe_wrap_dim(dim, self.dim());
  const int64_t size = self.size(wrapped_dim);
  TORCH_CHECK(size % 2 == 0, "Halving dimension must be even, but dimension ", wrapped_dim, " is size ", size);
  at::native::resize_output(out, self.sizes());
  const int64_t half = size / 2;
  auto iter = at::TensorIteratorConfig()
                  .add_owned_output(out.narrow(wrapped_dim, 0, half))
                  .add_owned_output(out.narrow(wrapped_dim, half, half))
                  .add_owned_const_input(grad)
                  .add_owned_const_input(self.narrow(wrapped_dim, 0, half))
                  .add_owned_const_input(self.narrow(wrapped_dim, half, half))
                  .resize_outputs(false)
                  .build();
  PointwiseCall(iter, "aten::glu_backward").run(table::glu_backward, {});
  return out;
}
at::Tensor glu_backward(const at::Tensor& grad, const at::Tensor& self, int64_t dim) {
  at::Tensor out = make_empty({0}, {}, self.options());
  return glu_backward_out(grad, self, dim, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::where_self, where>(m);
  register_native<at::_ops::where_self_out, where_out>(m);
  register_native<at::_ops::masked_fill_Scalar, masked_fill<at::Scalar>>(m);
  register_native<at::_ops::masked_fill_Tensor, masked_fill<at::Tensor>>(m);
  register_native<at::_ops::masked_fill__Scalar, masked_fill_inplace<at::Scalar>>(m);
  register_native<at::_ops::masked_fill__Tensor, masked_fill_inplace<at::Tensor>>(m);
  structured<NanToNumMeta, launch_nan_to_num>(m)
      .functional<at::_ops::nan_to_num>()
      .inplace<at::_ops::nan_to_num_>()
      .out<at::_ops::nan_to_num_out>();
  register_native<at::_ops::pow_Scalar, pow_scalar>(m);
  register_native<at::_ops::pow_Scalar_out, pow_scalar_out>(m);
  register_native<at::_ops::rsub_Tensor, rsub>(m);
  register_native<at::_ops::__lshift___Scalar, shift_left>(m);
  register_native<at::_ops::__rshift___Scalar, shift_right>(m);
  register_native<at::_ops::log_sigmoid_forward, log_sigmoid_forward>(m);
  register_native<at::_ops::log_sigmoid_forward_output, log_sigmoid_forward_out>(m);
  register_native<at::_ops::frexp_Tensor_out, frexp_out>(m);
  register_native<at::_ops::_prelu_kernel_backward, prelu_backward>(m);
  register_native<at::_ops::glu_backward, glu_backward>(m);
  register_native<at::_ops::glu_backward_grad_input, glu_backward_out>(m);
}

}  // namespace
}  // namespace torch_npu::pointwise_select_cpp
