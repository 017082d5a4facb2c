// segment_reduce: a search tells each element its segment, a SCATTER with a combine reduces, a gather brings gradients
// back. PyTorch's own code checks the arguments.
#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/ReductionType.h>
#include <ATen/native/SegmentReduce.h>
#include <ATen/ops/_segment_reduce_backward_native.h>
#include <ATen/ops/_segment_reduce_backward_ops.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/segment_reduce_native.h>
#include <ATen/ops/segment_reduce_ops.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <limits>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::segment_reduce_cpp {
namespace {

using at::Tensor;
using at::native::ReductionType;
using Initial = const std::optional<at::Scalar>&;

// Tensors as [outer, along the axis, inner], in the type of sums.
struct Segments {
  Segments(const Tensor& data_, const Tensor& offsets_) : shape(data_.sizes()) {
    axis = offsets_.dim() - 1;
    const int64_t n = data_.size(axis);
    const Tensor edges = offsets_.to(at::kLong).reshape({-1, offsets_.size(axis)}).contiguous();
    outer = edges.size(0);
    count = edges.size(1) - 1;
    int64_t inner = 1;
    for (int64_t d = axis + 1; d < data_.dim(); ++d) inner *= data_.size(d);
    data = data_.reshape({outer, n, inner}).to(at::toOpMathType(data_.scalar_type()));
    lengths = (edges.narrow(1, 1, count) - edges.narrow(1, 0, count)).unsqueeze(2);
    // Elements in front of the first segment and behind the last go to one more, which is dropped.
    const Tensor places = at::arange(n, edges.options()).expand({outer, n}).contiguous();
    const Tensor found = at::searchsorted(edges, places, /*out_int32=*/false, /*right=*/true) - 1;
    ids = at::where(found < 0, at::scalar_tensor(count, found.options()), found).unsqueeze(2).expand(data.sizes());
    shape[axis] = count;
  }

  Tensor reduce(const Tensor& values, std::string_view how, const at::Scalar& start) const {
    const Tensor out = at::full({outer, count + 1, data.size(2)}, start, values.options());
    return out.scatter_reduce_(1, ids, values, how, /*include_self=*/true).narrow(1, 0, count);
  }
  // A value per segment, for each of its elements; 0 for those of none.
  Tensor spread(const Tensor& values) const {
    const Tensor wide = values.expand({outer, count, data.size(2)});
    return at::cat({wide, at::zeros({outer, 1, data.size(2)}, wide.options())}, 1).gather(1, ids);
  }

  int64_t axis = 0, outer = 0, count = 0;
  at::DimVector shape;  // of the result
  Tensor data, lengths, ids;
};

at::Scalar start_of(ReductionType reduction, Initial initial) {
  if (initial) return *initial;
  switch (reduction) {
    case ReductionType::MAX:
      return -std::numeric_limits<double>::infinity();
    case ReductionType::MIN:
      return std::numeric_limits<double>::infinity();
    case ReductionType::PROD:
      return 1.0;
    default:
      return 0.0;
  }
}

const char* name_of(ReductionType reduction) {
  return reduction == ReductionType::MAX    ? "amax"
         : reduction == ReductionType::MIN  ? "amin"
         : reduction == ReductionType::PROD ? "prod"
                                            : "sum";
}

Tensor by_offsets(ReductionType reduction, const Tensor& data, const Tensor& offsets, int64_t, Initial initial) {
  numeric_dtype(data.scalar_type(), "aten::segment_reduce");
  const Segments s(data, offsets);
  Tensor out = s.reduce(s.data, name_of(reduction), start_of(reduction, initial));
  if (reduction == ReductionType::MEAN) {
    // An empty segment keeps the initial value, or is a NaN.
    const Tensor empty = initial ? out : at::full({}, std::numeric_limits<double>::quiet_NaN(), out.options());
    out = at::where(s.lengths == 0, empty, out / s.lengths);
  }
  return out.reshape(s.shape).to(data.scalar_type()).contiguous();
}

Tensor by_offsets_backward(const Tensor& grad_, const Tensor& output_, const Tensor& data, ReductionType reduction,
                           const Tensor& offsets, int64_t, Initial initial) {
  numeric_dtype(data.scalar_type(), "aten::_segment_reduce_backward");
  const Segments s(data, offsets);
  const auto as_segments = [&](const Tensor& t) {
    return s.spread(t.to(s.data.scalar_type()).reshape({s.outer, s.count, s.data.size(2)}));
  };
  Tensor grad = as_segments(grad_);
  if (reduction == ReductionType::MEAN) {
    grad = as_segments(grad_.reshape({s.outer, s.count, -1}) / s.lengths);
  } else if (reduction == ReductionType::MAX || reduction == ReductionType::MIN) {
    // Equals share what is positive, as PyTorch does.
    const Tensor is = s.data.isnan() | (s.data == as_segments(output_));
    const Tensor equals = s.spread(s.reduce(is.to(s.data.scalar_type()), "sum", 0));
    grad = grad * is;
    grad = at::where((grad > 0) & (equals > 1), grad / equals, grad);
  } else if (reduction == ReductionType::PROD) {
    // A zero or a NaN cannot be divided out: the product of the others is made without them.
    const Tensor zero = s.data == 0, nan = s.data.isnan(), odd = zero | nan;
    const Tensor rest = s.spread(s.reduce(s.data.masked_fill(odd, 1), "prod", start_of(reduction, initial)));
    const Tensor zeros = s.spread(s.reduce(zero.to(rest.scalar_type()), "sum", 0)) - zero.to(rest.scalar_type());
    const Tensor nans = s.spread(s.reduce(nan.to(rest.scalar_type()), "sum", 0)) - nan.to(rest.scalar_type());
    const Tensor others =
        rest.masked_fill(zeros > 0, 0).masked_fill(nans > 0, std::numeric_limits<double>::quiet_NaN());
    grad = grad * at::where(odd, others, as_segments(output_) / s.data);
  }
  return grad.reshape(data.sizes()).to(grad_.scalar_type());
}

Tensor offsets_of(const Tensor& lengths) {
  const Tensor ends = lengths.to(at::kLong).cumsum(-1);
  return at::cat({at::zeros_like(ends.narrow(-1, 0, 1)), ends}, -1);
}

Tensor by_lengths(ReductionType reduction, const Tensor& data, const Tensor& lengths, int64_t axis, Initial initial) {
  return by_offsets(reduction, data, offsets_of(lengths), axis, initial);
}
Tensor by_lengths_backward(const Tensor& grad, const Tensor& output, const Tensor& data, ReductionType reduction,
                           const Tensor& lengths, int64_t axis, Initial initial) {
  return by_offsets_backward(grad, output, data, reduction, offsets_of(lengths), axis, initial);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::segment_reduce, at::native::segment_reduce_kernel>(m);
  register_native<at::_ops::_segment_reduce_backward, at::native::_segment_reduce_backward_kernel>(m);
}

}  // namespace
}  // namespace torch_npu::segment_reduce_cpp

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_lengths_stub, &torch_npu::segment_reduce_cpp::by_lengths)
REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_offsets_stub, &torch_npu::segment_reduce_cpp::by_offsets)
REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_lengths_backward_stub,
                              &torch_npu::segment_reduce_cpp::by_lengths_backward)
REGISTER_PRIVATEUSE1_DISPATCH(_segment_reduce_offsets_backward_stub,
                              &torch_npu::segment_reduce_cpp::by_offsets_backward)
}  // namespace at::native
