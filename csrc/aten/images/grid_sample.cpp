// grid_sampler in two and three dimensions. A point of the output reads its position from the grid and gathers the
// inputs around it: one MAP forward; backward one SCATTER for the input and one REDUCE over channels for the grid.
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/ops/grid_sampler_2d_backward_ops.h>
#include <ATen/ops/grid_sampler_2d_ops.h>
#include <ATen/ops/grid_sampler_3d_backward_ops.h>
#include <ATen/ops/grid_sampler_3d_ops.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <vector>

#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/structured.h"

namespace torch_npu::grid_sample_cpp {
namespace {

using at::Tensor;
using at::native::detail::GridSamplerInterpolation;
using at::native::detail::GridSamplerPadding;

struct Sampling {
  GridSamplerInterpolation interpolation;
  GridSamplerPadding padding;
  bool align;
  int64_t n;  // spatial dimensions

  int64_t key() const {
    return ((static_cast<int64_t>(interpolation) * 3 + static_cast<int64_t>(padding)) * 2 + align) * 4 + n;
  }
  int taps() const {
    return interpolation == GridSamplerInterpolation::Bilinear  ? 2
           : interpolation == GridSamplerInterpolation::Bicubic ? 4
                                                                : 1;
  }
};

// %end, and %span, what a position is reflected in; -0.5 or 0 is the lowest one.
std::string padding_constants(const Sampling& how) {
  if (how.padding == GridSamplerPadding::Zeros) {
    return "";
  }
  std::string text = "  %end = %size - 1\n";
  if (how.padding == GridSamplerPadding::Reflection) {
    text += std::string("  %span = %size - ") + (how.align ? "1" : "0") + "\n  %by = where(%span == 0, 1, %span)\n";
  }
  return text;
}

// `to`: `from` folded back into the input. With slopes, %m{d} is the derivative by the grid's coordinate, %mu before:
// reflections turn its sign, clamping makes it zero.
std::string padding_lines(const Sampling& how, const std::string& from, const std::string& to, bool slopes) {
  std::string text = "  %p = " + from + "\n";
  if (how.padding == GridSamplerPadding::Zeros) {
    return text + "  " + to + " = %p + 0\n" + (slopes ? "  %m{d} = %mu + 0\n" : "");
  }
  if (how.padding == GridSamplerPadding::Reflection) {
    text += replace_all(R"(
  %i = %p - LOW
  %extra = fmod(abs(%i), %by)
  %odd = fmod(floor(abs(%i) / %by), 2) == 1
  %p = where(%span == 0, 0, where(%odd, %by - %extra, %extra) + LOW)
)",
                        "LOW", how.align ? "0" : "-0.5");
    if (slopes) text += "  %mu = where(xor(%i < 0, %odd), -%mu, %mu)\n";
  }
  if (slopes) text += "  %m{d} = where(%p > 0 and %p < %end, %mu, 0)\n";
  return text + "  " + to + " = min(max(%p, 0), %end)\n";
}

// Weights of cubic convolution (A = -0.75) for the distance %t, and their derivatives: those of
// A x^3 - 5A x^2 + 8A x - 4A and of (A + 2) x^3 - (A + 3) x^2 + 1.
const char* const kCubic = R"(
  %x0 = %t + 1
  %x2 = 1 - %t
  %x3 = %x2 + 1
  %w{d}_0 = ((-0.75 * %x0 - -3.75) * %x0 + -6) * %x0 - -3
  %w{d}_1 = (1.25 * %t - 2.25) * %t * %t + 1
  %w{d}_2 = (1.25 * %x2 - 2.25) * %x2 * %x2 + 1
  %w{d}_3 = ((-0.75 * %x3 - -3.75) * %x3 + -6) * %x3 - -3
)";
const char* const kCubicSlope = R"(
  %dw{d}_0 = (-0.75 * %x0 * 3 - -7.5) * %x0 + -6
  %dw{d}_1 = (1.25 * %t * 3 - 4.5) * %t
  %dw{d}_2 = -((1.25 * %x2 * 3 - 4.5) * %x2)
  %dw{d}_3 = -((-0.75 * %x3 * 3 - -7.5) * %x3 + -6)
)";

