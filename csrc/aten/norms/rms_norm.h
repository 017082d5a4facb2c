// RMS norm, with or without a residual that is added first. PyTorch's _fused_rms_norm, npu_rms_norm and
// npu_add_rms_norm are these. `dims`: how many of the last dimensions are normalised; weight may be undefined.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <tuple>

namespace torch_npu::rms_norm {

// out, 1 / sqrt(mean of squares + eps), and the sum x + residual: x itself if there is no residual.
std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(const char* label, const at::Tensor& x,
                                                       const at::Tensor& residual, const at::Tensor& weight,
                                                       int64_t dims, double eps);

// Gradients of the sum and of the weight, as far as they are wanted. `grad_sum` is what reached the sum itself, if
// anything did.
std::tuple<at::Tensor, at::Tensor> backward(const char* label, const at::Tensor& grad, const at::Tensor& grad_sum,
                                            const at::Tensor& sum, const at::Tensor& rstd, const at::Tensor& weight,
                                            int64_t dims, std::array<bool, 2> wanted);

// The same in PyTorch's ops, which can be differentiated again.
std::tuple<at::Tensor, at::Tensor> backward_composition(const at::Tensor& grad, const at::Tensor& grad_sum,
                                                        const at::Tensor& sum, const at::Tensor& rstd,
                                                        const at::Tensor& weight, int64_t dims,
                                                        std::array<bool, 2> wanted);

}  // namespace torch_npu::rms_norm
