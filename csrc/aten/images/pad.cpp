// Reflection and replication padding in one to three dimensions: a MAP that reads at the reflected or clamped position;
// backward a SCATTER that adds there. Constant padding is PyTorch's composite: a fill and a copy.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/reflection_pad1d_backward_meta.h>
#include <ATen/ops/reflection_pad1d_backward_ops.h>
#include <ATen/ops/reflection_pad1d_meta.h>
#include <ATen/ops/reflection_pad1d_ops.h>
#include <ATen/ops/reflection_pad2d_backward_ops.h>
#include <ATen/ops/reflection_pad2d_ops.h>
#include <ATen/ops/reflection_pad3d_backward_meta.h>
#include <ATen/ops/reflection_pad3d_backward_ops.h>
#include <ATen/ops/reflection_pad3d_meta.h>
#include <ATen/ops/reflection_pad3d_ops.h>
#include <ATen/ops/replication_pad1d_backward_meta.h>
#include <ATen/ops/replication_pad1d_backward_ops.h>
#include <ATen/ops/replication_pad1d_meta.h>
#include <ATen/ops/replication_pad1d_ops.h>
#include <ATen/ops/replication_pad2d_backward_ops.h>
#include <ATen/ops/replication_pad2d_meta.h>
#include <ATen/ops/replication_pad2d_ops.h>
#include <ATen/ops/replication_pad3d_backward_ops.h>
#include <ATen/ops/replication_pad3d_meta.h>
#include <ATen/ops/replication_pad3d_ops.h>
#include <ATen/ops/zeros.h>

