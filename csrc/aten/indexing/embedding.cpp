// Gradients of embeddings. The lookup itself is PyTorch's: an index_select.
#include <ATen/TensorOperators.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/embedding_renorm_ops.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "csrc/aten/dispatch/complex.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::embedding_cpp {
namespace {

TypedProgram k_count(R"(
formula count(index, counts; size): i64
each:
  %c = check_index(index, size, check)
  store_at(counts, 1, %c, add)
)");

TypedProgram k_embedding_backward(R"(
formula embedding_backward(grad, index: i64, out; size: i64, stride: i64, padding: i64)
each:
  %m = index != padding
  %c = check_index(index, size, check, mask %m)
  store_at(out, grad, %c * stride, add, mask %m)
)");

TypedProgram k_embedding_backward_scaled(R"(
formula embedding_backward_scaled(grad, index: i64, out, counts; size: i64, stride: i64, padding: i64)
each:
  %m = index != padding
  %c = check_index(index, size, check, mask %m)
  store_at(out, grad / load_at(counts, %c, mask %m), %c * stride, add, mask %m)
)");

at::Tensor embedding_dense_backward(const at::Tensor& grad_output, const at::Tensor& indices, int64_t num_weights,
                                    int64_t padding_idx, bool scale_grad_by_freq) {
  constexpr const char* label = "aten::embedding_dense_backward";
  at::checkScalarTypes("embedding_backward", at::TensorArg(indices, "indices", 2), {at::kLong, at::kInt});
  check_same_device(label, {&grad_output, &indices});
  if (grad_output.is_complex()) {  // rows of twice the length
    const at::Tensor rows = parts(grad_output).flatten(-2);
    const at::Tensor out =
        embedding_cpp::embedding_dense_backward(rows, indices, num_weights, padding_idx, scale_grad_by_freq);
    return at::view_as_complex(out.view({num_weights, -1, 2}));
  }
  const npu_dtype compute = compute_dtype(numeric_dtype(grad_output.scalar_type(), label));
  const int64_t width = grad_output.size(-1), count = indices.numel();
  const at::Tensor grad = grad_output.reshape({count, width});
  const at::Tensor index = indices.contiguous();
  // 16-bit gradients of a frequent word would stop growing: they are summed in single precision.
  const bool narrow = at::isReducedFloatingType(grad.scalar_type());
  const at::Tensor out =
      at::zeros({num_weights, width}, grad.options().dtype(narrow ? at::kFloat : grad.scalar_type()));
  Nest nest(NPU_SCATTER, label, {count, width});
  nest.with(grad).with(index, {1, 0}).with(out, {0, 1});
  DeviceProgram* program = &k_embedding_backward.of(compute);
  at::Tensor counts;
  if (scale_grad_by_freq) {
    counts = at::zeros({num_weights}, index.options().dtype(at::kLong));
    Nest(NPU_SCATTER, label, {count}).with(index, {1}).with(counts, {0}).integer(num_weights).run(k_count.of(NPU_I64));
    nest.with(counts, {0, 0});
    program = &k_embedding_backward_scaled.of(compute);
  }
  nest.integer(num_weights).integer(width).integer(padding_idx).run(*program);
  return narrow ? out.to(grad.scalar_type()) : out;
}

// A row that occurs twice is written twice with one value.
at::Tensor& embedding_renorm_(at::Tensor& self, const at::Tensor& indices, double max_norm, double norm_type) {
  at::checkDim("embedding_renorm_", at::TensorArg(self, "self", 1), 2);
  at::checkScalarTypes("embedding_renorm_", at::TensorArg(indices, "indices", 2), {at::kLong, at::kInt});
  if (indices.numel() == 0) {
    return self;
  }
  const at::Tensor index = indices.reshape({-1});
  const at::Tensor rows = self.index_select(0, index);
  const at::Tensor norm = at::linalg_vector_norm(rows, norm_type, 1, /*keepdim=*/true);
  const at::Tensor scaled = rows * (max_norm / (norm + 1e-7));
  return self.index_copy_(0, index.to(at::kLong), at::where(norm > max_norm, scaled, rows));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::embedding_dense_backward, embedding_dense_backward>(m);
  m.impl("embedding_renorm_", TORCH_FN(embedding_renorm_));
}

}  // namespace
}  // namespace torch_npu::embedding_cpp
