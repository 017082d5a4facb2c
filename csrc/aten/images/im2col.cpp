// Sliding windows as columns and back, and the gradient of unfold. Windows are affine: im2col is a MAP that reads where
// the window lies inside the image; the way back is a SCATTER that adds.
#include <ATen/native/UnfoldBackward.h>
#include <ATen/native/im2col_shape_check.h>
#include <ATen/ops/col2im_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/im2col_ops.h>
#include <ATen/ops/unfold_backward_native.h>
#include <ATen/ops/unfold_backward_ops.h>
#include <ATen/ops/zeros.h>

#include "csrc/aten/dispatch/complex.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::im2col_cpp {
namespace {

using at::IntArrayRef;
using at::Tensor;

// Index space: batch, channel, kernel row, kernel column, output row, output column.
const char* const kInside = R"(
each:
  %y = fma(index(2), dilation_h, index(4) * stride_h) - pad_h
  %x = fma(index(3), dilation_w, index(5) * stride_w) - pad_w
  %m = %y >= 0 and %y < height and (%x >= 0 and %x < width)
)";

ProgramFamily f_im2col, f_col2im;

struct Windows {
  IntArrayRef kernel, dilation, padding, stride;
  int64_t height, width;
  int64_t rows() const { return count(height, 0); }
  int64_t columns() const { return count(width, 1); }
  int64_t count(int64_t size, int d) const {
    return (size + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1) / stride[d] + 1;
  }
};

void run(Nest& nest, const Windows& w, int64_t first, DeviceProgram& program) {
  nest.integers({w.stride[0], w.stride[1], w.dilation[0], w.dilation[1], w.padding[0], w.padding[1], w.height, w.width,
                 first})
      .run(program);
}

const char* const kParameters =
    "stride_h: i64, stride_w: i64, dilation_h: i64, dilation_w: i64, pad_h: i64, pad_w: i64, height: i64, width: i64, "
    "first: i64)";

// Where the first window begins, in elements behind the image's first: in the padding, before it.
int64_t first_window(const Windows& w, const Tensor& image) {
  return -image.stride(2) * w.padding[0] - image.stride(3) * w.padding[1];
}

// image [N, C, H, W] from element `first` on and columns [N, C * kh * kw, L], both with their own strides.
void operands(Nest& nest, const Windows& w, const Tensor& image, int64_t first, const Tensor& columns) {
  const auto s = image.strides();
  nest.with(image, {s[0], s[1], s[2] * w.dilation[0], s[3] * w.dilation[1], s[2] * w.stride[0], s[3] * w.stride[1]},
            first);
  const auto c = columns.strides();
  const int64_t kw = w.kernel[1], kh = w.kernel[0];
  nest.with(columns, {c[0], c[1] * kh * kw, c[1] * kw, c[1], c[2] * w.columns(), c[2]});
}

at::DimVector space(const Windows& w, int64_t batch, int64_t channels) {
  return {batch, channels, w.kernel[0], w.kernel[1], w.rows(), w.columns()};
}

Tensor batched(const Tensor& tensor, int64_t dims) {
  return tensor.dim() == dims ? tensor : tensor.unsqueeze(0);
}

void check_pairs(IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding, IntArrayRef stride) {
  TORCH_CHECK(kernel.size() == 2, "It is expected kernel_size equals to 2, but got size ", kernel.size());
  TORCH_CHECK(dilation.size() == 2, "It is expected dilation equals to 2, but got size ", dilation.size());
  TORCH_CHECK(padding.size() == 2, "It is expected padding equals to 2, but got size ", padding.size());
  TORCH_CHECK(stride.size() == 2, "It is expected stride equals to 2, but got size ", stride.size());
}

Tensor& im2col_out(const Tensor& self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
                   IntArrayRef stride, Tensor& out) {
  constexpr const char* label = "aten::im2col";
  check_pairs(kernel, dilation, padding, stride);
  at::native::im2col_shape_check(self, Tensor(), kernel[0], kernel[1], dilation[0], dilation[1], padding[0], padding[1],
                                 stride[0], stride[1]);
  const Tensor image = batched(self, 4);
  const Windows w{kernel, dilation, padding, stride, image.size(2), image.size(3)};
  const int64_t depth = image.size(1) * kernel[0] * kernel[1], length = w.rows() * w.columns();
  at::native::resize_output(
      out, self.dim() == 4 ? at::DimVector{image.size(0), depth, length} : at::DimVector{depth, length});
  if (too_wide(self)) {
    Tensor re = real_part(out), im = imag_part(out);
    im2col_out(real_part(self), kernel, dilation, padding, stride, re);
    im2col_out(imag_part(self), kernel, dilation, padding, stride, im);
    return out;
  }
  const npu_dtype compute = compute_dtype(opaque_dtype(self.scalar_type(), label));
  const Tensor columns = batched(out, 3);
  Nest nest(NPU_MAP, label, space(w, image.size(0), image.size(1)));
  operands(nest, w, image, first_window(w, image), columns);
  run(nest, w, 0, f_im2col.get(0, compute, [&] {
    return std::string("formula im2col(image, columns; ") + kParameters + kInside +
           "  columns = load(image, mask %m)\n";
  }));
  return out;
}

