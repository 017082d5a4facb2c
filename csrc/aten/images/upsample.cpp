// Interpolation in one to three dimensions. A point of the output reads 1, 2 or 4 positions per dimension with weights;
// the gradient adds to the same positions. Scales are PyTorch's (ATen/native/UpSample.h), computed on the host.
#include <ATen/native/UpSample.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_backward_ops.h>
#include <ATen/ops/_upsample_nearest_exact1d_meta.h>
#include <ATen/ops/_upsample_nearest_exact1d_ops.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_backward_ops.h>
#include <ATen/ops/_upsample_nearest_exact2d_meta.h>
#include <ATen/ops/_upsample_nearest_exact2d_ops.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_backward_ops.h>
#include <ATen/ops/_upsample_nearest_exact3d_meta.h>
#include <ATen/ops/_upsample_nearest_exact3d_ops.h>
#include <ATen/ops/upsample_bicubic2d_backward_meta.h>
#include <ATen/ops/upsample_bicubic2d_backward_ops.h>
#include <ATen/ops/upsample_bicubic2d_meta.h>
#include <ATen/ops/upsample_bicubic2d_ops.h>
#include <ATen/ops/upsample_bilinear2d_backward_meta.h>
#include <ATen/ops/upsample_bilinear2d_backward_ops.h>
#include <ATen/ops/upsample_bilinear2d_meta.h>
#include <ATen/ops/upsample_bilinear2d_ops.h>
#include <ATen/ops/upsample_linear1d_backward_meta.h>
#include <ATen/ops/upsample_linear1d_backward_ops.h>
#include <ATen/ops/upsample_linear1d_meta.h>
#include <ATen/ops/upsample_linear1d_ops.h>
#include <ATen/ops/upsample_nearest1d_backward_meta.h>
#include <ATen/ops/upsample_nearest1d_backward_ops.h>
#include <ATen/ops/upsample_nearest1d_meta.h>
#include <ATen/ops/upsample_nearest1d_ops.h>
#include <ATen/ops/upsample_nearest2d_backward_meta.h>
#include <ATen/ops/upsample_nearest2d_backward_ops.h>
#include <ATen/ops/upsample_nearest2d_meta.h>
#include <ATen/ops/upsample_nearest2d_ops.h>
#include <ATen/ops/upsample_nearest3d_backward_meta.h>
#include <ATen/ops/upsample_nearest3d_backward_ops.h>
#include <ATen/ops/upsample_nearest3d_meta.h>
#include <ATen/ops/upsample_nearest3d_ops.h>
#include <ATen/ops/upsample_trilinear3d_backward_meta.h>
#include <ATen/ops/upsample_trilinear3d_backward_ops.h>
#include <ATen/ops/upsample_trilinear3d_meta.h>
#include <ATen/ops/upsample_trilinear3d_ops.h>
#include <ATen/ops/zeros.h>

#include "csrc/aten/dispatch/structured.h"
#include "csrc/aten/images/upsample.h"

