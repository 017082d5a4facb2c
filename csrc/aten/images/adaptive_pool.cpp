// Adaptive pooling: the windows follow from the sizes.
#include <ATen/ops/_adaptive_avg_pool2d_backward_ops.h>
#include <ATen/ops/_adaptive_avg_pool2d_ops.h>
#include <ATen/ops/_adaptive_avg_pool3d_backward_ops.h>
#include <ATen/ops/_adaptive_avg_pool3d_ops.h>
#include <ATen/ops/adaptive_avg_pool2d_ops.h>
#include <ATen/ops/adaptive_avg_pool3d_backward_ops.h>
#include <ATen/ops/adaptive_avg_pool3d_ops.h>
#include <ATen/ops/adaptive_max_pool2d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool2d_backward_ops.h>
#include <ATen/ops/adaptive_max_pool2d_meta.h>
#include <ATen/ops/adaptive_max_pool2d_ops.h>
#include <ATen/ops/adaptive_max_pool3d_backward_meta.h>
#include <ATen/ops/adaptive_max_pool3d_backward_ops.h>
#include <ATen/ops/adaptive_max_pool3d_meta.h>
#include <ATen/ops/adaptive_max_pool3d_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "csrc/aten/dispatch/structured_pair.h"
#include "csrc/aten/images/pool.h"