Tensor im2col(const Tensor& self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding, IntArrayRef stride) {
  Tensor out = at::empty({0}, self.options());
  return im2col_out(self, kernel, dilation, padding, stride, out);
}

Tensor& col2im_out(const Tensor& self, IntArrayRef output_size, IntArrayRef kernel, IntArrayRef dilation,
                   IntArrayRef padding, IntArrayRef stride, Tensor& out) {
  constexpr const char* label = "aten::col2im";
  TORCH_CHECK(output_size.size() == 2, "It is expected output_size equals to 2, but got size ", output_size.size());
  check_pairs(kernel, dilation, padding, stride);
  at::native::col2im_shape_check(self, Tensor(), output_size[0], output_size[1], kernel[0], kernel[1], dilation[0],
                                 dilation[1], padding[0], padding[1], stride[0], stride[1]);
  const Tensor columns = batched(self, 3);
  const Windows w{kernel, dilation, padding, stride, output_size[0], output_size[1]};
  const int64_t batch = columns.size(0), channels = columns.size(1) / (kernel[0] * kernel[1]);
  at::native::resize_output(out, self.dim() == 3 ? at::DimVector{batch, channels, w.height, w.width}
                                                 : at::DimVector{channels, w.height, w.width});
  if (self.is_complex()) {
    Tensor re = real_part(out), im = imag_part(out);
    col2im_out(real_part(self), output_size, kernel, dilation, padding, stride, re);
    col2im_out(imag_part(self), output_size, kernel, dilation, padding, stride, im);
    return out;
  }
  const npu_dtype type = numeric_dtype(self.scalar_type(), label);
  const bool narrow = at::isReducedFloatingType(out.scalar_type());
  const Tensor sum = narrow ? at::zeros(out.sizes(), out.options().dtype(at::kFloat)) : out.zero_();
  Nest nest(NPU_SCATTER, label, space(w, batch, channels));
  // A scatter's computed offsets count from an address that exists: that of the image.
  const Tensor image = batched(sum, 4);
  operands(nest, w, image, 0, columns);
  run(nest, w, first_window(w, image), f_col2im.get(0, compute_dtype(type), [&] {
    return std::string("formula col2im(image, columns; ") + kParameters + kInside +
           "  store_at(image, columns, first, " + (compute_dtype(type) == NPU_BOOL ? "max" : "add") + ", mask %m)\n";
  }));
  if (narrow) out.copy_(sum);
  return out;
}

Tensor col2im(const Tensor& self, IntArrayRef output_size, IntArrayRef kernel, IntArrayRef dilation,
              IntArrayRef padding, IntArrayRef stride) {
  Tensor out = at::empty({0}, self.options());
  return col2im_out(self, output_size, kernel, dilation, padding, stride, out);
}

TypedProgram k_add_into(R"(
formula add_into_view(view, grad)
each:
  store_at(view, grad, 0, add)
)");

// The view of the gradient that unfold made; elements that windows share are met several times.
void launch_unfold_backward(Tensor& out, const Tensor& grad, int64_t dim, int64_t size, int64_t step) {
  constexpr const char* label = "aten::unfold_backward";
  if (grad.is_complex()) {
    Tensor re = real_part(out), im = imag_part(out);
    launch_unfold_backward(re, real_part(grad), dim, size, step);
    return launch_unfold_backward(im, imag_part(grad), dim, size, step);
  }
  const npu_dtype compute = compute_dtype(numeric_dtype(grad.scalar_type(), label));
  if (compute == NPU_BOOL) throw Unsupported(label);
  const Tensor view = out.unfold(dim, size, step);
  if (view.numel() == 0) return;
  Nest(NPU_SCATTER, label, view.sizes()).with(view).with(grad).run(k_add_into.of(compute));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::im2col, im2col>(m);
  register_native<at::_ops::im2col_out, im2col_out>(m);
  register_native<at::_ops::col2im, col2im>(m);
  register_native<at::_ops::col2im_out, col2im_out>(m);
  register_native<at::_ops::unfold_backward, at::native::unfold_backward>(m);
}

}  // namespace
}  // namespace torch_npu::im2col_cpp

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(unfold_backward_stub, &torch_npu::im2col_cpp::launch_unfold_backward)
}  // namespace at::native