// For dimension d: whether positions are in the input (%in{d}_k), addresses %a{d}_k, weights %w{d}_k, their derivatives
// %dw{d}_k, and %m{d}, the derivative of the position by the grid's coordinate.
std::string dimension_lines(const Sampling& how, int64_t d, bool slopes) {
  std::string text = "  %size = number(size{d})\n";
  text += how.align ? "  %u = (g{d} + 1) * 0.5 * (%size - 1)\n  %mu = (%size - 1) * 0.5\n"
                    : "  %u = ((g{d} + 1) * %size - 1) * 0.5\n  %mu = %size * 0.5\n";
  text += padding_constants(how);
  if (how.interpolation == GridSamplerInterpolation::Bicubic) {
    text += "  %f = floor(%u)\n  %t = %u - %f\n  %m{d} = %mu + 0\n";
    text += kCubic;
    if (slopes) text += kCubicSlope;
    constexpr const char* kTaps[] = {"%f - 1", "%f + 0", "%f + 1", "%f + 2"};
    for (int k = 0; k < 4; ++k) text += padding_lines(how, kTaps[k], "%at" + std::to_string(k), false);
  } else {
    text += padding_lines(how, "%u", "%r", slopes);
    text += how.interpolation == GridSamplerInterpolation::Nearest ? "  %at0 = round(%r)\n  %w{d}_0 = 1\n" : R"(
  %at0 = floor(%r)
  %at1 = %at0 + 1
  %w{d}_1 = %r - %at0
  %w{d}_0 = %at1 - %r
  %dw{d}_0 = -1
  %dw{d}_1 = 1
)";
  }
  for (int k = 0; k < how.taps(); ++k) {
    text += replace_all("  %in{d}_K = %atK >= 0 and %atK < %size\n  %a{d}_K = i64(%atK) * step{d}\n", "K",
                        std::to_string(k));
  }
  return replace_all(text, "{d}", std::to_string(d));
}

using Taps = std::vector<std::string>;

// Calls corner(taps, mask, address), the last two formulas, for every combination of taps.
template <class Corner>
void each_corner(const Sampling& how, Corner corner) {
  int64_t total = 1;
  for (int64_t d = 0; d < how.n; ++d) total *= how.taps();
  for (int64_t c = 0; c < total; ++c) {
    Taps taps(how.n);
    for (int64_t d = how.n - 1, rest = c; d >= 0; --d, rest /= how.taps()) {
      taps[d] = std::to_string(d) + "_" + std::to_string(rest % how.taps());
    }
    std::string in, address;
    for (const std::string& tap : taps) {
      in += (in.empty() ? "%in" : " and %in") + tap;
      address += (address.empty() ? "%a" : " + %a") + tap;
    }
    corner(taps, in, address);
  }
}

// The product of the taps' weights, with the derivative's in dimension `slope`.
std::string product(const Taps& taps, int64_t slope) {
  std::string value;
  for (int64_t d = 0; d < static_cast<int64_t>(taps.size()); ++d) {
    value += (d ? " * " : "(") + std::string(d == slope ? "%dw" : "%w") + taps[d];
  }
  return value + ")";
}

std::string head(const Sampling& how, const std::string& operands, bool slopes) {
  std::string text = "formula grid_sample(" + operands + ", " + per_dimension(how.n, "g{d}", ", ") + "; " +
                     per_dimension(how.n, "size{d}: i64, step{d}: i64", ", ") + ")\neach:\n";
  for (int64_t d = 0; d < how.n; ++d) {
    text += dimension_lines(how, d, slopes);
  }
  return text;
}

