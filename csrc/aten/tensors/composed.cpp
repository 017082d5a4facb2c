// Ops that are a few other ops.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Cross.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/_assert_async_ops.h>
#include <ATen/ops/addbmm_ops.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/channel_shuffle_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/hash_tensor_meta.h>
#include <ATen/ops/hash_tensor_ops.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/linalg_cross_native.h>
#include <ATen/ops/linalg_cross_ops.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/renorm_meta.h>
#include <ATen/ops/renorm_ops.h>
#include <ATen/ops/rrelu_with_noise_ops.h>
#include <ATen/ops/where.h>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/reduction.h"

namespace torch_npu::composed_cpp {
namespace {

using at::Scalar;
using at::Tensor;

// ---- addbmm: the sum over the batch is one long inner dimension of one product.

Tensor addbmm_into(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
                   const Scalar& alpha, Tensor out) {
  TORCH_CHECK(batch1.dim() == 3, "batch1 must be a 3D tensor");
  TORCH_CHECK(batch2.dim() == 3, "batch2 must be a 3D tensor");
  TORCH_CHECK(batch1.size(0) == batch2.size(0), "batch1 and batch2 must have same number of batches, got ",
              batch1.size(0), " and ", batch2.size(0));
  TORCH_CHECK(batch1.size(2) == batch2.size(1), "Incompatible matrix sizes for bmm (", batch1.size(1), "x",
              batch1.size(2), " and ", batch2.size(1), "x", batch2.size(2), ")");
  const int64_t rows = batch1.size(1), columns = batch2.size(2), inner = batch1.size(0) * batch1.size(2);
  const Tensor added = self.expand({rows, columns});
  const Tensor a = batch1.permute({1, 0, 2}).reshape({rows, inner}), b = batch2.reshape({inner, columns});
  if (!out.defined()) {
    return at::addmm(added, a, b, beta, alpha);
  }
  return at::addmm_out(out, added, a, b, beta, alpha);
}
Tensor addbmm(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta, const Scalar& alpha) {
  return addbmm_into(self, batch1, batch2, beta, alpha, Tensor());
}
Tensor& addbmm_(Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta, const Scalar& alpha) {
  addbmm_into(self, batch1, batch2, beta, alpha, self);
  return self;
}
Tensor& addbmm_out(const Tensor& self, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
                   const Scalar& alpha, Tensor& out) {
  addbmm_into(self, batch1, batch2, beta, alpha, out);
  return out;
}

// ---- channel_shuffle

Tensor channel_shuffle(const Tensor& self, int64_t groups) {
  TORCH_CHECK(self.dim() > 2, "channel_shuffle expects input with > 2 dims, but got input with sizes ", self.sizes());
  const int64_t channels = self.size(1);
  TORCH_CHECK(groups > 0, "Number of groups to divide channels in must be positive. Value of groups:", groups);
  TORCH_CHECK(channels % groups == 0, "Number of channels must be divisible by groups. Got ", channels,
              " channels and ", groups, " groups.");
  if (self.numel() == 0) {
    return self.alias();
  }
  Tensor out = at::empty_like(self, self.suggest_memory_format());
  // Channels as (groups, channels / groups), written in the other order.
  at::DimVector sizes(self.sizes()), from(self.strides()), to(out.strides());
  sizes[1] = channels / groups;
  sizes.insert(sizes.begin() + 1, groups);
  from.insert(from.begin() + 1, self.stride(1) * (channels / groups));
  to[1] = out.stride(1) * groups;
  to.insert(to.begin() + 1, out.stride(1));
  out.as_strided(sizes, to, out.storage_offset()).copy_(self.as_strided(sizes, from, self.storage_offset()));
  return out;
}

// ---- renorm: slices along a dimension whose norm is above a bound are scaled down to it.

void launch_renorm(at::meta::structured_renorm&, const Tensor& out, const Tensor& self, const Scalar& p, int64_t dim,
                   const Scalar& maxnorm) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::DimVector others;
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != dim) others.push_back(d);
  }
  const auto wide = at::toOpMathType(self.scalar_type());
  const Tensor norm =
      at::linalg_vector_norm(self, p, others, /*keepdim=*/true, self.is_complex() ? std::nullopt : std::optional(wide));
  const Tensor factor = at::where(norm > maxnorm, maxnorm / (norm + 1e-7), at::ones_like(norm));
  out.copy_(self * factor.to(self.scalar_type()));
}

// ---- The host asks for the value, as the CPU's kernel does: the message belongs to this line of the program.

void assert_async_msg(const Tensor& self, std::string_view message) {
  TORCH_CHECK(self.is_nonzero(), message.empty() ? std::string_view("Assertion is failed") : message);
}
void assert_async(const Tensor& self) {
  TORCH_CHECK(self.is_nonzero(), "Expected Tensor with single nonzero value, but got zero");
}

// ---- cross product: each component from the other two.

TypedProgram k_cross(R"(
formula cross(out, a, b; a_stride: i64, b_stride: i64)
each:
  %j = fmod(index(7) + 1, 3)
  %k = fmod(index(7) + 2, 3)
  %p = load_at(a, %j * a_stride) * load_at(b, %k * b_stride)
  %q = load_at(a, %k * a_stride) * load_at(b, %j * b_stride)
  out = %p - %q
)");

