// Interpolation with antialiasing. It is linear and separable: one REDUCE makes the matrix of weights of each
// dimension, a matrix product applies it, and its transpose is the gradient.
#include <ATen/OpMathType.h>
#include <ATen/native/UpSample.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bicubic2d_aa_backward_ops.h>
#include <ATen/ops/_upsample_bicubic2d_aa_meta.h>
#include <ATen/ops/_upsample_bicubic2d_aa_ops.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_backward_ops.h>
#include <ATen/ops/_upsample_bilinear2d_aa_meta.h>
#include <ATen/ops/_upsample_bilinear2d_aa_ops.h>
#include <ATen/ops/matmul.h>

#if __has_include(<ATen/ops/_upsample_lanczos2d_aa_meta.h>)
#define NPU_LANCZOS
#include <ATen/ops/_upsample_lanczos2d_aa_backward_meta.h>
#include <ATen/ops/_upsample_lanczos2d_aa_backward_ops.h>
#include <ATen/ops/_upsample_lanczos2d_aa_meta.h>
#include <ATen/ops/_upsample_lanczos2d_aa_ops.h>
#endif

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::upsample_aa_cpp {
namespace {

using at::IntArrayRef;
using at::Tensor;
using Scale = std::optional<double>;

enum Filter { kLinear, kCubic, kLanczos };
constexpr double kWidth[] = {2, 4, 6};

// The weight from %x, the distance in units of the filter.
const char* filter(Filter kind) {
  switch (kind) {
    case kLinear:
      return "  %w = max(1 - abs(%x), 0)\n";
    case kCubic:  // Keys' convolution with A = -0.5
      return R"(
  %a = abs(%x)
  %near = fma(fma(%a, 1.5, -2.5) * %a, %a, 1)
  %far = fma(fma(fma(%a, -0.5, 2.5), %a, -4), %a, 2)
  %w = where(%a < 1, %near, where(%a < 2, %far, 0))
)";
    default:  // sinc(x) * sinc(x / 3)
      return R"(
  %px = %x * 3.141592653589793
  %py = %px * 0.3333333333333333
  %w = where(abs(%x) < 3, where(%x == 0, 1, sin(%px) * sin(%py) / (%px * %py)), 0)
)";
  }
}

ProgramFamily f_weights;

// weights[o, i]: positions from center - support to center + support, rounded as PyTorch does; each row adds up to one.
std::string weights_text(Filter kind) {
  const std::string weight = std::string(R"(
each:
  %center = scale * (number(index(0)) + 0.5)
  %low = i64(%center - support + 0.5)
  %high = i64(%center + support + 0.5)
  %use = index(1) >= %low and index(1) < %high
  %x = (number(index(1)) - %center + 0.5) * inverse
)") + filter(kind) + "  %u = where(%use, %w, 0)\n";
  return "formula antialias(weights; scale, support, inverse)" + weight + "  %sum = fold(sum, %u)" + weight +
         "  weights = %u / where(%sum == 0, 1, %sum)\n";
}

Tensor weights(Filter filter, int64_t in, int64_t out, bool align, const Scale& given, const at::TensorOptions& options,
               const char* label) {
  const double scale = options.dtype() == at::kDouble
                           ? at::native::area_pixel_compute_scale<double>(in, out, align, given)
                           : at::native::area_pixel_compute_scale<float>(in, out, align, given);
  const Tensor matrix = make_empty({out, in}, {}, options);
  Nest(NPU_REDUCE, label, {out, in}, 1)
      .with(matrix)
      .number(scale)
      .number(kWidth[filter] / 2 * std::max(scale, 1.0))
      .number(scale >= 1 ? 1 / scale : 1)
      .run(f_weights.get(filter, compute_dtype(storage_dtype(matrix.scalar_type())),
                         [&] { return weights_text(filter); }));
  return matrix;
}

at::TensorOptions wide(const Tensor& tensor, const char* label) {
  if (!at::isFloatingType(tensor.scalar_type())) {
    throw Unsupported(label);  // 8-bit images have an integer algorithm of their own
  }
  return tensor.options().dtype(at::toOpMathType(tensor.scalar_type()));
}

void forward(Filter filter, const char* label, const Tensor& out, const Tensor& self, bool align, const Scale& h,
             const Scale& w) {
  const auto options = wide(self, label);
  const Tensor rows = weights(filter, self.size(2), out.size(2), align, h, options, label);
  const Tensor columns = weights(filter, self.size(3), out.size(3), align, w, options, label);
  out.copy_(at::matmul(rows, at::matmul(self.to(options.dtype()), columns.t())));
}

void backward(Filter filter, const char* label, const Tensor& out, const Tensor& grad, bool align, const Scale& h,
              const Scale& w) {
  const auto options = wide(grad, label);
  const Tensor rows = weights(filter, out.size(2), grad.size(2), align, h, options, label);
  const Tensor columns = weights(filter, out.size(3), grad.size(3), align, w, options, label);
  out.copy_(at::matmul(rows.t(), at::matmul(grad.to(options.dtype()), columns)));
}

#define NPU_UPSAMPLE_AA(name, filter)                                                                              \
  void launch_##name(at::meta::structured_##name&, const Tensor& out, const Tensor& self, IntArrayRef, bool align, \
                     Scale h, Scale w) {                                                                           \
    forward(filter, "aten::" #name, out, self, align, h, w);                                                       \
  }                                                                                                                \
  void launch_##name##_backward(at::meta::structured_##name##_backward&, const Tensor& out, const Tensor& grad,    \
                                IntArrayRef, IntArrayRef, bool align, Scale h, Scale w) {                          \
    backward(filter, "aten::" #name "_backward", out, grad, align, h, w);                                          \
  }                                                                                                                \
  void register_##name(torch::Library& m) {                                                                        \
    structured<at::meta::structured_##name, launch_##name>(m)                                                      \
        .functional<at::_ops::name>()                                                                              \
        .out<at::_ops::name##_out>();                                                                              \
    structured<at::meta::structured_##name##_backward, launch_##name##_backward>(m)                                \
        .functional<at::_ops::name##_backward>()                                                                   \
        .out<at::_ops::name##_backward_grad_input>();                                                              \
  }

NPU_UPSAMPLE_AA(_upsample_bilinear2d_aa, kLinear)
NPU_UPSAMPLE_AA(_upsample_bicubic2d_aa, kCubic)
#ifdef NPU_LANCZOS
NPU_UPSAMPLE_AA(_upsample_lanczos2d_aa, kLanczos)
#endif

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register__upsample_bilinear2d_aa(m);
  register__upsample_bicubic2d_aa(m);
#ifdef NPU_LANCZOS
  register__upsample_lanczos2d_aa(m);
#endif
}

}  // namespace
}  // namespace torch_npu::upsample_aa_cpp
