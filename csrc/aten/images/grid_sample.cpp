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

// What padding needs to know of dimension {d}.
std::string padding_constants(const Sampling& how) {
  if (how.padding == GridSamplerPadding::Zeros) {
    return "";
  }
  std::string text = "  %end{d} = sub %sf{d}, %one{d}\n";
  if (how.padding == GridSamplerPadding::Reflection) {
    text += replace_all(replace_all(R"(
  %low{d} = const {low} : $t
  %cut{d} = const {cut} : $t
  %span{d} = sub %sf{d}, %cut{d}
  %flat{d} = eq %span{d}, %zero{d}
  %by{d} = where %flat{d}, %one{d}, %span{d}
)",
                                    "{low}", how.align ? "0" : "-0.5"),
                        "{cut}", how.align ? "1" : "0");
  }
  return text;
}

// %to: %from folded back into the input. With slopes, %m{d} is the derivative by the grid's coordinate: reflections
// turn its sign, clamping makes it zero.
std::string padding_lines(const Sampling& how, const std::string& from, const std::string& to, bool slopes) {
  std::string text, source = "%{f}", slope = "%mu{d}";
  if (how.padding == GridSamplerPadding::Reflection) {
    text += R"(
  %{r}i = sub %{f}, %low{d}
  %{r}abs = abs %{r}i
  %{r}extra = fmod %{r}abs, %by{d}
  %{r}q = div %{r}abs, %by{d}
  %{r}flips = floor %{r}q
  %{r}odd0 = fmod %{r}flips, %two{d}
  %{r}odd = eq %{r}odd0, %one{d}
  %{r}back = sub %by{d}, %{r}extra
  %{r}e = where %{r}odd, %{r}back, %{r}extra
  %{r}in = add %{r}e, %low{d}
  %{r}ref = where %flat{d}, %zero{d}, %{r}in
)";
    if (slopes) {
      text += R"(
  %{r}neg = lt %{r}i, %zero{d}
  %{r}flip = xor %{r}neg, %{r}odd
  %{r}turn = neg %mu{d}
  %{r}m = where %{r}flip, %{r}turn, %mu{d}
)";
    }
    source = "%{r}ref";
    slope = "%{r}m";
  }
  if (how.padding == GridSamplerPadding::Zeros) {
    text += "  %{r} = add %{f}, %zero{d}\n";
    if (slopes) text += "  %m{d} = add %mu{d}, %zero{d}\n";
  } else {
    text += "  %{r}c = max {s}, %zero{d}\n  %{r} = min %{r}c, %end{d}\n";
    if (slopes) {
      text += R"(
  %{r}g0 = gt {s}, %zero{d}
  %{r}g1 = lt {s}, %end{d}
  %{r}g = and %{r}g0, %{r}g1
  %m{d} = where %{r}g, {m}, %zero{d}
)";
    }
  }
  text = replace_all(replace_all(text, "{s}", source), "{m}", slope);
  return replace_all(replace_all(text, "{f}", from), "{r}", to);
}

// Weights of cubic convolution (A = -0.75) for the distance %t{d}, and their derivatives.
const char* const kCubic = R"(
  %t1{d} = add %t{d}, %one{d}
  %t2{d} = sub %one{d}, %t{d}
  %t3{d} = add %t2{d}, %one{d}
  %A{d} = const -0.75 : $t
  %A5{d} = const -3.75 : $t
  %A8{d} = const -6 : $t
  %A4{d} = const -3 : $t
  %B2{d} = const 1.25 : $t
  %B3{d} = const 2.25 : $t
  %c3{d} = const 3 : $t
  %fa{d} = mul %A{d}, %t1{d}
  %fb{d} = sub %fa{d}, %A5{d}
  %fc{d} = mul %fb{d}, %t1{d}
  %fd{d} = add %fc{d}, %A8{d}
  %fe{d} = mul %fd{d}, %t1{d}
  %w{d}_0 = sub %fe{d}, %A4{d}
  %ga{d} = mul %B2{d}, %t{d}
  %gb{d} = sub %ga{d}, %B3{d}
  %gc{d} = mul %gb{d}, %t{d}
  %gd{d} = mul %gc{d}, %t{d}
  %w{d}_1 = add %gd{d}, %one{d}
  %ha{d} = mul %B2{d}, %t2{d}
  %hb{d} = sub %ha{d}, %B3{d}
  %hc{d} = mul %hb{d}, %t2{d}
  %hd{d} = mul %hc{d}, %t2{d}
  %w{d}_2 = add %hd{d}, %one{d}
  %ia{d} = mul %A{d}, %t3{d}
  %ib{d} = sub %ia{d}, %A5{d}
  %ic{d} = mul %ib{d}, %t3{d}
  %id{d} = add %ic{d}, %A8{d}
  %ie{d} = mul %id{d}, %t3{d}
  %w{d}_3 = sub %ie{d}, %A4{d}
)";
// d/dx of A x^3 - 5A x^2 + 8A x - 4A and of (A + 2) x^3 - (A + 3) x^2 + 1.
const char* const kCubicSlope = R"(
  %ja{d} = mul %fa{d}, %c3{d}
  %jb{d} = add %A5{d}, %A5{d}
  %jc{d} = sub %ja{d}, %jb{d}
  %jd{d} = mul %jc{d}, %t1{d}
  %dw{d}_0 = add %jd{d}, %A8{d}
  %ka{d} = mul %ga{d}, %c3{d}
  %kb{d} = add %B3{d}, %B3{d}
  %kc{d} = sub %ka{d}, %kb{d}
  %dw{d}_1 = mul %kc{d}, %t{d}
  %la{d} = mul %ha{d}, %c3{d}
  %lc{d} = sub %la{d}, %kb{d}
  %ld{d} = mul %lc{d}, %t2{d}
  %dw{d}_2 = neg %ld{d}
  %ma{d} = mul %ia{d}, %c3{d}
  %mc{d} = sub %ma{d}, %jb{d}
  %md{d} = mul %mc{d}, %t3{d}
  %me{d} = add %md{d}, %A8{d}
  %dw{d}_3 = neg %me{d}
)";

