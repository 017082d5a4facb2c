// The programs of interpolation (upsample_programs.cpp), for 1 to 3 spatial dimensions at the end of the tensors.
#pragma once
#include <ATen/core/Tensor.h>

#include "csrc/aten/dispatch/nest.h"

namespace torch_npu {

enum class Interpolation { kNearest, kNearestExact, kLinear, kCubic };

// out[o] = sum of weights times x at the positions around o * scale.
void interpolate(const char* label, Interpolation kind, bool align, const at::Tensor& x, const at::Tensor& out,
                 at::ArrayRef<double> scales);
// sum[those positions] += weights * grad[o].
void interpolate_backward(const char* label, Interpolation kind, bool align, const at::Tensor& grad,
                          const at::Tensor& sum, at::ArrayRef<double> scales);

}  // namespace torch_npu