std::string forward_text(const Sampling& how) {
  std::string sum;
  each_corner(how, [&](const Taps& taps, const std::string& in, const std::string& address) {
    sum += (sum.empty() ? "load_at(x, " : " + load_at(x, ") + address + ", mask " + in + ") * " + product(taps, -1);
  });
  return head(how, "out, x", false) + "  out = " + sum + "\n";
}

std::string input_gradient_text(const Sampling& how) {
  std::string text = head(how, "sum, grad", false);
  each_corner(how, [&](const Taps& taps, const std::string& in, const std::string& address) {
    text += "  store_at(sum, grad * " + product(taps, -1) + ", " + address + ", add, mask " + in + ")\n";
  });
  return text;
}

std::string grid_gradient_text(const Sampling& how) {
  std::string text = head(how, "x, grad, " + per_dimension(how.n, "out{d}", ", "), true), before;
  each_corner(how, [&](const Taps& taps, const std::string& in, const std::string& address) {
    text += "  %x = load_at(x, " + address + ", mask " + in + ")\n";
    for (int64_t d = 0; d < how.n; ++d) {
      text += replace_all("  %sum{d} = " + before + "%x * " + product(taps, d) + "\n", "{d}", std::to_string(d));
    }
    before = "%sum{d} + ";
  });
  return text + per_dimension(how.n, "  %fold{d} = fold(sum, %sum{d} * grad * %m{d})\n") + "row:\n" +
         per_dimension(how.n, "  out{d} = %fold{d}\n");
}

ProgramFamily f_forward, f_input, f_grid;

// [batch, channel, spatial...] or, with the channels last, [batch, spatial..., channel].
enum class Order { kChannelsSecond, kChannelsLast };

at::DimVector space(const Tensor& tensor, Order order) {
  at::DimVector out(tensor.sizes());
  if (order == Order::kChannelsLast) std::rotate(out.begin() + 1, out.begin() + 2, out.end());
  return out;
}
at::DimVector strides_in(const Tensor& tensor, Order order) {
  at::DimVector out(tensor.strides());
  if (order == Order::kChannelsLast) std::rotate(out.begin() + 1, out.begin() + 2, out.end());
  return out;
}
// The input is addressed by the program.
at::DimVector plane_strides(const Tensor& x, Order order) {
  at::DimVector out(x.dim(), 0);
  out[0] = x.stride(0);
  out[order == Order::kChannelsSecond ? 1 : x.dim() - 1] = x.stride(1);
  return out;
}
// Component d of the grid, for every channel.
at::DimVector grid_strides(const Tensor& grid, Order order) {
  at::DimVector out(grid.strides().begin(), grid.strides().end() - 1);
  out.insert(order == Order::kChannelsSecond ? out.begin() + 1 : out.end(), 0);
  return out;
}

// The grid's components are x, y, z; dimensions are in the opposite order.
void add_grid(Nest& nest, const Tensor& grid, const Tensor& x, Order order) {
  const int64_t n = grid.size(-1);
  for (int64_t d = 0; d < n; ++d) {
    nest.with(grid, grid_strides(grid, order), (n - 1 - d) * grid.stride(-1));
  }
  for (int64_t d = 0; d < n; ++d) {
    nest.integer(x.size(2 + d)).integer(x.stride(2 + d));
  }
}

Sampling sampling(int64_t interpolation, int64_t padding, bool align, int64_t n) {
  return {static_cast<GridSamplerInterpolation>(interpolation), static_cast<GridSamplerPadding>(padding), align, n};
}

Tensor sample(const char* label, const Tensor& input, const Tensor& grid, const Sampling& how) {
  const npu_dtype compute = compute_dtype(numeric_dtype(input.scalar_type(), label));
  at::DimVector sizes{input.size(0), input.size(1)};
  sizes.append(grid.sizes().begin() + 1, grid.sizes().end() - 1);
  const Tensor out = make_empty(sizes, {}, input.options());
  if (out.numel() == 0) {
    return out;
  }
  Nest nest(NPU_MAP, label, sizes);
  nest.with(out).with(input, plane_strides(input, Order::kChannelsSecond));
  add_grid(nest, grid, input, Order::kChannelsSecond);
  nest.run(f_forward.get(how.key(), compute, [&] { return forward_text(how); }));
  return out;
}

