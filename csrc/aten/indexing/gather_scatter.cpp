// gather, scatter and their relatives along one dimension. PyTorch's structured classes check the arguments and call
// the stubs below; each is one MAP or SCATTER over the index tensor.
#include <ATen/TensorOperators.h>
#include <ATen/native/ReductionType.h>
#include <ATen/native/TensorAdvancedIndexing.h>
#include <ATen/ops/gather_native.h>
#include <ATen/ops/gather_ops.h>
#include <ATen/ops/index_add_meta.h>
#include <ATen/ops/index_add_ops.h>
#include <ATen/ops/index_reduce_meta.h>
#include <ATen/ops/index_reduce_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/scatter_add_native.h>
#include <ATen/ops/scatter_add_ops.h>
#include <ATen/ops/scatter_native.h>
#include <ATen/ops/scatter_ops.h>
#include <ATen/ops/scatter_reduce.h>
#include <ATen/ops/scatter_reduce_native.h>
#include <ATen/ops/scatter_reduce_ops.h>

#include "csrc/aten/dispatch/complex.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::gather_scatter_cpp {
namespace {

at::Tensor at_least_1d(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
}

at::DimVector without(at::IntArrayRef strides, int64_t dim) {
  at::DimVector out(strides);
  out[dim] = 0;
  return out;
}

// A vector along `dim`, repeated along the others.
at::DimVector along(int64_t rank, int64_t dim, int64_t stride) {
  at::DimVector out(rank, 0);
  out[dim] = stride;
  return out;
}

TypedProgram k_gather(R"(
formula gather(out, x, index: i64; size: i64, stride: i64)
each:
  %c = check_index(index, size, check)
  out = load_at(x, %c * stride)
)");

void launch_gather(const at::Tensor& result, const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  constexpr const char* label = "aten::gather";
  if (too_wide(self)) {
    launch_gather(real_part(result), real_part(self), dim, index);
    return launch_gather(imag_part(result), imag_part(self), dim, index);
  }
  const at::Tensor out = at_least_1d(result), x = at_least_1d(self), at = at_least_1d(index);
  if (at.numel() == 0) {
    return;
  }
  dim = at::maybe_wrap_dim(dim, x.dim());
  Nest(NPU_MAP, label, at.sizes())
      .with(out)
      .with(x, without(x.strides(), dim))
      .with(at)
      .integer(x.size(dim))
      .integer(x.stride(dim))
      .run(k_gather.of(compute_dtype(opaque_dtype(x.scalar_type(), label))));
}

enum Mode { kSet, kAdd, kMul, kMax, kMin };
ProgramFamily f_scatter;

DeviceProgram& scatter_program(Mode mode, npu_dtype compute) {
  if (compute == NPU_BOOL && (mode == kAdd || mode == kMul)) {
    mode = mode == kAdd ? kMax : kMin;
  }
  static constexpr const char* kModes[] = {"set", "add", "mul", "max", "min"};
  return f_scatter.get(mode, compute, [&] {
    return std::string(R"(
formula scatter(out, index: i64, src; size: i64, stride: i64)
each:
  store_at(out, src, check_index(index, size, check) * stride, )") +
           kModes[mode] + ")\n";
  });
}

// Every store rounds. Sums and products of 16-bit numbers are kept in float32 until the last one, as on the CPU.
bool needs_float(const at::Tensor& out) {
  return out.scalar_type() == at::kHalf || out.scalar_type() == at::kBFloat16;
}

void scatter(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& src, Mode mode,
             const char* label) {
  // Sums of complex numbers are those of their parts; products are not.
  if (self.is_complex() && (mode == kAdd || (mode == kSet && too_wide(self)))) {
    scatter(real_part(self), dim, index, real_part(src), mode, label);
    return scatter(imag_part(self), dim, index, imag_part(src), mode, label);
  }
  const at::Tensor out = at_least_1d(self), at = at_least_1d(index), values = at_least_1d(src);
  if (at.numel() == 0) {
    return;
  }
  if ((mode == kAdd || mode == kMul) && needs_float(out)) {
    const at::Tensor wide = out.to(at::kFloat);
    scatter(wide, dim, at, values, mode, label);
    out.copy_(wide);
    return;
  }
  dim = at::maybe_wrap_dim(dim, out.dim());
  if (mode != kSet) {
    numeric_dtype(out.scalar_type(), label);
  }
  Nest(NPU_SCATTER, label, at.sizes())
      .with(out, without(out.strides(), dim))
      .with(at)
      .with(values)
      .integer(out.size(dim))
      .integer(out.stride(dim))
      .run(scatter_program(mode, compute_dtype(opaque_dtype(out.scalar_type(), label))));
}

// A number for every index.
at::Tensor number_like(const at::Tensor& self, const at::Tensor& index, const at::Scalar& value) {
  return at::scalar_tensor(value, self.options()).expand(index.sizes());
}

Mode mode_of(at::native::ReductionType type) {
  switch (type) {
    case at::native::ReductionType::PROD:
      return kMul;
    case at::native::ReductionType::MAX:
      return kMax;
    case at::native::ReductionType::MIN:
      return kMin;
    default:
      return kAdd;  // a mean is divided by PyTorch afterwards
  }
}

void launch_scatter(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& src) {
  scatter(self, dim, index, src, kSet, "aten::scatter");
}
void launch_scatter_fill(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Scalar& value) {
  scatter(self, dim, index, number_like(self, index, value), kSet, "aten::scatter");
}
void launch_scatter_add(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& src) {
  scatter(self, dim, index, src, kAdd, "aten::scatter_add");
}
void launch_scatter_reduce(const at::Tensor& self, const int64_t dim, const at::Tensor& index, const at::Tensor& src,
                           const at::native::ReductionType& reduce) {
  scatter(self, dim, index, src, mode_of(reduce), "aten::scatter");
}
void launch_scatter_scalar_reduce(const at::Tensor& self, const int64_t dim, const at::Tensor& index,
                                  const at::Scalar& value, const at::native::ReductionType& reduce) {
  scatter(self, dim, index, number_like(self, index, value), mode_of(reduce), "aten::scatter");
}
void launch_scatter_reduce_two(const at::Tensor& self, const int64_t dim, const at::Tensor& index,
                               const at::Tensor& src, const at::native::ReductionType& reduce) {
  scatter(self, dim, index, src, mode_of(reduce), "aten::scatter_reduce");
}

// PyTorch's implementation, which calls the stubs.
template <class Native, class... Args>
void call_impl(Native& op, const at::Tensor& out, const Args&... args) {
  op.impl(args..., out);
}

void impl_gather(at::native::structured_gather_out& op, const at::Tensor& out, const at::Tensor& self, int64_t dim,
                 const at::Tensor& index, bool sparse_grad) {
  op.impl(self, dim, index, sparse_grad, out);
}

at::Tensor& index_select_out(const at::Tensor& self, int64_t dim, const at::Tensor& index, at::Tensor& result) {
  constexpr const char* label = "aten::index_select";
  check_same_device(label, {&self, &index, &result});
  dim = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector, but got dim: ", index.dim(),
                    " with type: ", index.scalar_type(), " and size: ", index.sizes());
  TORCH_CHECK(!(self.dim() == 0 && index.numel() != 1), "index_select(): Index to scalar can have only 1 value, got ",
              index.numel(), " value(s)");
  TORCH_CHECK(index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
              "index_select(): Expected dtype int32 or int64 for index but got: ", index.scalar_type());
  TORCH_CHECK(self.scalar_type() == result.scalar_type(),
              "index_select(): self and result must have the same scalar type");
  at::DimVector sizes(self.sizes());
  if (self.dim() > 0) {
    sizes[dim] = index.numel();
  }
  at::native::resize_output(result, sizes);
  const at::Tensor out = at_least_1d(result), x = at_least_1d(self), at = at_least_1d(index);
  if (out.numel() == 0) {
    return result;
  }
  TORCH_CHECK_INDEX(x.numel() > 0, "index_select(): the indexed tensor is empty, but the index is not");
  if (too_wide(x)) {
    for (int64_t part = 0; part < 2; ++part) {
      at::Tensor to = parts(out).select(-1, part);
      index_select_out(parts(x).select(-1, part), dim, at, to);
    }
    return result;
  }
  Nest(NPU_MAP, label, out.sizes())
      .with(out)
      .with(x, without(x.strides(), dim))
      .with(at, along(x.dim(), dim, at.stride(0)))
      .integer(x.size(dim))
      .integer(x.stride(dim))
      .run(k_gather.of(compute_dtype(opaque_dtype(x.scalar_type(), label))));
  return result;
}

at::Tensor index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  at::Tensor out = make_empty({0}, {}, self.options());
  return index_select_out(self, dim, index, out);
}

