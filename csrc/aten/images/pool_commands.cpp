#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>

#include "csrc/aten/images/pool.h"

namespace torch_npu {
namespace {

// Without padding every window position of a fixed window exists, if the last window ends inside.
bool always_inside(const Pool& pool) {
  if (pool.adaptive) return false;
  for (int64_t d = 0; d < pool.rank(); ++d) {
    const int64_t end = (pool.out[d] - 1) * pool.stride[d] + (pool.kernel[d] - 1) * pool.dilation[d];
    if (pool.padding[d] != 0 || end >= pool.in[d]) return false;
  }
  return true;
}

// Strides of a [batch, channels, spatial...] tensor: batch and channels.
at::DimVector outer_strides(const at::Tensor& tensor, int64_t n) {
  const int64_t first = tensor.dim() - n;
  return {first == 2 ? tensor.stride(0) : 0, tensor.stride(first - 1)};
}

struct Space {
  at::DimVector sizes;
  int64_t n;
  at::DimVector kept(const at::Tensor& tensor) const {
    at::DimVector out = outer_strides(tensor, n);
    const auto strides = tensor.strides();
    out.append(strides.end() - n, strides.end());
    out.resize(2 + 2 * n, 0);
    return out;
  }
  // Stays at the plane's first element: positions are computed.
  at::DimVector plane(const at::Tensor& tensor) const {
    at::DimVector out = outer_strides(tensor, n);
    out.resize(2 + 2 * n, 0);
    return out;
  }
};

Space make_space(const at::Tensor& kept, int64_t n, at::IntArrayRef inner) {
  const int64_t first = kept.dim() - n;
  Space space{{first == 2 ? kept.size(0) : 1, kept.size(first - 1)}, n};
  for (int64_t d = 0; d < n; ++d) space.sizes.push_back(kept.size(first + d));
  space.sizes.append(inner.begin(), inner.end());
  return space;
}

void add_parameters(Nest& nest, const Pool& pool, const at::Tensor& stepped, at::IntArrayRef inner, int64_t divisor) {
  const int64_t n = pool.rank();
  for (int64_t d = 0; d < n; ++d) {
    if (pool.adaptive) {
      nest.integers({1, 0, 1, 1});
    } else {
      nest.integers({pool.stride[d], -pool.padding[d], pool.dilation[d], pool.kernel[d]});
    }
    const int64_t bits = std::bit_width(static_cast<uint64_t>(inner[d] - 1));
    nest.integers(
        {pool.in[d], pool.in[d] - 1, pool.out[d], stepped.stride(stepped.dim() - n + d), bits, int64_t{1} << bits});
  }
  nest.integer(divisor);
}

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The longest of `count` windows that split `size` evenly.
int64_t longest(int64_t size, int64_t count) {
  int64_t most = 1;
  for (int64_t i = 0; i < count && size % count != 0; ++i) {
    most = std::max(most, ceil_div((i + 1) * size, count) - i * size / count);
  }
  return size % count == 0 ? std::max<int64_t>(size / count, 1) : most;
}

at::DimVector forward_inner(const Pool& pool) {
  if (!pool.adaptive) return pool.kernel;
  at::DimVector inner;
  for (int64_t d = 0; d < pool.rank(); ++d) inner.push_back(longest(pool.in[d], pool.out[d]));
  return inner;
}

// How many windows one input position can be in.
at::DimVector backward_inner(const Pool& pool) {
  at::DimVector inner;
  for (int64_t d = 0; d < pool.rank(); ++d) {
    inner.push_back(pool.adaptive ? longest(pool.out[d], pool.in[d])
                                  : ceil_div((pool.kernel[d] - 1) * pool.dilation[d] + 1, pool.stride[d]));
  }
  return inner;
}

// The operand `x` of a forward pass: a fixed window is an affine walk, an adaptive one is computed.
void add_input(Nest& nest, const Pool& pool, const Space& space, const at::Tensor& x) {
  if (pool.adaptive) {
    nest.with(x, space.plane(x));
    return;
  }
  const int64_t n = pool.rank();
  at::DimVector strides = outer_strides(x, n);
  strides.resize(2 + 2 * n);
  int64_t origin = 0;
  for (int64_t d = 0; d < n; ++d) {
    const int64_t step = x.stride(x.dim() - n + d);
    strides[2 + d] = step * pool.stride[d];
    strides[2 + n + d] = step * pool.dilation[d];
    origin -= step * pool.padding[d];
  }
  nest.with(x, strides, origin);
}

int64_t key_of(const Pool& pool, int64_t variant) {
  return (variant * 2 + pool.adaptive) * 4 + pool.rank();
}

ProgramFamily f_max, f_max_backward, f_average, f_average_backward;

npu_dtype pool_compute(const at::Tensor& tensor, const char* label) {
  const npu_dtype compute = compute_dtype(numeric_dtype(tensor.scalar_type(), label));
  if (compute == NPU_BOOL) throw Unsupported(label);
  return compute;
}

// A command over windows: each position of `kept` meets `inner` positions of a window, or as many windows.
struct WindowWalk {
  const at::DimVector inner;
  const Space space;
  const npu_dtype compute;
  Nest nest;

