// Pooling in one to three dimensions: REDUCE over the window. Forward, a point of the output meets the inputs of its
// window; backward, a point of the input meets the windows that contain it, so gradients need neither atomics nor
// zeros.
#pragma once
#include <ATen/core/Tensor.h>

#include "csrc/aten/dispatch/nest.h"

namespace torch_npu {

struct Pool {
  const char* label;
  bool adaptive;          // windows from the sizes alone; the vectors below `out` are empty
  at::DimVector in, out;  // spatial sizes
  at::DimVector kernel, stride, padding, dilation;

  int64_t rank() const { return static_cast<int64_t>(in.size()); }
};

enum class Average { kIncludePad, kExcludePad, kDivisor };

// Tensors are [batch, channels, spatial...], or without batch. `indices` are positions in the plane of the input.
void max_pool(const Pool& pool, const at::Tensor& x, const at::Tensor& out, const at::Tensor& indices);
void max_pool_backward(const Pool& pool, const at::Tensor& grad, const at::Tensor& indices, const at::Tensor& out);
void average_pool(const Pool& pool, Average kind, int64_t divisor, const at::Tensor& x, const at::Tensor& out);
void average_pool_backward(const Pool& pool, Average kind, int64_t divisor, const at::Tensor& grad,
                           const at::Tensor& out);

// The texts of these (pool_programs.cpp). `masked`: a window can reach beyond the input.
std::string max_program(const Pool& pool, bool masked, npu_dtype compute);
std::string average_program(const Pool& pool, Average kind, bool masked);
std::string average_backward_program(const Pool& pool, Average kind);

// The end of an each segment and the start of a row segment: %value is the largest %x of the row and %place its
// `place`, -1 if there is none. As in PyTorch the first of equal numbers wins, but the last of several NaNs: the fold
// takes the lowest place, so a NaN's is mirrored (p counts as -1 - p).
std::string largest_lines(const std::string& place, npu_dtype compute, const char* mask);

}  // namespace torch_npu