ProgramFamily f_index_add;

void launch_index_add(at::meta::structured_index_add& op, const at::Tensor& result, const at::Tensor& self, int64_t dim,
                      const at::Tensor& index, const at::Tensor& source, const at::Scalar& alpha) {
  constexpr const char* label = "aten::index_add";
  if (result.is_complex()) {
    const at::Tensor scaled = alpha.equal(1) ? source : source * alpha;
    if (!result.is_same(self)) {
      result.copy_(self);
    }
    const at::Tensor re = real_part(result), im = imag_part(result);
    launch_index_add(op, re, re, dim, index, real_part(scaled), 1);
    return launch_index_add(op, im, im, dim, index, imag_part(scaled), 1);
  }
  const npu_dtype compute = compute_dtype(numeric_dtype(result.scalar_type(), label));
  const bool one = compute == NPU_BOOL ? alpha.toBool() : alpha.equal(1);
  if (needs_float(result)) {
    const at::Tensor wide = self.to(at::kFloat);
    launch_index_add(op, wide, wide, dim, index, source, alpha);
    result.copy_(wide);
    return;
  }
  if (!result.is_same(self)) {
    result.copy_(self);
  }
  if (compute == NPU_BOOL && !one) {
    return;  // false is added
  }
  const at::Tensor out = at_least_1d(result), at = at_least_1d(index), values = at_least_1d(source);
  dim = at::maybe_wrap_dim(dim, out.dim());
  if (values.numel() == 0) {
    return;
  }
  Nest(NPU_SCATTER, label, values.sizes())
      .with(out, without(out.strides(), dim))
      .with(at, along(out.dim(), dim, at.stride(0)))
      .with(values)
      .integer(out.size(dim))
      .integer(out.stride(dim))
      .scalar(scalar_param(alpha, compute))
      .run(f_index_add.get(one, compute, [&] {
        return std::string(R"(
formula index_add(out, index: i64, src; size: i64, stride: i64, alpha)
each:
  store_at(out, )") +
               (one ? "src" : "src * alpha") + ", check_index(index, size, check) * stride, " +
               (compute == NPU_BOOL ? "max)" : "add)");
      }));
}

void launch_index_reduce(at::meta::structured_index_reduce&, const at::Tensor& out, const at::Tensor& self, int64_t dim,
                         const at::Tensor& index, const at::Tensor& source, std::string_view reduce,
                         bool include_self) {
  numeric_dtype(self.scalar_type(), "aten::index_reduce");
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::DimVector shape(source.dim(), 1);
  if (source.dim() > 0) {
    shape[dim] = index.numel();
  }
  const at::Tensor at = index.to(at::kLong).reshape(shape).expand(source.sizes());
  out.copy_(at::scatter_reduce(self, dim, at, source, reduce, include_self));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured<at::native::structured_gather_out, impl_gather>(m)
      .functional<at::_ops::gather>()
      .out<at::_ops::gather_out>();
  using at::Scalar;
  using at::Tensor;
  using at::native::structured_scatter_add;
  using at::native::structured_scatter_reduce_out;
  using at::native::structured_scatter_reduce_two;
  using at::native::structured_scatter_src_out;
  using at::native::structured_scatter_value_out;
  using at::native::structured_scatter_value_reduce_out;
  structured<structured_scatter_src_out, call_impl<structured_scatter_src_out, Tensor, int64_t, Tensor, Tensor>>(m)
      .functional<at::_ops::scatter_src>()
      .inplace<at::_ops::scatter__src>()
      .out<at::_ops::scatter_src_out>();
  structured<structured_scatter_value_out, call_impl<structured_scatter_value_out, Tensor, int64_t, Tensor, Scalar>>(m)
      .functional<at::_ops::scatter_value>()
      .inplace<at::_ops::scatter__value>()
      .out<at::_ops::scatter_value_out>();
  structured<structured_scatter_reduce_out,
             call_impl<structured_scatter_reduce_out, Tensor, int64_t, Tensor, Tensor, std::string_view>>(m)
      .functional<at::_ops::scatter_reduce>()
      .inplace<at::_ops::scatter__reduce>()
      .out<at::_ops::scatter_reduce_out>();
  structured<structured_scatter_value_reduce_out,
             call_impl<structured_scatter_value_reduce_out, Tensor, int64_t, Tensor, Scalar, std::string_view>>(m)
      .functional<at::_ops::scatter_value_reduce>()
      .inplace<at::_ops::scatter__value_reduce>()
      .out<at::_ops::scatter_value_reduce_out>();
  structured<structured_scatter_add, call_impl<structured_scatter_add, Tensor, int64_t, Tensor, Tensor>>(m)
      .functional<at::_ops::scatter_add>()
      .inplace<at::_ops::scatter_add_>()
      .out<at::_ops::scatter_add_out>();
  structured<structured_scatter_reduce_two,
             call_impl<structured_scatter_reduce_two, Tensor, int64_t, Tensor, Tensor, std::string_view, bool>>(m)
      .functional<at::_ops::scatter_reduce_two>()
      .inplace<at::_ops::scatter_reduce__two>()
      .out<at::_ops::scatter_reduce_two_out>();
  register_native<at::_ops::index_select, index_select>(m);
  register_native<at::_ops::index_select_out, index_select_out>(m);
  structured<at::meta::structured_index_add, launch_index_add>(m)
      .functional<at::_ops::index_add>()
      .inplace<at::_ops::index_add_>()
      .out<at::_ops::index_add_out>();
  structured<at::meta::structured_index_reduce, launch_index_reduce>(m)
      .functional<at::_ops::index_reduce>()
      .inplace<at::_ops::index_reduce_>()
      .out<at::_ops::index_reduce_out>();
}

}  // namespace
}  // namespace torch_npu::gather_scatter_cpp

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(gather_stub, &torch_npu::gather_scatter_cpp::launch_gather)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_stub, &torch_npu::gather_scatter_cpp::launch_scatter)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_fill_stub, &torch_npu::gather_scatter_cpp::launch_scatter_fill)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_add_stub, &torch_npu::gather_scatter_cpp::launch_scatter_add)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_reduce_stub, &torch_npu::gather_scatter_cpp::launch_scatter_reduce)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_scalar_reduce_stub, &torch_npu::gather_scatter_cpp::launch_scatter_scalar_reduce)
REGISTER_PRIVATEUSE1_DISPATCH(scatter_reduce_two_stub, &torch_npu::gather_scatter_cpp::launch_scatter_reduce_two)
}  // namespace at::native