// For dimension d: positions %at{d}_k as floats, whether they are in the input (%in{d}_k), addresses %a{d}_k, weights
// %w{d}_k, their derivatives %dw{d}_k, and %m{d}, the derivative of the position by the grid's coordinate.
std::string dimension_lines(const Sampling& how, int64_t d, bool slopes) {
  std::string text = R"(
  %g{d} = load g{d} : $t
  %size{d} = param size{d} : i64
  %step{d} = param step{d} : i64
  %sf{d} = cast %size{d} : $t
  %zero{d} = const 0 : $t
  %one{d} = const 1 : $t
  %two{d} = const 2 : $t
  %half{d} = const 0.5 : $t
  %g1{d} = add %g{d}, %one{d}
)";
  text += how.align ? R"(
  %s1{d} = sub %sf{d}, %one{d}
  %gh{d} = mul %g1{d}, %half{d}
  %u{d} = mul %gh{d}, %s1{d}
  %mu{d} = mul %s1{d}, %half{d}
)"
                    : R"(
  %gs{d} = mul %g1{d}, %sf{d}
  %gt{d} = sub %gs{d}, %one{d}
  %u{d} = mul %gt{d}, %half{d}
  %mu{d} = mul %sf{d}, %half{d}
)";
  text += padding_constants(how);
  if (how.interpolation == GridSamplerInterpolation::Bicubic) {
    text += R"(
  %f{d} = floor %u{d}
  %t{d} = sub %u{d}, %f{d}
  %m{d} = add %mu{d}, %zero{d}
  %q{d}_0 = sub %f{d}, %one{d}
  %q{d}_1 = add %f{d}, %zero{d}
  %q{d}_2 = add %f{d}, %one{d}
  %q{d}_3 = add %f{d}, %two{d}
)";
    text += kCubic;
    if (slopes) text += kCubicSlope;
    for (int k = 0; k < 4; ++k) {
      const std::string id = "{d}_" + std::to_string(k);
      text += padding_lines(how, "q" + id, "at" + id, false);
    }
  } else {
    text += padding_lines(how, "u{d}", "r{d}", slopes);
    if (how.interpolation == GridSamplerInterpolation::Nearest) {
      text += "  %at{d}_0 = round %r{d}\n  %w{d}_0 = const 1 : $t\n";
    } else {
      text += R"(
  %at{d}_0 = floor %r{d}
  %at{d}_1 = add %at{d}_0, %one{d}
  %w{d}_1 = sub %r{d}, %at{d}_0
  %w{d}_0 = sub %at{d}_1, %r{d}
  %dw{d}_0 = const -1 : $t
  %dw{d}_1 = const 1 : $t
)";
    }
  }
  for (int k = 0; k < how.taps(); ++k) {
    text += replace_all(R"(
  %lo{d}_K = ge %at{d}_K, %zero{d}
  %hi{d}_K = lt %at{d}_K, %sf{d}
  %in{d}_K = and %lo{d}_K, %hi{d}_K
  %i{d}_K = cast %at{d}_K : i64
  %a{d}_K = mul %i{d}_K, %step{d}
)",
                        "K", std::to_string(k));
  }
  return replace_all(text, "{d}", std::to_string(d));
}