// Complex numbers take complex products; all are there before the first is stored, for a result that is an input.
void complex_cross(const Tensor& result, const Tensor& a, const Tensor& b, const int64_t dim) {
  std::array<Tensor, 3> parts;
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t j = (i + 1) % 3, k = (i + 2) % 3;
    parts[i] = a.select(dim, j) * b.select(dim, k) - a.select(dim, k) * b.select(dim, j);
  }
  for (int64_t i = 0; i < 3; ++i) {
    result.select(dim, i).copy_(parts[i]);
  }
}

void launch_cross(const Tensor& result, const Tensor& a, const Tensor& b, const int64_t dim) {
  constexpr const char* label = "aten::linalg_cross";
  if (result.is_complex()) {
    return complex_cross(result, a, b, dim);
  }
  const npu_dtype compute = compute_type(result, label);
  at::DimVector a_strides(a.strides()), b_strides(b.strides());
  a_strides[dim] = b_strides[dim] = 0;
  Rows(label, result.sizes(), one_dim(result, dim))
      .indexed()
      .add(result)
      .strided(a, a_strides)
      .strided(b, b_strides)
      .map(k_cross.of(compute), {integer(a.stride(dim)), integer(b.stride(dim))});
}

void impl_cross(at::native::structured_linalg_cross_out& op, const Tensor& out, const Tensor& self, const Tensor& other,
                int64_t dim) {
  op.impl(self, other, dim, out);
}

// ---- hash_tensor: the exclusive or of the elements' bits, floats as doubles.

TypedProgram k_hash(R"(
program hash(out, x)
each:
  %x = load x : $t
  %bits = bitcast %x, $t->u64
  %h = fold xor %bits
row:
  store out, %h
)");

void launch_hash(at::meta::structured_hash_tensor&, const Tensor& out, const Tensor& self, at::IntArrayRef dims, bool,
                 int64_t mode) {
  constexpr const char* label = "aten::hash_tensor";
  if (mode != 0) {
    throw Unsupported(label);  // for PyTorch's own sentence
  }
  const npu_dtype compute = is_float(compute_type(self, label)) ? NPU_F64 : NPU_I64;
  DimMask inner = at::native::make_dim_mask(dims, self.dim(), /*allow_empty_dims=*/false);
  Rows(label, self.sizes(), inner).reduced(out).add(self).reduce(k_hash.of(compute));
}

// ---- rrelu: the slope of negative numbers is random while training.

Tensor& rrelu_out(const Tensor& self, Tensor& noise, const Scalar& lower, const Scalar& upper, bool training,
                  std::optional<at::Generator> generator, Tensor& out) {
  TORCH_CHECK(self.sizes() == noise.sizes(),
              "noise tensor shape must match self tensor shape. Got self.shape = ", self.sizes(),
              " noise.shape = ", noise.sizes());
  if (!training) {
    return at::leaky_relu_out(out, self, (lower.toDouble() + upper.toDouble()) / 2);
  }
  const Tensor slopes = at::empty_like(self).uniform_(lower.toDouble(), upper.toDouble(), generator);
  noise.copy_(at::where(self <= 0, slopes, at::ones_like(slopes)));
  at::native::resize_output(out, self.sizes());
  return out.copy_(self * noise);
}
Tensor rrelu(const Tensor& self, Tensor& noise, const Scalar& lower, const Scalar& upper, bool training,
             std::optional<at::Generator> generator) {
  Tensor out = at::empty_like(self, at::MemoryFormat::Contiguous);
  return rrelu_out(self, noise, lower, upper, training, std::move(generator), out);
}
Tensor& rrelu_(Tensor& self, Tensor& noise, const Scalar& lower, const Scalar& upper, bool training,
               std::optional<at::Generator> generator) {
  return rrelu_out(self, noise, lower, upper, training, std::move(generator), self);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_native<ops::addbmm, addbmm>(m);
  register_native<ops::addbmm_, addbmm_>(m);
  register_native<ops::addbmm_out, addbmm_out>(m);
  register_native<ops::channel_shuffle, channel_shuffle>(m);
  structured<at::meta::structured_renorm, launch_renorm>(m)
      .functional<ops::renorm>()
      .inplace<ops::renorm_>()
      .out<ops::renorm_out>();
  register_native<ops::_assert_async, assert_async>(m);
  register_native<ops::_assert_async_msg, assert_async_msg>(m);
  structured<at::native::structured_linalg_cross_out, impl_cross>(m)
      .functional<ops::linalg_cross>()
      .out<ops::linalg_cross_out>();
  structured<at::meta::structured_hash_tensor, launch_hash>(m)
      .functional<ops::hash_tensor>()
      .out<ops::hash_tensor_out>();
  register_native<ops::rrelu_with_noise, rrelu>(m);
  register_native<ops::rrelu_with_noise_, rrelu_>(m);
  register_native<ops::rrelu_with_noise_out, rrelu_out>(m);
}

}  // namespace
}  // namespace torch_npu::composed_cpp

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(cross_stub, &torch_npu::composed_cpp::launch_cross)
}  // namespace at::native