namespace torch_npu::adaptive_pool_cpp {
namespace {

using at::IntArrayRef;
using at::Tensor;

at::DimVector spatial(const Tensor& tensor, int64_t n) {
  return at::DimVector(tensor.sizes().end() - n, tensor.sizes().end());
}

// Windows that divide the input evenly are as long as they are apart: those of a pooling with a given window.
Pool adaptive(const char* label, int64_t n, const Tensor& input, const Tensor& output) {
  Pool pool{label, true, spatial(input, n), spatial(output, n), {}, {}, {}, {}};
  at::DimVector each;
  for (int64_t d = 0; d < n; ++d) {
    if (pool.out[d] == 0 || pool.in[d] == 0 || pool.in[d] % pool.out[d] != 0) return pool;
    each.push_back(pool.in[d] / pool.out[d]);
  }
  pool.adaptive = false;
  pool.kernel = pool.stride = each;
  pool.padding.assign(n, 0);
  pool.dilation.assign(n, 1);
  return pool;
}

void check_average(const char* name, int64_t n, const Tensor& input, IntArrayRef output_size) {
  TORCH_CHECK(static_cast<int64_t>(output_size.size()) == n, name, ": output_size must be ", n);
  TORCH_CHECK(input.dim() == n + 1 || input.dim() == n + 2, name, "(): Expected ", n + 1, "D or ", n + 2,
              "D tensor, but got ", input.sizes());
  for (int64_t d = 1; d <= n; ++d) {
    TORCH_CHECK(input.size(-d) > 0, name,
                "(): Expected input to have non-zero size for non-batch dimensions, but input has sizes ",
                input.sizes(), " with dimension ", input.dim() - d, " being empty");
  }
  for (const int64_t size : output_size) {
    TORCH_CHECK(size >= 0, name, ": elements of output_size must be greater than or equal to 0 ", "but received {",
                output_size, "}");
  }
}

template <int64_t n>
Tensor& average_out(const Tensor& self, IntArrayRef output_size, Tensor& out) {
  constexpr const char* name = n == 2 ? "adaptive_avg_pool2d" : "adaptive_avg_pool3d";
  check_average(name, n, self, output_size);
  at::DimVector sizes(self.sizes());
  std::copy(output_size.begin(), output_size.end(), sizes.end() - n);
  if (at::native::resize_output(out, sizes) && self.dim() == n + 2) {
    out.unsafeGetTensorImpl()->empty_tensor_restride(self.suggest_memory_format());
  }
  average_pool(adaptive(n == 2 ? "aten::_adaptive_avg_pool2d" : "aten::_adaptive_avg_pool3d", n, self, out),
               Average::kExcludePad, 1, self, out);
  return out;
}

template <int64_t n>
Tensor average(const Tensor& self, IntArrayRef output_size) {
  Tensor out = at::empty({0}, self.options());
  return average_out<n>(self, output_size, out);
}

template <int64_t n>
Tensor& average_backward_out(const Tensor& grad, const Tensor& self, Tensor& out) {
  constexpr const char* label = n == 2 ? "aten::_adaptive_avg_pool2d_backward" : "aten::_adaptive_avg_pool3d_backward";
  check_same_device(label, {&grad, &self, &out});
  TORCH_CHECK(grad.dim() == self.dim(), "expected gradients with ", self.dim(), " dimensions, got ", grad.dim());
  at::native::resize_output(out, self.sizes());
  if (grad.numel() == 0) {
    return out.zero_();
  }
  average_pool_backward(adaptive(label, n, self, grad), Average::kExcludePad, 1, grad, out);
  return out;
}

template <int64_t n>
Tensor average_backward(const Tensor& grad, const Tensor& self) {
  Tensor out = at::empty_like(self);
  return average_backward_out<n>(grad, self, out);
}

template <int64_t n>
void launch_max(const Tensor& out, const Tensor& indices, const Tensor& self, IntArrayRef) {
  max_pool(adaptive(n == 2 ? "aten::adaptive_max_pool2d" : "aten::adaptive_max_pool3d", n, self, out), self, out,
           indices);
}

template <int64_t n, class Meta>
void launch_max_backward(Meta&, const Tensor& out, const Tensor& grad, const Tensor& self, const Tensor& indices) {
  if (grad.numel() == 0) {
    out.zero_();
    return;
  }
  max_pool_backward(
      adaptive(n == 2 ? "aten::adaptive_max_pool2d_backward" : "aten::adaptive_max_pool3d_backward", n, self, grad),
      grad, indices, out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::_adaptive_avg_pool2d, average<2>>(m);
  register_native<at::_ops::adaptive_avg_pool2d_out, average_out<2>>(m);
  register_native<at::_ops::_adaptive_avg_pool2d_backward, average_backward<2>>(m);
  register_native<at::_ops::_adaptive_avg_pool3d, average<3>>(m);
  register_native<at::_ops::adaptive_avg_pool3d_out, average_out<3>>(m);
  register_native<at::_ops::_adaptive_avg_pool3d_backward, average_backward<3>>(m);
  register_native<at::_ops::adaptive_avg_pool3d_backward_grad_input, average_backward_out<3>>(m);
  structured_pair<at::meta::structured_adaptive_max_pool2d, launch_max<2>>(m)
      .functional<at::_ops::adaptive_max_pool2d>()
      .out<at::_ops::adaptive_max_pool2d_out>();
  structured_pair<at::meta::structured_adaptive_max_pool3d, launch_max<3>>(m)
      .functional<at::_ops::adaptive_max_pool3d>()
      .out<at::_ops::adaptive_max_pool3d_out>();
  using at::meta::structured_adaptive_max_pool2d_backward;
  using at::meta::structured_adaptive_max_pool3d_backward;
  structured<structured_adaptive_max_pool2d_backward, launch_max_backward<2, structured_adaptive_max_pool2d_backward>>(
      m)
      .functional<at::_ops::adaptive_max_pool2d_backward>()
      .out<at::_ops::adaptive_max_pool2d_backward_grad_input>();
  structured<structured_adaptive_max_pool3d_backward, launch_max_backward<3, structured_adaptive_max_pool3d_backward>>(
      m)
      .functional<at::_ops::adaptive_max_pool3d_backward>()
      .out<at::_ops::adaptive_max_pool3d_backward_grad_input>();
}

}  // namespace
}  // namespace torch_npu::adaptive_pool_cpp