// Calls corner(id, taps) for every combination of taps, after lines that make its mask %in<id> and address %a<id>.
template <class Corner>
void each_corner(const Sampling& how, std::string& text, Corner corner) {
  int64_t total = 1;
  for (int64_t d = 0; d < how.n; ++d) total *= how.taps();
  for (int64_t c = 0; c < total; ++c) {
    std::vector<std::string> taps(how.n);
    for (int64_t d = how.n - 1, rest = c; d >= 0; --d, rest /= how.taps()) {
      taps[d] = std::to_string(d) + "_" + std::to_string(rest % how.taps());
    }
    const std::string id = "c" + std::to_string(c);
    std::string in = "%in" + taps[0], a = "%a" + taps[0];
    for (int64_t d = 1; d < how.n; ++d) {
      const std::string at = id + std::to_string(d);
      text +=
          "  %in" + at + " = and " + in + ", %in" + taps[d] + "\n  %a" + at + " = add " + a + ", %a" + taps[d] + "\n";
      in = "%in" + at;
      a = "%a" + at;
    }
    corner(id, taps, in, a);
  }
}

// The product of the taps' weights, with the derivative's in dimension `slope`.
std::string product(const std::vector<std::string>& taps, int64_t slope, const std::string& id, std::string& text) {
  const auto factor = [&](size_t d) { return (static_cast<int64_t>(d) == slope ? "%dw" : "%w") + taps[d]; };
  std::string value = factor(0);
  for (size_t d = 1; d < taps.size(); ++d) {
    const std::string next = "%pw" + id + "_" + std::to_string(slope + 1) + "_" + std::to_string(d);
    text += "  " + next + " = mul " + value + ", " + factor(d) + "\n";
    value = next;
  }
  return value;
}

std::string names(const std::string& pattern, int64_t n) {
  std::string out;
  for (int64_t d = 0; d < n; ++d) {
    out += (d ? ", " : "") + replace_all(pattern, "{d}", std::to_string(d));
  }
  return out;
}

std::string head(const Sampling& how, const std::string& operands, bool slopes) {
  std::string text = "program grid_sample(" + operands + ", " + names("g{d}", how.n) + "; " +
                     names("size{d}, step{d}", how.n) + ")\neach:\n";
  for (int64_t d = 0; d < how.n; ++d) {
    text += dimension_lines(how, d, slopes);
  }
  return text;
}

std::string forward_text(const Sampling& how) {
  std::string text = head(how, "out, x", false), sum;
  each_corner(
      how, text,
      [&](const std::string& id, const std::vector<std::string>& taps, const std::string& in, const std::string& a) {
        const std::string weight = product(taps, -1, id, text);
        text += "  %x" + id + " = load_at x, " + a + ", mask " + in + " : $t\n  %v" + id + " = mul %x" + id + ", " +
                weight + "\n";
        if (!sum.empty()) text += "  %s" + id + " = add " + sum + ", %v" + id + "\n";
        sum = (sum.empty() ? "%v" : "%s") + id;
      });
  return text + "  store out, " + sum + "\n";
}

std::string input_gradient_text(const Sampling& how) {
  std::string text = head(how, "sum, grad", false) + "  %grad = load grad : $t\n";
  each_corner(
      how, text,
      [&](const std::string& id, const std::vector<std::string>& taps, const std::string& in, const std::string& a) {
        const std::string weight = product(taps, -1, id, text);
        text += "  %v" + id + " = mul %grad, " + weight + "\n  store_at sum, %v" + id + ", " + a + ", add, mask " + in +
                "\n";
      });
  return text;
}

std::string grid_gradient_text(const Sampling& how) {
  std::string text = head(how, "x, grad, " + names("out{d}", how.n), true) + "  %grad = load grad : $t\n";
  std::vector<std::string> sums(how.n);
  each_corner(
      how, text,
      [&](const std::string& id, const std::vector<std::string>& taps, const std::string& in, const std::string& a) {
        text += "  %x" + id + " = load_at x, " + a + ", mask " + in + " : $t\n";
        for (int64_t d = 0; d < how.n; ++d) {
          const std::string at = id + "_" + std::to_string(d);
          text += "  %v" + at + " = mul %x" + id + ", " + product(taps, d, id, text) + "\n";
          if (!sums[d].empty()) text += "  %s" + at + " = add " + sums[d] + ", %v" + at + "\n";
          sums[d] = (sums[d].empty() ? "%v" : "%s") + at;
        }
      });
  for (int64_t d = 0; d < how.n; ++d) {
    text += replace_all(
        "  %vg{d} = mul " + sums[d] + ", %grad\n  %vm{d} = mul %vg{d}, %m{d}\n  %fold{d} = fold sum %vm{d}\n", "{d}",
        std::to_string(d));
  }
  text += "row:\n";
  for (int64_t d = 0; d < how.n; ++d) {
    text += replace_all("  store out{d}, %fold{d}\n", "{d}", std::to_string(d));
  }
  return text;
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
