// Pooling ops with a given window. Shapes and errors of the 2-d ops and of avg_pool3d are PyTorch's structured ones;
// max_pool3d has none, so its checks come from ATen/native/Pool.h.
#include "csrc/aten/images/pool.h"

#include <ATen/native/Pool.h>
#include <ATen/ops/avg_pool2d_backward_meta.h>
#include <ATen/ops/avg_pool2d_backward_ops.h>
#include <ATen/ops/avg_pool2d_meta.h>
#include <ATen/ops/avg_pool2d_ops.h>
#include <ATen/ops/avg_pool3d_backward_meta.h>
#include <ATen/ops/avg_pool3d_backward_ops.h>
#include <ATen/ops/avg_pool3d_meta.h>
#include <ATen/ops/avg_pool3d_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/max_pool2d_with_indices_backward_meta.h>
#include <ATen/ops/max_pool2d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool2d_with_indices_meta.h>
#include <ATen/ops/max_pool2d_with_indices_ops.h>
#include <ATen/ops/max_pool3d_with_indices_backward_ops.h>
#include <ATen/ops/max_pool3d_with_indices_ops.h>

#include "csrc/aten/dispatch/structured.h"
#include "csrc/aten/dispatch/structured_pair.h"

namespace torch_npu::pool_cpp {
namespace {

using at::IntArrayRef;
using at::Tensor;

// An argument of one number stands for all dimensions.
at::DimVector all(IntArrayRef values, int64_t n) {
  return values.size() == 1 ? at::DimVector(n, values[0]) : at::DimVector(values);
}

at::DimVector spatial(const Tensor& tensor, int64_t n) {
  return at::DimVector(tensor.sizes().end() - n, tensor.sizes().end());
}

Pool window(const char* label, int64_t n, const Tensor& input, const Tensor& output, IntArrayRef kernel,
            IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation) {
  return {label,
          false,
          spatial(input, n),
          spatial(output, n),
          all(kernel, n),
          all(stride.empty() ? kernel : stride, n),
          all(padding, n),
          all(dilation, n)};
}

void launch_max2d(const Tensor& out, const Tensor& indices, const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                  IntArrayRef padding, IntArrayRef dilation, bool) {
  max_pool(window("aten::max_pool2d_with_indices", 2, self, out, kernel, stride, padding, dilation), self, out,
           indices);
}

void launch_max2d_backward(at::meta::structured_max_pool2d_with_indices_backward&, const Tensor& out,
                           const Tensor& grad, const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                           IntArrayRef padding, IntArrayRef dilation, bool, const Tensor& indices) {
  max_pool_backward(window("aten::max_pool2d_with_indices_backward", 2, self, grad, kernel, stride, padding, dilation),
                    grad, indices, out);
}

Average average_kind(bool include_pad, std::optional<int64_t> divisor) {
  return divisor ? Average::kDivisor : include_pad ? Average::kIncludePad : Average::kExcludePad;
}

template <int64_t n, class Meta>
void launch_average(Meta&, const Tensor& out, const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                    IntArrayRef padding, bool, bool include_pad, std::optional<int64_t> divisor) {
  average_pool(window(n == 2 ? "aten::avg_pool2d" : "aten::avg_pool3d", n, self, out, kernel, stride, padding, 1),
               average_kind(include_pad, divisor), divisor.value_or(1), self, out);
}

template <int64_t n, class Meta>
void launch_average_backward(Meta&, const Tensor& out, const Tensor& grad, const Tensor& self, IntArrayRef kernel,
                             IntArrayRef stride, IntArrayRef padding, bool, bool include_pad,
                             std::optional<int64_t> divisor) {
  average_pool_backward(window(n == 2 ? "aten::avg_pool2d_backward" : "aten::avg_pool3d_backward", n, self, grad,
                               kernel, stride, padding, 1),
                        average_kind(include_pad, divisor), divisor.value_or(1), grad, out);
}

// Checks the arguments, then fills in the sizes of the output.
Pool window3d(const char* name, const char* label, const Tensor& input, IntArrayRef kernel, IntArrayRef stride,
              IntArrayRef padding, IntArrayRef dilation, bool ceil_mode) {
  TORCH_CHECK(kernel.size() == 1 || kernel.size() == 3, name,
              ": kernel_size must either be a single int, or a tuple of three ints");
  TORCH_CHECK(stride.empty() || stride.size() == 1 || stride.size() == 3, name,
              ": stride must either be omitted, a single int, or a tuple of three ints");
  TORCH_CHECK(padding.size() == 1 || padding.size() == 3, name,
              ": padding must either be a single int, or a tuple of three ints");
  TORCH_CHECK(dilation.size() == 1 || dilation.size() == 3, name,
              ": dilation must be either a single int, or a tuple of three ints");
  TORCH_CHECK(input.dim() == 4 || input.dim() == 5, "non-empty 4D or 5D (batch mode) tensor expected for input");
  Pool pool = window(label, 3, input, input, kernel, stride, padding, dilation);
  for (int64_t d = 0; d < 3; ++d) {
    pool.out[d] = at::native::pooling_output_shape<int64_t>(pool.in[d], pool.kernel[d], pool.padding[d], pool.stride[d],
                                                            pool.dilation[d], ceil_mode);
  }
  const auto &k = pool.kernel, &s = pool.stride, &p = pool.padding, &l = pool.dilation, &i = pool.in, &o = pool.out;
  at::native::pool3d_shape_check(input, input.size(-4), k[0], k[1], k[2], s[0], s[1], s[2], p[0], p[1], p[2], l[0],
                                 l[1], l[2], i[0], i[1], i[2], o[0], o[1], o[2], name);
  return pool;
}

std::tuple<Tensor&, Tensor&> max3d_out(const Tensor& self, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                                       IntArrayRef dilation, bool ceil_mode, Tensor& out, Tensor& indices) {
  const Pool pool =
      window3d("max_pool3d", "aten::max_pool3d_with_indices", self, kernel, stride, padding, dilation, ceil_mode);
  at::DimVector sizes(self.sizes());
  std::copy(pool.out.begin(), pool.out.end(), sizes.end() - 3);
  const auto format = self.dim() == 5 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
  for (Tensor* tensor : {&out, &indices}) {
    if (at::native::resize_output(*tensor, sizes)) tensor->unsafeGetTensorImpl()->empty_tensor_restride(format);
  }
  max_pool(pool, self, out, indices);
  return {out, indices};
}

std::tuple<Tensor, Tensor> max3d(const Tensor& self, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                                 IntArrayRef dilation, bool ceil_mode) {
  Tensor out = at::empty({0}, self.options());
  Tensor indices = at::empty({0}, self.options().dtype(at::kLong));
  max3d_out(self, kernel, stride, padding, dilation, ceil_mode, out, indices);
  return {out, indices};
}

Tensor& max3d_backward_out(const Tensor& grad, const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                           IntArrayRef padding, IntArrayRef dilation, bool ceil_mode, const Tensor& indices,
                           Tensor& out) {
  const Pool pool = window3d("max_pool3d_with_indices_backward", "aten::max_pool3d_with_indices_backward", self, kernel,
                             stride, padding, dilation, ceil_mode);
  at::native::resize_output(out, self.sizes());
  max_pool_backward(pool, grad, indices, out);
  return out;
}

Tensor max3d_backward(const Tensor& grad, const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                      IntArrayRef padding, IntArrayRef dilation, bool ceil_mode, const Tensor& indices) {
  Tensor out = at::empty_like(self);
  return max3d_backward_out(grad, self, kernel, stride, padding, dilation, ceil_mode, indices, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  structured_pair<at::meta::structured_max_pool2d_with_indices, launch_max2d>(m)
      .functional<at::_ops::max_pool2d_with_indices>()
      .out<at::_ops::max_pool2d_with_indices_out>();
  structured<at::meta::structured_max_pool2d_with_indices_backward, launch_max2d_backward>(m)
      .functional<at::_ops::max_pool2d_with_indices_backward>()
      .out<at::_ops::max_pool2d_with_indices_backward_grad_input>();
  structured<at::meta::structured_avg_pool2d, launch_average<2, at::meta::structured_avg_pool2d>>(m)
      .functional<at::_ops::avg_pool2d>()
      .out<at::_ops::avg_pool2d_out>();
  structured<at::meta::structured_avg_pool3d, launch_average<3, at::meta::structured_avg_pool3d>>(m)
      .functional<at::_ops::avg_pool3d>()
      .out<at::_ops::avg_pool3d_out>();
  structured<at::meta::structured_avg_pool2d_backward,
             launch_average_backward<2, at::meta::structured_avg_pool2d_backward>>(m)
      .functional<at::_ops::avg_pool2d_backward>()
      .out<at::_ops::avg_pool2d_backward_grad_input>();
  structured<at::meta::structured_avg_pool3d_backward,
             launch_average_backward<3, at::meta::structured_avg_pool3d_backward>>(m)
      .functional<at::_ops::avg_pool3d_backward>()
      .out<at::_ops::avg_pool3d_backward_grad_input>();
  register_native<at::_ops::max_pool3d_with_indices, max3d>(m);
  register_native<at::_ops::max_pool3d_with_indices_out, max3d_out>(m);
  register_native<at::_ops::max_pool3d_with_indices_backward, max3d_backward>(m);
  register_native<at::_ops::max_pool3d_with_indices_backward_grad_input, max3d_backward_out>(m);
}

}  // namespace
}  // namespace torch_npu::pool_cpp
