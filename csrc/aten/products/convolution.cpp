// Convolutions: one CONV for the result and one for each gradient. A transposed convolution is the input gradient of
// the plain one, so the three modes of CONV serve both.
#include <ATen/core/Tensor.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/library.h>

#include "csrc/aten/dispatch/empty.h"
#include "csrc/aten/dispatch/optional.h"
#include "csrc/aten/dispatch/reduction.h"
#include "csrc/aten/dispatch/same_device.h"
#include "csrc/aten/fallback/fallback.h"
#include "csrc/core/observe/debug.h"

namespace torch_npu::convolution_cpp {
namespace {

TypedProgram k_bias(R"(
formula conv_bias(x, w, out, bias)
each:
  out = acc + bias
)");

// The plain convolution behind an op: `input` and `output` are its own, whichever of them the op calls so.
struct Geometry {
  int64_t rank, groups;
  at::IntArrayRef stride, padding, dilation;
};

// a and b are operands 0 and 1 of the mode; input, weight and output are the shapes of the plain convolution.
void launch_conv(npu_conv_mode mode, const Geometry& g, const at::Tensor& result, const at::Tensor& a,
                 const at::Tensor& b, const at::Tensor& bias, at::IntArrayRef input, at::IntArrayRef weight,
                 at::IntArrayRef output, const char* label) {
  check_same_device(label, {&a, &b, &bias, &result});
  if (result.numel() == 0) {
    return;
  }
  const npu_dtype compute = compute_type(a, label);
  if (compute == NPU_BOOL || compute == NPU_U64) {
    throw Unsupported(label);
  }
  Command command(NPU_CONV, label, result.sizes());
  for (const at::Tensor* tensor : {&a, &b, &result}) command.add(*tensor);
  npu_conv& conv = command->u.conv;
  conv.mode = mode;
  conv.spatial_rank = static_cast<uint32_t>(g.rank);
  conv.batch = input[0];
  conv.in_channels = input[1];
  conv.out_channels = output[1];
  conv.groups = g.groups;
  for (int64_t d = 0; d < g.rank; ++d) {
    conv.in_size[d] = input[2 + d];
    conv.out_size[d] = output[2 + d];
    conv.kernel[d] = weight[2 + d];
    conv.stride[d] = g.stride[d];
    conv.padding[d] = g.padding[d];
    conv.dilation[d] = g.dilation[d];
  }
  conv.acc_dtype = compute;
  if (!bias.defined()) return command.run();
  npu_operand& added = command.add(bias);
  added.stride[1] = std::exchange(added.stride[0], 0);
  command.run(k_bias.of(compute));
}

at::MemoryFormat result_format(const at::Tensor& input, const at::Tensor& weight) {
  for (auto format : {at::MemoryFormat::ChannelsLast, at::MemoryFormat::ChannelsLast3d}) {
    if (input.suggest_memory_format() == format || weight.suggest_memory_format() == format) {
      return format;
    }
  }
  return at::MemoryFormat::Contiguous;
}

at::Tensor empty_like_format(at::IntArrayRef sizes, const at::Tensor& like, at::MemoryFormat format) {
  return make_empty(sizes, {}, like.options().memory_format(format));
}

at::Tensor native_convolution(const at::Tensor& input, const at::Tensor& weight,
                              const std::optional<at::Tensor>& bias_opt, at::IntArrayRef stride,
                              at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                              at::IntArrayRef output_padding, int64_t groups) {
  const char* label = "aten::convolution";
  const Geometry g{input.dim() - 2, groups, stride, padding, dilation};
  if (g.rank < 1 || g.rank > 3 || input.scalar_type() != weight.scalar_type()) {
    throw Unsupported(label);
  }
  at::DimVector sizes{input.size(0), transposed ? weight.size(1) * groups : weight.size(0)};
  for (int64_t d = 0; d < g.rank; ++d) {
    const int64_t reach = dilation[d] * (weight.size(2 + d) - 1);
    sizes.push_back(transposed ? (input.size(2 + d) - 1) * stride[d] - 2 * padding[d] + reach + output_padding[d] + 1
                               : (input.size(2 + d) + 2 * padding[d] - reach - 1) / stride[d] + 1);
  }
  const at::Tensor bias = given(bias_opt);
  at::Tensor output = empty_like_format(sizes, input, result_format(input, weight));
  if (transposed) {
    launch_conv(NPU_CONV_GRAD_INPUT, g, output, input, weight, bias, sizes, weight.sizes(), input.sizes(), label);
  } else {
    launch_conv(NPU_CONV_FORWARD, g, output, input, weight, bias, input.sizes(), weight.sizes(), sizes, label);
  }
  return output;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> native_convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef, int64_t groups,
    std::array<bool, 3> wanted) {
  const char* label = "aten::convolution_backward";
  const Geometry g{input.dim() - 2, groups, stride, padding, dilation};
  if (g.rank < 1 || g.rank > 3 || input.scalar_type() != weight.scalar_type()) {
    throw Unsupported(label);
  }
  const auto format = result_format(input, weight);
  at::Tensor grad_input, grad_weight, grad_bias;
  if (wanted[0]) {
    grad_input = empty_like_format(input.sizes(), input, format);
    if (transposed) {
      launch_conv(NPU_CONV_FORWARD, g, grad_input, grad, weight, {}, grad.sizes(), weight.sizes(), input.sizes(),
                  label);
    } else {
      launch_conv(NPU_CONV_GRAD_INPUT, g, grad_input, grad, weight, {}, input.sizes(), weight.sizes(), grad.sizes(),
                  label);
    }
  }
  if (wanted[1]) {
    grad_weight = empty_like_format(weight.sizes(), weight, weight.suggest_memory_format());
    if (grad.numel() == 0) {
      grad_weight.zero_();
    } else if (transposed) {
      launch_conv(NPU_CONV_GRAD_WEIGHT, g, grad_weight, input, grad, {}, grad.sizes(), weight.sizes(), input.sizes(),
                  label);
    } else {
      launch_conv(NPU_CONV_GRAD_WEIGHT, g, grad_weight, grad, input, {}, input.sizes(), weight.sizes(), grad.sizes(),
                  label);
    }
  }
  if (wanted[2]) {
    at::DimVector dims{0};
    for (int64_t d = 0; d < g.rank; ++d) {
      dims.push_back(2 + d);
    }
    grad_bias = grad.sum(dims);
  }
  return {grad_input, grad_weight, grad_bias};
}

// The CPU has no kernel for the "overrideable" ops that PyTorch sends here, so the usual fallback would find nothing:
// what the driver cannot do is computed by the op they stand for.
at::Tensor convolution_or_cpu(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                              at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation,
                              bool transposed, at::IntArrayRef output_padding, int64_t groups) {
  try {
    return native_convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  } catch (const Unsupported&) {
    fallback::note("aten::convolution");
    const debug::FallbackScope logged("aten::convolution");
    const auto cpu_bias = bias && bias->defined() ? std::optional(bias->cpu()) : std::nullopt;
    return at::convolution(input.cpu(), weight.cpu(), cpu_bias, stride, padding, dilation, transposed, output_padding,
                           groups)
        .to(input.device());
  }
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward_or_cpu(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight, at::IntArrayRef stride,
    at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed, at::IntArrayRef output_padding, int64_t groups,
    std::array<bool, 3> wanted) {
  try {
    return native_convolution_backward(grad, input, weight, stride, padding, dilation, transposed, output_padding,
                                       groups, wanted);
  } catch (const Unsupported&) {
    fallback::note("aten::convolution_backward");
    const debug::FallbackScope logged("aten::convolution_backward");
    const at::DimVector bias_sizes{transposed ? weight.size(1) * groups : weight.size(0)};
    auto [grad_input, grad_weight, grad_bias] =
        at::convolution_backward(grad.cpu(), input.cpu(), weight.cpu(), at::OptionalIntArrayRef(bias_sizes), stride,
                                 padding, dilation, transposed, output_padding, groups, wanted);
    const auto back = [&](const at::Tensor& t) { return t.defined() ? t.to(input.device()) : t; };
    return {back(grad_input), back(grad_weight), back(grad_bias)};
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", TORCH_FN(convolution_or_cpu));
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward_or_cpu));
}

}  // namespace
}  // namespace torch_npu::convolution_cpp