  WindowWalk(const Pool& pool, const at::Tensor& read, const at::Tensor& kept, at::DimVector positions)
      : inner(std::move(positions)),
        space(make_space(kept, pool.rank(), inner)),
        compute(pool_compute(read, pool.label)),
        nest(NPU_REDUCE, pool.label, space.sizes, static_cast<int>(pool.rank())) {}
};

// Where no window is cut off, every average counts the same number.
void count_whole_windows(const Pool& pool, Average& kind, int64_t& divisor) {
  if (kind != Average::kDivisor) divisor = c10::multiply_integers(pool.kernel);
  kind = Average::kDivisor;
}

}  // namespace

void max_pool(const Pool& pool, const at::Tensor& x, const at::Tensor& out, const at::Tensor& indices) {
  if (out.numel() == 0) return;
  WindowWalk walk(pool, x, out, forward_inner(pool));
  add_input(walk.nest, pool, walk.space, x);
  walk.nest.with(out, walk.space.kept(out)).with(indices, walk.space.kept(indices));
  add_parameters(walk.nest, pool, x, walk.inner, 1);
  const bool masked = !always_inside(pool);
  walk.nest.run(f_max.get(key_of(pool, masked), walk.compute, [&] { return max_program(pool, masked, walk.compute); }));
}

// Every gradient goes to the position that its window took.
void max_pool_backward(const Pool& pool, const at::Tensor& grad, const at::Tensor& indices, const at::Tensor& out) {
  const int64_t n = pool.rank();
  if (out.numel() == 0) return;
  const npu_dtype compute = pool_compute(grad, pool.label);
  // Indices count in planes that are contiguous.
  int64_t step = 1;
  bool dense = true;
  for (int64_t d = out.dim() - 1; d >= out.dim() - n; --d) {
    dense &= out.size(d) == 1 || out.stride(d) == step;
    step *= out.size(d);
  }
  const at::Tensor sum = dense ? out : at::empty(out.sizes(), out.options());
  sum.zero_();
  const int64_t first = grad.dim() - n;
  at::DimVector sizes = {first == 2 ? grad.size(0) : 1, grad.size(first - 1)};
  for (int64_t d = first; d < grad.dim(); ++d) sizes.push_back(grad.size(d));
  const auto with_spatial = [&](const at::Tensor& tensor) {
    at::DimVector strides = outer_strides(tensor, n);
    strides.append(tensor.strides().end() - n, tensor.strides().end());
    return strides;
  };
  at::DimVector plane = outer_strides(sum, n);
  plane.resize(2 + n, 0);
  Nest nest(NPU_SCATTER, pool.label, sizes);
  nest.with(grad, with_spatial(grad)).with(indices, with_spatial(indices)).with(sum, plane).integer(step);
  nest.run(f_max_backward.get(0, compute, [] {
    return std::string(R"(
formula max_pool_backward(grad, indices: i64, sum; size: i64)
each:
  %at = check_index(indices, size, check)
  store_at(sum, grad, %at, add)
)");
  }));
  if (!dense) out.copy_(sum);
}

void average_pool(const Pool& pool, Average kind, int64_t divisor, const at::Tensor& x, const at::Tensor& out) {
  if (out.numel() == 0) return;
  WindowWalk walk(pool, x, out, forward_inner(pool));
  add_input(walk.nest, pool, walk.space, x);
  walk.nest.with(out, walk.space.kept(out));
  const bool masked = !always_inside(pool);
  if (!masked) count_whole_windows(pool, kind, divisor);
  add_parameters(walk.nest, pool, x, walk.inner, divisor);
  walk.nest.run(f_average.get(key_of(pool, static_cast<int64_t>(kind) * 2 + masked), walk.compute,
                              [&] { return average_program(pool, kind, masked); }));
}

void average_pool_backward(const Pool& pool, Average kind, int64_t divisor, const at::Tensor& grad,
                           const at::Tensor& out) {
  if (out.numel() == 0) return;
  WindowWalk walk(pool, grad, out, backward_inner(pool));
  walk.nest.with(grad, walk.space.plane(grad)).with(out, walk.space.kept(out));
  if (always_inside(pool)) count_whole_windows(pool, kind, divisor);
  add_parameters(walk.nest, pool, grad, walk.inner, divisor);
  walk.nest.run(f_average_backward.get(key_of(pool, static_cast<int64_t>(kind)), walk.compute,
                                       [&] { return average_backward_program(pool, kind); }));
}

}  // namespace torch_npu