std::tuple<Tensor, Tensor> sample_backward(const char* label, const Tensor& grad, const Tensor& input,
                                           const Tensor& grid, const Sampling& how, std::array<bool, 2> wanted) {
  const npu_dtype compute = compute_dtype(numeric_dtype(input.scalar_type(), label));
  Tensor input_gradient, grid_gradient;
  if (wanted[0]) {
    // 16-bit sums would stop growing.
    const bool narrow = at::isReducedFloatingType(input.scalar_type());
    const Tensor sum = at::zeros(input.sizes(), input.options().dtype(narrow ? at::kFloat : input.scalar_type()));
    if (grad.numel() > 0) {
      Nest nest(NPU_SCATTER, label, grad.sizes());
      nest.with(sum, plane_strides(sum, Order::kChannelsSecond)).with(grad);
      add_grid(nest, grid, sum, Order::kChannelsSecond);
      nest.run(f_input.get(how.key(), compute, [&] { return input_gradient_text(how); }));
    }
    input_gradient = narrow ? sum.to(input.scalar_type()) : sum;
  }
  if (how.interpolation == GridSamplerInterpolation::Nearest || grad.numel() == 0) {
    grid_gradient = at::zeros(grid.sizes(), grid.options());
  } else if (wanted[1]) {
    grid_gradient = make_empty(grid.sizes(), {}, grid.options());
    constexpr Order order = Order::kChannelsLast;
    Nest nest(NPU_REDUCE, label, space(grad, order), 1);
    nest.with(input, plane_strides(input, order)).with(grad, strides_in(grad, order));
    for (int64_t d = 0; d < how.n; ++d) {
      nest.with(grid_gradient, grid_strides(grid_gradient, order), how.n - 1 - d);
    }
    add_grid(nest, grid, input, order);
    nest.run(f_grid.get(how.key(), compute, [&] { return grid_gradient_text(how); }));
  }
  return {input_gradient, grid_gradient};
}

Tensor grid_sampler_2d(const Tensor& input, const Tensor& grid, int64_t interpolation, int64_t padding, bool align) {
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_2d(input, grid);
  return sample("aten::grid_sampler_2d", input, grid, sampling(interpolation, padding, align, 2));
}
Tensor grid_sampler_3d(const Tensor& input, const Tensor& grid, int64_t interpolation, int64_t padding, bool align) {
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_3d(input, grid, interpolation);
  return sample("aten::grid_sampler_3d", input, grid, sampling(interpolation, padding, align, 3));
}
std::tuple<Tensor, Tensor> grid_sampler_2d_backward(const Tensor& grad, const Tensor& input, const Tensor& grid,
                                                    int64_t interpolation, int64_t padding, bool align,
                                                    std::array<bool, 2> wanted) {
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_2d(input, grid);
  return sample_backward("aten::grid_sampler_2d_backward", grad, input, grid,
                         sampling(interpolation, padding, align, 2), wanted);
}
std::tuple<Tensor, Tensor> grid_sampler_3d_backward(const Tensor& grad, const Tensor& input, const Tensor& grid,
                                                    int64_t interpolation, int64_t padding, bool align,
                                                    std::array<bool, 2> wanted) {
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_3d(input, grid, interpolation);
  return sample_backward("aten::grid_sampler_3d_backward", grad, input, grid,
                         sampling(interpolation, padding, align, 3), wanted);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_native<at::_ops::grid_sampler_2d, grid_sampler_2d>(m);
  register_native<at::_ops::grid_sampler_3d, grid_sampler_3d>(m);
  register_native<at::_ops::grid_sampler_2d_backward, grid_sampler_2d_backward>(m);
  register_native<at::_ops::grid_sampler_3d_backward, grid_sampler_3d_backward>(m);
}

}  // namespace
}  // namespace torch_npu::grid_sample_cpp