#include "csrc/aten/dispatch/complex.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::pad_cpp {
namespace {

using at::IntArrayRef;
using at::Tensor;

const char* const kReflect = "(last{d} - abs(abs(index({k}) - before{d}) - last{d}))";
const char* const kReplicate = "min(max(index({k}) - before{d}, 0), last{d})";

// The offset in the tensor without padding.
std::string offset(bool reflect, int64_t n, int64_t lead) {
  std::string sum;
  for (int64_t d = 0; d < n; ++d) {
    const std::string text = std::string(d ? " + " : "") + (reflect ? kReflect : kReplicate) + " * step{d}";
    sum += replace_all(replace_all(text, "{k}", std::to_string(lead + d)), "{d}", std::to_string(d));
  }
  return sum;
}

std::string header(const char* name, const char* operands, int64_t n) {
  return std::string("formula ") + name + "(" + operands + "; " +
         per_dimension(n, "before{d}: i64, last{d}: i64, step{d}: i64", ", ") + ")\neach:\n";
}

ProgramFamily f_pad, f_pad_backward;

// `wide` has the padded shape, `inner` the original one. Forward wide <- inner, backward inner += wide.
void launch(bool reflect, bool backward, int64_t n, const Tensor& wide, const Tensor& inner, IntArrayRef padding,
            const char* label) {
  if (wide.numel() == 0) {
    return;
  }
  if (wide.is_complex() && (backward || too_wide(wide))) {
    launch(reflect, backward, n, real_part(wide), real_part(inner), padding, label);
    return launch(reflect, backward, n, imag_part(wide), imag_part(inner), padding, label);
  }
  const int64_t lead = wide.dim() - n;
  const npu_dtype type = backward ? numeric_dtype(wide.scalar_type(), label) : opaque_dtype(wide.scalar_type(), label);
  at::DimVector plane(inner.strides());
  std::fill(plane.begin() + lead, plane.end(), 0);
  Nest nest(backward ? NPU_SCATTER : NPU_MAP, label, wide.sizes());
  nest.with(wide).with(inner, plane);
  for (int64_t d = 0; d < n; ++d) {
    // Padding lists the last dimension first.
    nest.integers({padding[2 * (n - 1 - d)], inner.size(lead + d) - 1, inner.stride(lead + d)});
  }
  const int64_t key = (lead * 4 + n) * 2 + reflect;
  if (backward) {
    nest.run(f_pad_backward.get(key, compute_dtype(type), [&] {
      return header("pad_backward", "wide, inner", n) + "  store_at(inner, wide, " + offset(reflect, n, lead) +
             ", add)\n";
    }));
  } else {
    nest.run(f_pad.get(key, compute_dtype(type), [&] {
      return header("pad", "wide, inner", n) + "  wide = load_at(inner, " + offset(reflect, n, lead) + ")\n";
    }));
  }
}

template <bool reflect, int64_t n>
constexpr const char* label_of(bool backward) {
  if (reflect) {
    return backward ? (n == 1   ? "aten::reflection_pad1d_backward"
                       : n == 2 ? "aten::reflection_pad2d_backward"
                                : "aten::reflection_pad3d_backward")
                    : (n == 1   ? "aten::reflection_pad1d"
                       : n == 2 ? "aten::reflection_pad2d"
                                : "aten::reflection_pad3d");
  }
  return backward ? (n == 1   ? "aten::replication_pad1d_backward"
                     : n == 2 ? "aten::replication_pad2d_backward"
                              : "aten::replication_pad3d_backward")
                  : (n == 1   ? "aten::replication_pad1d"
                     : n == 2 ? "aten::replication_pad2d"
                              : "aten::replication_pad3d");
}

template <bool reflect, int64_t n, class Meta>
void forward(Meta&, const Tensor& out, const Tensor& self, IntArrayRef padding) {
  launch(reflect, false, n, out, self, padding, label_of<reflect, n>(false));
}

// Sums of 16-bit gradients are kept in single precision until the end.
template <bool reflect, int64_t n>
void backward_into(const Tensor& out, const Tensor& grad, IntArrayRef padding) {
  const bool narrow = at::isReducedFloatingType(out.scalar_type());
  numeric_dtype(c10::toRealValueType(out.scalar_type()), label_of<reflect, n>(true));
  const Tensor sum = narrow ? at::zeros(out.sizes(), out.options().dtype(at::kFloat)) : out.zero_();
  launch(reflect, true, n, grad, sum, padding, label_of<reflect, n>(true));
  if (narrow) out.copy_(sum);
}

template <bool reflect, int64_t n, class Meta>
void backward(Meta&, const Tensor& out, const Tensor& grad, const Tensor&, IntArrayRef padding) {
  backward_into<reflect, n>(out, grad, padding);
}

void check_padded(const char* name, int64_t n, const Tensor& grad, const Tensor& self, IntArrayRef padding) {
  TORCH_CHECK(static_cast<int64_t>(padding.size()) == 2 * n, "padding size is expected to be ", 2 * n,
              ", but got: ", padding.size());
  for (int64_t d = 1; d <= n; ++d) {
    const int64_t expected = self.size(-d) + padding[2 * (d - 1)] + padding[2 * (d - 1) + 1];
    TORCH_CHECK(grad.size(-d) == expected, name, ": grad_output size unexpected. Expected: ", expected,
                ", Got: ", grad.size(-d));
  }
}

template <bool reflect, int64_t n>
Tensor& backward_out(const Tensor& grad, const Tensor& self, IntArrayRef padding, Tensor& out) {
  check_padded(label_of<reflect, n>(true), n, grad, self, padding);
  at::native::resize_output(out, self.sizes());
  backward_into<reflect, n>(out, grad, padding);
  return out;
}

template <bool reflect, int64_t n>
Tensor backward_new(const Tensor& grad, const Tensor& self, IntArrayRef padding) {
  Tensor out = at::empty_like(self, at::MemoryFormat::Contiguous);
  return backward_out<reflect, n>(grad, self, padding, out);
}

// The one forward op without a structured meta class.
Tensor& reflect2d_out(const Tensor& self, IntArrayRef padding, Tensor& out) {
  TORCH_CHECK(padding.size() == 4, "padding size is expected to be 4, but got: ", padding.size());
  TORCH_CHECK((self.dim() == 3 || self.dim() == 4) && self.size(-1) > 0 && self.size(-2) > 0 && self.size(-3) > 0,
              "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
              "input, but got: ",
              self.sizes());
  const int64_t h = self.size(-2), w = self.size(-1);
  TORCH_CHECK(padding[0] < w && padding[1] < w,
              "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding (",
              padding[0], ", ", padding[1], ") at dimension ", self.dim() - 1, " of input ", self.sizes());
  TORCH_CHECK(padding[2] < h && padding[3] < h,
              "Argument #6: Padding size should be less than the corresponding input dimension, but got: padding (",
              padding[2], ", ", padding[3], ") at dimension ", self.dim() - 2, " of input ", self.sizes());
  at::DimVector sizes(self.sizes());
  sizes[self.dim() - 2] += padding[2] + padding[3];
  sizes[self.dim() - 1] += padding[0] + padding[1];
  TORCH_CHECK(sizes[self.dim() - 1] >= 1 || sizes[self.dim() - 2] >= 1, "input (H: ", h, ", W: ", w,
              ") is too small. Calculated output H: ", sizes[self.dim() - 2], " W: ", sizes[self.dim() - 1]);
  if (at::native::resize_output(out, sizes) && self.dim() == 4) {
    out.unsafeGetTensorImpl()->empty_tensor_restride(self.suggest_memory_format());
  }
  launch(true, false, 2, out, self, padding, "aten::reflection_pad2d");
  return out;
}

Tensor reflect2d(const Tensor& self, IntArrayRef padding) {
  Tensor out = at::empty({0}, self.options());
  return reflect2d_out(self, padding, out);
}

#define NPU_PAD_FORWARD(name, reflect, n)                                                      \
  structured<at::meta::structured_##name, forward<reflect, n, at::meta::structured_##name>>(m) \
      .functional<at::_ops::name>()                                                            \
      .out<at::_ops::name##_out>()
#define NPU_PAD_BACKWARD(name, reflect, n)                                                      \
  structured<at::meta::structured_##name, backward<reflect, n, at::meta::structured_##name>>(m) \
      .functional<at::_ops::name>()                                                             \
      .out<at::_ops::name##_grad_input>()
#define NPU_PAD_BACKWARD_PLAIN(name, reflect, n)                \
  register_native<at::_ops::name, backward_new<reflect, n>>(m); \
  register_native<at::_ops::name##_grad_input, backward_out<reflect, n>>(m)

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  NPU_PAD_FORWARD(reflection_pad1d, true, 1);
  NPU_PAD_FORWARD(reflection_pad3d, true, 3);
  NPU_PAD_FORWARD(replication_pad1d, false, 1);
  NPU_PAD_FORWARD(replication_pad2d, false, 2);
  NPU_PAD_FORWARD(replication_pad3d, false, 3);
  register_native<at::_ops::reflection_pad2d, reflect2d>(m);
  register_native<at::_ops::reflection_pad2d_out, reflect2d_out>(m);
  NPU_PAD_BACKWARD(reflection_pad1d_backward, true, 1);
  NPU_PAD_BACKWARD(reflection_pad3d_backward, true, 3);
  NPU_PAD_BACKWARD(replication_pad1d_backward, false, 1);
  NPU_PAD_BACKWARD_PLAIN(reflection_pad2d_backward, true, 2);
  NPU_PAD_BACKWARD_PLAIN(replication_pad2d_backward, false, 2);
  NPU_PAD_BACKWARD_PLAIN(replication_pad3d_backward, false, 3);
}

}  // namespace
}  // namespace torch_npu::pad_cpp