namespace torch_npu::upsample_cpp {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Scale = std::optional<double>;

// `small` and `large` are the sides of the interpolation, whatever their sizes: input and output of the forward op.
at::SmallVector<double, 3> scales_of(Interpolation kind, const Tensor& input, const Tensor& output, bool align,
                                     std::initializer_list<Scale> given) {
  at::SmallVector<double, 3> out;
  const int64_t n = static_cast<int64_t>(given.size());
  int64_t d = input.dim() - n;
  for (const Scale& scale : given) {
    const int64_t in = input.size(d), to = output.size(d);
    if (kind == Interpolation::kNearest || kind == Interpolation::kNearestExact) {
      out.push_back(at::native::compute_scales_value<float>(scale, in, to));
    } else if (input.scalar_type() == at::kDouble) {
      out.push_back(at::native::area_pixel_compute_scale<double>(in, to, align, scale));
    } else {
      out.push_back(at::native::area_pixel_compute_scale<float>(in, to, align, scale));
    }
    ++d;
  }
  return out;
}

void forward(const char* label, Interpolation kind, const Tensor& out, const Tensor& self, bool align,
             std::initializer_list<Scale> given) {
  if (kind != Interpolation::kNearest && kind != Interpolation::kNearestExact && !self.is_floating_point()) {
    throw Unsupported(label);  // 8-bit images have an integer algorithm of their own
  }
  interpolate(label, kind, align, self, out, scales_of(kind, self, out, align, given));
}

// The sums of 16-bit gradients are kept in single precision until the end.
void backward(const char* label, Interpolation kind, const Tensor& out, const Tensor& grad, bool align,
              std::initializer_list<Scale> given) {
  numeric_dtype(out.scalar_type(), label);
  const bool narrow = at::isReducedFloatingType(out.scalar_type());
  const Tensor sum = narrow ? at::zeros(out.sizes(), out.options().dtype(at::kFloat)) : out.zero_();
  interpolate_backward(label, kind, align, grad, sum, scales_of(kind, out, grad, align, given));
  if (narrow) out.copy_(sum);
}

// Argument lists differ by the number of scales and by align_corners.
#define NPU_UPSAMPLE_ALIGNED(name, kind, PARAMS, ...)                                                              \
  void launch_##name(at::meta::structured_##name&, const Tensor& out, const Tensor& self, IntArrayRef, bool align, \
                     NPU_STRIP PARAMS) {                                                                           \
    forward("aten::" #name, kind, out, self, align, {__VA_ARGS__});                                                \
  }                                                                                                                \
  void launch_##name##_backward(at::meta::structured_##name##_backward&, const Tensor& out, const Tensor& grad,    \
                                IntArrayRef, IntArrayRef, bool align, NPU_STRIP PARAMS) {                          \
    backward("aten::" #name "_backward", kind, out, grad, align, {__VA_ARGS__});                                   \
  }
#define NPU_UPSAMPLE_NEAREST(name, kind, PARAMS, ...)                                                           \
  void launch_##name(at::meta::structured_##name&, const Tensor& out, const Tensor& self, IntArrayRef,          \
                     NPU_STRIP PARAMS) {                                                                        \
    forward("aten::" #name, kind, out, self, false, {__VA_ARGS__});                                             \
  }                                                                                                             \
  void launch_##name##_backward(at::meta::structured_##name##_backward&, const Tensor& out, const Tensor& grad, \
                                IntArrayRef, IntArrayRef, NPU_STRIP PARAMS) {                                   \
    backward("aten::" #name "_backward", kind, out, grad, false, {__VA_ARGS__});                                \
  }
#define NPU_STRIP(...) __VA_ARGS__

NPU_UPSAMPLE_NEAREST(upsample_nearest1d, Interpolation::kNearest, (Scale a), a)
NPU_UPSAMPLE_NEAREST(upsample_nearest2d, Interpolation::kNearest, (Scale a, Scale b), a, b)
NPU_UPSAMPLE_NEAREST(upsample_nearest3d, Interpolation::kNearest, (Scale a, Scale b, Scale c), a, b, c)
NPU_UPSAMPLE_NEAREST(_upsample_nearest_exact1d, Interpolation::kNearestExact, (Scale a), a)
NPU_UPSAMPLE_NEAREST(_upsample_nearest_exact2d, Interpolation::kNearestExact, (Scale a, Scale b), a, b)
NPU_UPSAMPLE_NEAREST(_upsample_nearest_exact3d, Interpolation::kNearestExact, (Scale a, Scale b, Scale c), a, b, c)
NPU_UPSAMPLE_ALIGNED(upsample_linear1d, Interpolation::kLinear, (Scale a), a)
NPU_UPSAMPLE_ALIGNED(upsample_bilinear2d, Interpolation::kLinear, (Scale a, Scale b), a, b)
NPU_UPSAMPLE_ALIGNED(upsample_trilinear3d, Interpolation::kLinear, (Scale a, Scale b, Scale c), a, b, c)
NPU_UPSAMPLE_ALIGNED(upsample_bicubic2d, Interpolation::kCubic, (Scale a, Scale b), a, b)

#define NPU_UPSAMPLE_REGISTER(name)                                                                                   \
  structured<at::meta::structured_##name, launch_##name>(m).functional<at::_ops::name>().out<at::_ops::name##_out>(); \
  structured<at::meta::structured_##name##_backward, launch_##name##_backward>(m)                                     \
      .functional<at::_ops::name##_backward>()                                                                        \
      .out<at::_ops::name##_backward_grad_input>()

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  NPU_UPSAMPLE_REGISTER(upsample_nearest1d);
  NPU_UPSAMPLE_REGISTER(upsample_nearest2d);
  NPU_UPSAMPLE_REGISTER(upsample_nearest3d);
  NPU_UPSAMPLE_REGISTER(_upsample_nearest_exact1d);
  NPU_UPSAMPLE_REGISTER(_upsample_nearest_exact2d);
  NPU_UPSAMPLE_REGISTER(_upsample_nearest_exact3d);
  NPU_UPSAMPLE_REGISTER(upsample_linear1d);
  NPU_UPSAMPLE_REGISTER(upsample_bilinear2d);
  NPU_UPSAMPLE_REGISTER(upsample_trilinear3d);
  NPU_UPSAMPLE_REGISTER(upsample_bicubic2d);
}

}  // namespace
}  // namespace torch_npu::upsample_cpp
