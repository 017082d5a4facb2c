// Undoing max pooling, and max pooling over windows at random places (fractional).
#include <ATen/native/FractionalMaxPooling.h>
#include <ATen/ops/fractional_max_pool2d_backward_meta.h>
#include <ATen/ops/fractional_max_pool2d_backward_ops.h>
#include <ATen/ops/fractional_max_pool2d_meta.h>
#include <ATen/ops/fractional_max_pool2d_ops.h>
#include <ATen/ops/fractional_max_pool3d_backward_ops.h>
#include <ATen/ops/fractional_max_pool3d_meta.h>
#include <ATen/ops/fractional_max_pool3d_ops.h>
#include <ATen/ops/max_unpool2d_ops.h>
#include <ATen/ops/max_unpool3d_ops.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/structured.h"
#include "csrc/aten/dispatch/structured_pair.h"
#include "csrc/aten/images/pool.h"

namespace torch_npu::unpool_cpp {
namespace {

using at::IntArrayRef;
using at::Tensor;

// The last n dimensions as one.
Tensor flat_planes(const Tensor& tensor, int64_t n) {
  at::DimVector sizes(tensor.sizes().begin(), tensor.sizes().end() - n);
  sizes.push_back(-1);
  return tensor.reshape(sizes);
}

at::DimVector with_planes(const Tensor& like, IntArrayRef plane) {
  at::DimVector sizes(like.sizes().begin(), like.sizes().end() - plane.size());
  sizes.append(plane.begin(), plane.end());
  return sizes;
}

void check_unpool(const Tensor& self, const Tensor& indices, IntArrayRef output_size, const char* name,
                  const char* caller) {
  const int64_t n = static_cast<int64_t>(output_size.size());
  TORCH_CHECK(indices.scalar_type() == at::kLong, "elements in indices should be type int64",
              n == 2 ? " but got: " : "", n == 2 ? c10::toString(indices.scalar_type()) : "");
  TORCH_CHECK(self.dim() == n + 1 || self.dim() == n + 2, "Input to ", name, " should be a ", n + 1, "d or ", n + 2,
              "d Tensor, but got a tensor with ", self.dim(), " dimensions.");
  TORCH_CHECK(self.sizes() == indices.sizes(), "Expected shape of indices to be same as that of the input tensor (",
              self.sizes(), ") but got indices tensor with shape: ", indices.sizes());
  for (int64_t d = 1; d < self.dim(); ++d) {
    TORCH_CHECK(self.size(d) > 0, caller, ": Expected input to have non-zero size for non-batch dimensions, but got ",
                self.sizes(), " with dimension ", d, " being empty.");
  }
  check_same_device(name, {&self, &indices});
}

void check_not_negative(IntArrayRef output_size, const char* name) {
  TORCH_CHECK(std::all_of(output_size.begin(), output_size.end(), [](int64_t size) { return size >= 0; }), name,
              "(): output_size must contain non-negative spatial dimensions, but got output_size=(", output_size, ")");
}

// Writes each element to its index in the plane of the output.
void unpool(const Tensor& self, const Tensor& indices, IntArrayRef output_size, Tensor& out, at::MemoryFormat format) {
  const int64_t n = static_cast<int64_t>(output_size.size());
  opaque_dtype(self.scalar_type(), "aten::max_unpool2d");
  const auto sizes = with_planes(self, output_size);
  out.resize_(sizes, format);
  if (out.numel() == 0) {
    return;
  }
  const Tensor planes = at::zeros(sizes, self.options());
  flat_planes(planes, n).scatter_(self.dim() - n, flat_planes(indices, n), flat_planes(self, n));
  out.copy_(planes);
}

Tensor& max_unpool2d_out(const Tensor& self, const Tensor& indices, IntArrayRef output_size, Tensor& out) {
  TORCH_CHECK(output_size.size() == 2, "There should be exactly two elements (height, width) in output_size, but got ",
              output_size.size(), " elements.");
  check_unpool(self, indices, output_size, "max_unpooling2d", "max_unpooling2d_forward_out_cpu()");
  check_not_negative(output_size, "max_unpooling2d");
  unpool(self, indices, output_size, out,
         self.dim() == 4 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous);
  return out;
}
Tensor max_unpool2d(const Tensor& self, const Tensor& indices, IntArrayRef output_size) {
  Tensor out = make_empty({0}, {}, self.options());
  return max_unpool2d_out(self, indices, output_size, out);
}

Tensor& max_unpool3d_out(const Tensor& self, const Tensor& indices, IntArrayRef output_size, IntArrayRef stride,
                         IntArrayRef padding, Tensor& out) {
  TORCH_CHECK(output_size.size() == 3,
              "There should be exactly three elements (depth, height, width) in output_size, but got ",
              output_size.size(), " elements.");
  TORCH_CHECK(stride.size() == 3,
              "There should be exactly three elements (depth, height, width) in stride, but got: ", stride.size(),
              " elements.");
  TORCH_CHECK(padding.size() == 3,
              "There should be exactly three elements (depth, height, width) in padding, but got: ", padding.size(),
              " elements.");
  check_unpool(self, indices, output_size, "max_unpooling3d", "max_unpooling3d_forward_out_cpu()");
  TORCH_CHECK(stride[0] > 0 && stride[1] > 0 && stride[2] > 0,
              "strides should be greater than zero, but got stride: ", stride);
  check_not_negative(output_size, "max_unpooling3d");
  unpool(self, indices, output_size, out, at::MemoryFormat::Contiguous);
  return out;
}
Tensor max_unpool3d(const Tensor& self, const Tensor& indices, IntArrayRef output_size, IntArrayRef stride,
                    IntArrayRef padding) {
  Tensor out = make_empty({0}, {}, self.options());
  return max_unpool3d_out(self, indices, output_size, stride, padding, out);
}

// ---- fractional pooling

// REDUCE over [batch, channel, output..., window...]. Dimension d of the output starts its windows at
// int((o + sample) * alpha) - int(sample * alpha), the last one at the end of the input. As in PyTorch every step of
// that has the type of the samples: in BF16 the rounding moves windows.
std::string fractional_text(int64_t n, npu_dtype type) {
  std::string operands = "out, places, x", params, lines, address, place;
  for (int64_t d = 0; d < n; ++d) {
    const auto with_numbers = [&](std::string text) {
      text = replace_all(replace_all(text, "{d}", std::to_string(d)), "{out}", std::to_string(2 + d));
      return replace_all(text, "{window}", std::to_string(2 + n + d));
    };
    operands += with_numbers(", sample{d}");
    params += (d ? ", " : "") + with_numbers("free{d}: i64, last{d}: i64, alpha{d}, step{d}: i64, plane{d}: i64");
    lines += with_numbers(R"(
  %moved = via(via(via(index({out}), {type}) + sample{d}, {type}) * alpha{d}, {type})
  %start = i64(%moved) - i64(via(sample{d} * alpha{d}, {type}))
  %at{d} = where(index({out}) == last{d}, free{d}, %start) + index({window})
)");
    address += (d ? " + " : "") + with_numbers("%at{d} * step{d}");
    place += (d ? " + " : "") + with_numbers("%at{d} * plane{d}");
  }
  return "formula fractional_max_pool(" + operands + "; " + params + ")\neach:\n" +
         replace_all(lines, "{type}", npu::dtype_name(type)) + "  %place = " + place + "\n  %x = load_at(x, " +
         address + ")\n" + largest_lines("%place", compute_dtype(type), "") + "  out = %value\n  places = %place\n";
}

ProgramFamily f_fractional;

// What the output's windows lie apart, rounded as PyTorch does.
double apart(int64_t free, int64_t count, at::ScalarType type) {
  if (count < 2) return 0;
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "fractional_max_pool", [&] {
    return static_cast<double>(static_cast<scalar_t>(free) / static_cast<scalar_t>(count - 1));
  });
}

void fractional_pool(const char* label, const Tensor& out, const Tensor& indices, const Tensor& self,
                     IntArrayRef window, const Tensor& samples) {
  const int64_t n = static_cast<int64_t>(window.size());
  const npu_dtype type = numeric_dtype(self.scalar_type(), label);
  if (out.numel() == 0) {
    return;
  }
  const bool batched = self.dim() == n + 2;
  const auto with_batch = [&](const Tensor& tensor) { return batched ? tensor : tensor.unsqueeze(0); };
  const Tensor x = with_batch(self), result = with_batch(out), places = with_batch(indices);
  at::DimVector sizes(result.sizes()), out_strides(result.strides()), place_strides(places.strides());
  at::DimVector x_strides{x.stride(0), x.stride(1)}, sample_strides{samples.stride(0), samples.stride(1)};
  sizes.append(window.begin(), window.end());
  const size_t rank = sizes.size();
  out_strides.resize(rank, 0);
  place_strides.resize(rank, 0);
  x_strides.resize(rank, 0);
  sample_strides.resize(rank, 0);
  Nest nest(NPU_REDUCE, label, sizes, static_cast<int>(n));
  nest.with(result, out_strides).with(places, place_strides).with(x, x_strides);
  int64_t plane = 1;
  at::DimVector planes(n, 1);
  for (int64_t d = n - 1; d >= 0; --d) {
    planes[d] = plane;
    plane *= x.size(2 + d);
  }
  for (int64_t d = 0; d < n; ++d) {
    // In two dimensions the first sample is the width's.
    nest.with(samples, sample_strides, (n == 2 ? 1 - d : d) * samples.stride(2));
  }
  for (int64_t d = 0; d < n; ++d) {
    const int64_t free = x.size(2 + d) - window[d], count = result.size(2 + d);
    nest.integer(free).integer(count - 1);
    nest.number(apart(free, count, self.scalar_type()));
    nest.integer(x.stride(2 + d)).integer(planes[d]);
  }
  nest.run(f_fractional.get(n * 16 + type, compute_dtype(type), [&] { return fractional_text(n, type); }));
}

void launch_fractional2d(const Tensor& out, const Tensor& indices, const Tensor& self, IntArrayRef window, IntArrayRef,
                         const Tensor& samples) {
  at::native::fractional_max_pool_check_shape<2>(self, samples);
  fractional_pool("aten::fractional_max_pool2d", out, indices, self, window, samples);
}
void launch_fractional3d(const Tensor& out, const Tensor& indices, const Tensor& self, IntArrayRef window, IntArrayRef,
                         const Tensor& samples) {
  at::native::fractional_max_pool_check_shape<3>(self, samples);
  fractional_pool("aten::fractional_max_pool3d", out, indices, self, window, samples);
}

void fractional_backward(const Tensor& out, const Tensor& grad, const Tensor& indices, int64_t n) {
  const Tensor planes = at::zeros(out.sizes(), out.options());
  if (grad.numel() > 0) {
    flat_planes(planes, n).scatter_add_(out.dim() - n, flat_planes(indices, n), flat_planes(grad, n));
  }
  out.copy_(planes);
}

void launch_fractional2d_backward(at::meta::structured_fractional_max_pool2d_backward&, const Tensor& out,
                                  const Tensor& grad, const Tensor&, IntArrayRef, IntArrayRef, const Tensor& indices) {
  numeric_dtype(grad.scalar_type(), "aten::fractional_max_pool2d_backward");
  fractional_backward(out, grad, indices, 2);
}

Tensor& fractional_max_pool3d_backward_out(const Tensor& grad, const Tensor& self, IntArrayRef, IntArrayRef output_size,
                                           const Tensor& indices, Tensor& out) {
  numeric_dtype(grad.scalar_type(), "aten::fractional_max_pool3d_backward");
  const auto expected = with_planes(self, output_size);
  TORCH_CHECK(grad.sizes().equals(expected), "fractional_max_pool3d_backward_out(): gradOutput unexpected, expected ",
              IntArrayRef(expected), ", got ", grad.sizes());
  at::native::resize_output(out, self.sizes());
  fractional_backward(out, grad, indices, 3);
  return out;
}
Tensor fractional_max_pool3d_backward(const Tensor& grad, const Tensor& self, IntArrayRef window,
                                      IntArrayRef output_size, const Tensor& indices) {
  Tensor out = make_empty({0}, {}, self.options());
  return fractional_max_pool3d_backward_out(grad, self, window, output_size, indices, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  namespace ops = at::_ops;
  register_native<ops::max_unpool2d, max_unpool2d>(m);
  register_native<ops::max_unpool2d_out, max_unpool2d_out>(m);
  register_native<ops::max_unpool3d, max_unpool3d>(m);
  register_native<ops::max_unpool3d_out, max_unpool3d_out>(m);
  structured_pair<at::meta::structured_fractional_max_pool2d, launch_fractional2d>(m)
      .functional<ops::fractional_max_pool2d>()
      .out<ops::fractional_max_pool2d_output>();
  structured_pair<at::meta::structured_fractional_max_pool3d, launch_fractional3d>(m)
      .functional<ops::fractional_max_pool3d>()
      .out<ops::fractional_max_pool3d_output>();
  structured<at::meta::structured_fractional_max_pool2d_backward, launch_fractional2d_backward>(m)
      .functional<ops::fractional_max_pool2d_backward>()
      .out<ops::fractional_max_pool2d_backward_grad_input>();
  register_native<ops::fractional_max_pool3d_backward, fractional_max_pool3d_backward>(m);
  register_native<ops::fractional_max_pool3d_backward_grad_input, fractional_max_pool3d_backward_out>(m);
}

}  // namespace
}  // namespace torch_npu::unpool_cpp
