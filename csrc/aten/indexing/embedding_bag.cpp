// embedding_bag: one SCATTER adds (or takes the greatest of) the rows of each bag. Forward and gradients index as the
// embedding does: an index out of range raises IndexError at the next synchronisation.
#include <ATen/TensorOperators.h>
#include <ATen/TensorUtils.h>
#include <ATen/ops/_embedding_bag_backward_native.h>
#include <ATen/ops/_embedding_bag_backward_ops.h>
#include <ATen/ops/_embedding_bag_dense_backward_ops.h>
#include <ATen/ops/_embedding_bag_forward_only_ops.h>
#include <ATen/ops/_embedding_bag_ops.h>
#include <ATen/ops/_embedding_bag_per_sample_weights_backward_ops.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/optional.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::embedding_bag_cpp {
namespace {

using at::Tensor;

enum Mode { kSum, kMean, kMax };

// %row and %use are those of a place in the list of indices.
std::string bag_text(const char* operands, const char* other_stride, const std::string& lines) {
  return std::string("formula embedding_bag(") + operands + "; padding: i64, rows: i64, row_stride: i64, " +
         other_stride +
         ": i64)\neach:\n  %use = index != padding\n  %row = check_index(index, rows, check, mask %use)\n" + lines;
}

// out[bag] += weight[index] * scale; for the greatest, the operand scale is one.
std::string add_text(const char* mode) {
  return bag_text("out, weight, index: i64, bag: i64, scale", "out_stride",
                  "  %v = load_at(weight, %row * row_stride, mask %use) * scale\n"
                  "  store_at(out, %v, bag * out_stride, " +
                      std::string(mode) + ", mask %use)\n");
}

TypedProgram k_bag_sum(add_text("add")), k_bag_max(add_text("max"));
// The first place of each bag whose element is the greatest.
TypedProgram k_bag_place(bag_text("place, weight, index: i64, bag: i64, out", "out_stride", R"(
  %w = load_at(weight, %row * row_stride, mask %use)
  %at = bag * out_stride
  store_at(place, index(0), %at, min, mask %w == load_at(out, %at, mask %use) and %use)
)"));
// grad_weight[index] += grad[bag] * scale
TypedProgram k_bag_backward(bag_text("out, grad, index: i64, bag: i64, scale", "grad_stride", R"(
  %v = load_at(grad, bag * grad_stride, mask %use) * scale
  store_at(out, %v, %row * row_stride, add, mask %use)
)"));
// grad of the weight of a place: the product of its row and the bag's gradient.
TypedProgram k_bag_dot(bag_text("out, grad, index: i64, bag: i64, weight", "grad_stride", R"(
  %g = load_at(grad, bag * grad_stride, mask %use)
  %sum = fold(sum, %g * load_at(weight, %row * row_stride, mask %use))
row:
  out = %sum
)"));

// 16-bit sums would stop growing.
at::ScalarType sum_type(const Tensor& like) {
  return at::isReducedFloatingType(like.scalar_type()) ? at::kFloat : like.scalar_type();
}

struct Bags {
  Tensor index, bag, sizes;
  int64_t count = 0;
};

Bags find_bags(const Tensor& indices, const Tensor& offsets, bool include_last, int64_t padding) {
  Bags b;
  b.count = offsets.size(0) - include_last;
  b.index = indices.contiguous();
  const auto options = indices.options().dtype(at::kLong);
  const Tensor starts = offsets.narrow(0, 0, b.count).to(at::kLong).contiguous();
  b.bag = indices.numel() == 0 || b.count == 0
              ? at::zeros({indices.numel()}, options)
              : at::searchsorted(starts, at::arange(indices.numel(), options), /*out_int32=*/false, /*right=*/true) - 1;
  b.sizes = at::zeros({b.count}, options);
  if (indices.numel() > 0) {
    b.sizes.index_add_(0, b.bag, b.index.ne(padding).to(at::kLong));
  }
  return b;
}

void check(const Tensor& weight, const Tensor& indices, const Tensor& offsets, int64_t mode,
           const OptTensor& per_sample, bool include_last) {
  at::checkScalarTypes("embedding_bag", at::TensorArg(indices, "indices", 1), {at::kLong, at::kInt});
  at::checkScalarTypes("embedding_bag", at::TensorArg(offsets, "offsets", 1), {at::kLong, at::kInt});
  at::checkScalarTypes("embedding_bag", at::TensorArg(weight, "weight", 1),
                       {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble});
  at::checkDim("embedding_bag", at::TensorArg(indices, "indices", 1), 1);
  at::checkDim("embedding_bag", at::TensorArg(offsets, "offsets", 1), 1);
  at::checkDim("embedding_bag", at::TensorArg(weight, "weight", 1), 2);
  check_same_device("embedding_bag", {&weight, &indices, &offsets});
  if (per_sample && per_sample->defined()) {
    TORCH_CHECK(mode == kSum,
                "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported "
                "for mode='sum' (got mode='",
                mode == kMean ? "mean" : "max",
                "'). Please open a feature request on "
                "GitHub.");
    TORCH_CHECK(per_sample->dim() == 1 && per_sample->numel() == indices.numel(),
                "expected per_sample_weights to have one weight for each of the ", indices.numel(), " indices, got ",
                per_sample->sizes());
    TORCH_CHECK(per_sample->scalar_type() == weight.scalar_type(),
                "expected per_sample_weights of the type of the "
                "weight, ",
                weight.scalar_type(), ", got ", per_sample->scalar_type());
  }
  TORCH_CHECK(!include_last || offsets.size(0) >= 1, "include_last_offset: number of offset should be at least 1");
}

using Result = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Output, the bag of each index, the sizes of the bags, and for the greatest the index it came from.
Result embedding_bag(const Tensor& weight, const Tensor& indices_, const Tensor& offsets_, bool, int64_t mode, bool,
                     const OptTensor& per_sample, bool include_last, int64_t padding) {
  constexpr const char* label = "aten::_embedding_bag";
  const auto wide_index = at::promoteTypes(indices_.scalar_type(), offsets_.scalar_type());
  const Tensor indices = indices_.to(wide_index), offsets = offsets_.to(wide_index);
  check(weight, indices, offsets, mode, per_sample, include_last);
  const npu_dtype compute = compute_dtype(numeric_dtype(weight.scalar_type(), label));
  const Bags b = find_bags(indices, offsets, include_last, padding);
  const int64_t n = indices.numel(), width = weight.size(1);
  const auto options = weight.options().dtype(sum_type(weight));
  const Tensor scale = per_sample && per_sample->defined() ? *per_sample : at::ones({1}, options).expand({n});
  const double low = -std::numeric_limits<double>::infinity();
  Tensor out = at::full({b.count, width}, mode == kMax ? low : 0.0, options);
  Tensor max_index = at::zeros({mode == kMax ? b.count : 0, mode == kMax ? width : 0}, b.bag.options());
  if (n > 0 && out.numel() > 0) {
    const auto nest = [&](const Tensor& target, const Tensor& last, at::IntArrayRef strides, DeviceProgram& program) {
      Nest(NPU_SCATTER, label, {n, width})
          .with(target, {0, 1})
          .with(weight, {0, weight.stride(1)})
          .with(b.index, {1, 0})
          .with(b.bag, {1, 0})
          .with(last, strides)
          .integer(padding)
          .integer(weight.size(0))
          .integer(weight.stride(0))
          .integer(width)
          .run(program);
    };
    nest(out, scale, {scale.stride(0), 0}, (mode == kMax ? k_bag_max : k_bag_sum).of(compute));
    if (mode == kMax) {
      const Tensor place = at::full({b.count, width}, n, b.bag.options());
      nest(place, out, {0, 1}, k_bag_place.of(compute));
      max_index = b.index.to(at::kLong).index_select(0, place.clamp_max(n - 1).reshape({-1})).reshape(place.sizes());
    }
  }
  if (mode == kMean) {
    out.div_(b.sizes.clamp_min(1).unsqueeze(1));
  } else if (mode == kMax) {
    out.masked_fill_(b.sizes.eq(0).unsqueeze(1), 0);
    max_index.masked_fill_(b.sizes.eq(0).unsqueeze(1), 0);
  }
  const auto type = offsets.scalar_type();
  return {out.to(weight.scalar_type()), b.bag.to(type), b.sizes.to(type), max_index.to(type)};
}

Tensor embedding_bag_dense_backward(const Tensor& grad_, const Tensor& indices_, const Tensor& offset2bag,
                                    const Tensor& bag_size, const Tensor& max_indices, int64_t num_weights,
                                    bool scale_grad_by_freq, int64_t mode, const OptTensor& per_sample,
                                    int64_t padding) {
  constexpr const char* label = "aten::_embedding_bag_dense_backward";
  const npu_dtype compute = compute_dtype(numeric_dtype(grad_.scalar_type(), label));
  const Tensor grad = grad_.contiguous(), indices = indices_.contiguous();
  const int64_t n = indices.numel(), width = grad.size(1);
  const auto options = grad.options().dtype(sum_type(grad));
  Tensor out = at::zeros({num_weights, width}, options);
  if (mode == kMax) {
    if (grad.numel() > 0) {
      const Tensor taken = grad.to(options.dtype()).masked_fill(bag_size.eq(0).unsqueeze(1), 0);
      out.scatter_add_(0, max_indices.to(at::kLong), taken);
    }
    return out.to(grad.scalar_type());
  }
  if (n == 0 || out.numel() == 0) {
    return out.to(grad.scalar_type());
  }
  const Tensor bags = offset2bag.to(at::kLong).contiguous();
  Tensor scale = per_sample && per_sample->defined() ? per_sample->to(options.dtype()) : at::ones({n}, options);
  if (mode == kMean) {
    scale = scale / bag_size.to(at::kLong).index_select(0, bags).clamp_min(1);
  }
  if (scale_grad_by_freq) {
    const Tensor index = indices.to(at::kLong);
    const Tensor counts = at::zeros({num_weights}, index.options()).index_add_(0, index, at::ones_like(index));
    scale = scale / counts.index_select(0, index);
  }
  Nest(NPU_SCATTER, label, {n, width})
      .with(out, {0, 1})
      .with(grad, {0, 1})
      .with(indices, {1, 0})
      .with(bags, {1, 0})
      .with(scale, {scale.stride(0), 0})
      .integer(padding)
      .integer(num_weights)
      .integer(width)
      .integer(width)
      .run(k_bag_backward.of(compute));
  return out.to(grad.scalar_type());
}

Tensor per_sample_weights_backward(const Tensor& grad_, const Tensor& weight, const Tensor& indices_, const Tensor&,
                                   const Tensor& offset2bag, int64_t mode, int64_t padding) {
  constexpr const char* label = "aten::_embedding_bag_per_sample_weights_backward";
  TORCH_CHECK(mode == kSum, "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
  const npu_dtype compute = compute_dtype(numeric_dtype(grad_.scalar_type(), label));
  const Tensor grad = grad_.contiguous(), indices = indices_.contiguous(), bags = offset2bag.contiguous();
  const int64_t n = indices.numel(), width = grad.size(1);
  const Tensor out = at::zeros({n}, grad.options());
  if (n == 0 || width == 0) {
    return out;
  }
  Nest(NPU_REDUCE, label, {n, width}, 1)
      .with(out, {1, 0})
      .with(grad, {0, 1})
      .with(indices, {1, 0})
      .with(bags, {1, 0})
      .with(weight, {0, weight.stride(1)})
      .integer(padding)
      .integer(weight.size(0))
      .integer(weight.stride(0))
      .integer(width)
      .run(k_bag_dot.of(compute));
  return out;
}

Tensor embedding_bag_backward(const Tensor& grad, const Tensor& indices, const Tensor& offsets,
                              const Tensor& offset2bag, const Tensor& bag_size, const Tensor& max_indices,
                              int64_t num_weights, bool scale_grad_by_freq, int64_t mode, bool sparse,
                              const OptTensor& per_sample, int64_t padding) {
  return at::native::_embedding_bag_backward_symint(grad, indices, offsets, offset2bag, bag_size, max_indices,
                                                    num_weights, scale_grad_by_freq, mode, sparse, per_sample, padding);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_native<ops::_embedding_bag, embedding_bag>(m);
  register_native<ops::_embedding_bag_forward_only, embedding_bag>(m);
  register_native<ops::_embedding_bag_backward, embedding_bag_backward>(m);
  register_native<ops::_embedding_bag_dense_backward, embedding_bag_dense_backward>(m);
  register_native<ops::_embedding_bag_per_sample_weights_backward, per_sample_weights_backward>(m);
}

}  // namespace
}  // namespace torch_npu::embedding_bag_cpp
