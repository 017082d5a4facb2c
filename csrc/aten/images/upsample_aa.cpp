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

// %w from %x, the distance in units of the filter.
const char* filter_lines(Filter filter) {
  switch (filter) {
    case kLinear:
      return R"(
  %a{s} = abs %x{s}
  %b{s} = sub %one{s}, %a{s}
  %w{s} = max %b{s}, %zero{s}
)";
    case kCubic:  // Keys' convolution with A = -0.5
      return R"(
  %a{s} = abs %x{s}
  %c15{s} = const 1.5 : $t
  %c25{s} = const -2.5 : $t
  %p1{s} = fma %a{s}, %c15{s}, %c25{s}
  %p2{s} = mul %p1{s}, %a{s}
  %p3{s} = fma %p2{s}, %a{s}, %one{s}
  %m05{s} = const -0.5 : $t
  %p25{s} = const 2.5 : $t
  %m4{s} = const -4 : $t
  %two{s} = const 2 : $t
  %q1{s} = fma %a{s}, %m05{s}, %p25{s}
  %q2{s} = fma %q1{s}, %a{s}, %m4{s}
  %q3{s} = fma %q2{s}, %a{s}, %two{s}
  %near{s} = lt %a{s}, %one{s}
  %far{s} = lt %a{s}, %two{s}
  %r{s} = where %far{s}, %q3{s}, %zero{s}
  %w{s} = where %near{s}, %p3{s}, %r{s}
)";
    default:  // sinc(x) * sinc(x / 3)
      return R"(
  %pi{s} = const 3.141592653589793 : $t
  %third{s} = const 0.3333333333333333 : $t
  %three{s} = const 3 : $t
  %px{s} = mul %x{s}, %pi{s}
  %py{s} = mul %px{s}, %third{s}
  %sx{s} = sin %px{s}
  %sy{s} = sin %py{s}
  %n{s} = mul %sx{s}, %sy{s}
  %d{s} = mul %px{s}, %py{s}
  %q{s} = div %n{s}, %d{s}
  %mid{s} = eq %x{s}, %zero{s}
  %v{s} = where %mid{s}, %one{s}, %q{s}
  %a{s} = abs %x{s}
  %in{s} = lt %a{s}, %three{s}
  %w{s} = where %in{s}, %v{s}, %zero{s}
)";
  }
}

ProgramFamily f_weights;

// weights[o, i]: positions from center - support to center + support, rounded as PyTorch does; each row adds up to one.
std::string weights_text(Filter filter) {
  const auto weight = [&](const char* suffix) {
    return replace_all(std::string(R"(
  %o{s} = index 0
  %i{s} = index 1
  %zero{s} = const 0 : $t
  %one{s} = const 1 : $t
  %half{s} = const 0.5 : $t
  %scale{s} = param scale : $t
  %support{s} = param support : $t
  %inverse{s} = param inverse : $t
  %of{s} = cast %o{s} : $t
  %if{s} = cast %i{s} : $t
  %oh{s} = add %of{s}, %half{s}
  %center{s} = mul %scale{s}, %oh{s}
  %lf{s} = sub %center{s}, %support{s}
  %lh{s} = add %lf{s}, %half{s}
  %low{s} = cast %lh{s} : i64
  %hf{s} = add %center{s}, %support{s}
  %hh{s} = add %hf{s}, %half{s}
  %high{s} = cast %hh{s} : i64
  %ge{s} = ge %i{s}, %low{s}
  %lt{s} = lt %i{s}, %high{s}
  %use{s} = and %ge{s}, %lt{s}
  %ic{s} = sub %if{s}, %center{s}
  %ih{s} = add %ic{s}, %half{s}
  %x{s} = mul %ih{s}, %inverse{s}
)") + filter_lines(filter) +
                           "  %u{s} = where %use{s}, %w{s}, %zero{s}\n",
                       "{s}", suffix);
  };
  return "program antialias(weights; scale, support, inverse)\neach:\n" + weight("A") +
         "  %sum = fold sum %uA\neach:\n" + weight("B") + R"(
  %none = eq %sum, %zeroB
  %by = where %none, %oneB, %sum
  %r = div %uB, %by
  store weights, %r
)";
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
