#include <ATen/ops/empty.h>

#include <algorithm>
#include <bit>

#include "csrc/aten/pool.h"

namespace torch_npu {
namespace {

// Every program has these parameters for each dimension; %-names below use {d}.
constexpr int kPerDimension = 8;
const char* const kParameters = "stride{d}, pad{d}, dilation{d}, kernel{d}, in{d}, out{d}, step{d}, bits{d}";

std::string header(const std::string& operands, int64_t n) {
  std::string names;
  for (int64_t d = 0; d < n; ++d) {
    names += replace_all(kParameters, "{d}", std::to_string(d)) + ", ";
  }
  return "program pool(" + operands + "; " + names + "divisor)\n";
}

// {k}: the kept dimension of {d}; {w}: its inner dimension.
std::string per_space(int64_t n, const std::string& lines) {
  std::string out;
  for (int64_t d = 0; d < n; ++d) {
    std::string text = replace_all(lines, "{d}", std::to_string(d));
    text = replace_all(text, "{k}", std::to_string(2 + d));
    out += replace_all(text, "{w}", std::to_string(2 + n + d));
  }
  return out;
}

const char* const kConstants = R"(
  %zero = const 0 : i64
  %one = const 1 : i64
)";

// Parameters as values, once per segment.
const char* const kLoadParameters = R"(
  %stride{d} = param stride{d} : i64
  %pad{d} = param pad{d} : i64
  %dilation{d} = param dilation{d} : i64
  %kernel{d} = param kernel{d} : i64
  %in{d} = param in{d} : i64
  %out{d} = param out{d} : i64
  %step{d} = param step{d} : i64
  %bits{d} = param bits{d} : i64
)";

// %i{d}: the input position of this output and window position; %v{d}: whether it exists.
const char* const kPlace = R"(
  %start{d} = mul %o{d}, %stride{d}
  %reach{d} = mul %w{d}, %dilation{d}
  %padded{d} = add %start{d}, %reach{d}
  %i{d} = sub %padded{d}, %pad{d}
)";
const char* const kInside = R"(
  %low{d} = ge %i{d}, %zero
  %high{d} = lt %i{d}, %in{d}
  %v{d} = and %low{d}, %high{d}
)";
const char* const kPlaceAdaptive = R"(
  %p{d} = mul %o{d}, %in{d}
  %start{d} = div %p{d}, %out{d}
  %i{d} = add %start{d}, %w{d}
)";
const char* const kInsideAdaptive = R"(
  %p1{d} = add %p{d}, %in{d}
  %p2{d} = add %p1{d}, %out{d}
  %p3{d} = sub %p2{d}, %one
  %end{d} = div %p3{d}, %out{d}
  %v{d} = lt %i{d}, %end{d}
)";

// %o{d}: a window that may contain this input position; %v{d}: whether it does.
const char* const kBackward = R"(
  %i{d} = index {k}
  %w{d} = index {w}
  %padded{d} = add %i{d}, %pad{d}
  %last{d} = div %padded{d}, %stride{d}
  %o{d} = sub %last{d}, %w{d}
  %start{d} = mul %o{d}, %stride{d}
  %off{d} = sub %padded{d}, %start{d}
  %extent1{d} = sub %kernel{d}, %one
  %extent2{d} = mul %extent1{d}, %dilation{d}
  %inside{d} = le %off{d}, %extent2{d}
  %low{d} = ge %o{d}, %zero
  %high{d} = lt %o{d}, %out{d}
  %v1{d} = and %low{d}, %high{d}
  %v{d} = and %v1{d}, %inside{d}
)";
const char* const kBackwardAdaptive = R"(
  %i{d} = index {k}
  %w{d} = index {w}
  %p{d} = mul %i{d}, %out{d}
  %first{d} = div %p{d}, %in{d}
  %p1{d} = add %p{d}, %out{d}
  %p2{d} = add %p1{d}, %in{d}
  %p3{d} = sub %p2{d}, %one
  %end{d} = div %p3{d}, %in{d}
  %o{d} = add %first{d}, %w{d}
  %v{d} = lt %o{d}, %end{d}
)";

// %len{d}: how many elements the average over window %r{d} counts.
const char* const kLengthWithPad = R"(
  %ls{d} = mul %r{d}, %stride{d}
  %la{d} = sub %ls{d}, %pad{d}
  %lb{d} = add %la{d}, %kernel{d}
  %lm{d} = add %in{d}, %pad{d}
  %lc{d} = min %lb{d}, %lm{d}
  %len{d} = sub %lc{d}, %la{d}
)";
const char* const kLengthInside = R"(
  %ls{d} = mul %r{d}, %stride{d}
  %la{d} = sub %ls{d}, %pad{d}
  %lb{d} = add %la{d}, %kernel{d}
  %lc{d} = min %lb{d}, %in{d}
  %ld{d} = max %la{d}, %zero
  %len{d} = sub %lc{d}, %ld{d}
)";
const char* const kLengthAdaptive = R"(
  %lp{d} = mul %r{d}, %in{d}
  %la{d} = div %lp{d}, %out{d}
  %lq{d} = add %lp{d}, %in{d}
  %lr{d} = add %lq{d}, %out{d}
  %lt{d} = sub %lr{d}, %one
  %lb{d} = div %lt{d}, %out{d}
  %len{d} = sub %lb{d}, %la{d}
)";

// `name` = item0 op item1 op ...
std::string chain(int64_t n, const std::string& op, const std::string& item, const std::string& name) {
  std::string lines, left = item + "0";
  for (int64_t d = 1; d < n; ++d) {
    const std::string next = d == n - 1 ? name : name + "_" + std::to_string(d);
    lines += "  " + next + " = " + op + " " + left + ", " + item + std::to_string(d) + "\n";
    left = next;
  }
  return n == 1 ? "  " + name + " = " + op + " " + item + "0, " +
                      (op == "and"   ? item + "0"
                       : op == "mul" ? "%one"
                                     : "%zero") +
                      "\n"
                : lines;
}

// %flat: the input position in its plane.
std::string flat_lines(int64_t n) {
  std::string lines, left = "%i0";
  for (int64_t d = 1; d < n; ++d) {
    const std::string e = std::to_string(d), next = d == n - 1 ? "%flat" : "%flat" + e;
    lines += "  " + next + " = fma " + left + ", %in" + e + ", %i" + e + "\n";
    left = next;
  }
  return n == 1 ? "  %flat = add %i0, %zero\n" : lines;
}

// %window: a window position as one number, in row-major order; dimension {d} has `bits{d}` bits of it.
std::string pack_lines(int64_t n) {
  std::string lines = n == 1 ? "  %window = add %w0, %zero\n" : "", left = "%w0";
  for (int64_t d = 1; d < n; ++d) {
    const std::string e = std::to_string(d), next = d == n - 1 ? "%window" : "%window" + e;
    lines +=
        "  %shifted" + e + " = shl " + left + ", %bits" + e + "\n  " + next + " = add %shifted" + e + ", %w" + e + "\n";
    left = next;
  }
  return lines;
}

// The %w{d} of %window.
std::string unpack_lines(int64_t n) {
  std::string lines, left = "%window";
  for (int64_t d = n - 1; d > 0; --d) {
    const std::string next = d == 1 ? "%w0" : "%rest{d}";
    lines += replace_all("  %size{d} = shl %one, %bits{d}\n  %all{d} = sub %size{d}, %one\n  %w{d} = and " + left +
                             ", %all{d}\n  " + next + " = shr " + left + ", %bits{d}\n",
                         "{d}", std::to_string(d));
    left = replace_all(next, "{d}", std::to_string(d));
  }
  return n == 1 ? "  %w0 = add %window, %zero\n" : lines;
}

// %at: the offset of position `item` by the parameters `step`.
std::string offset_lines(int64_t n, const std::string& item) {
  return per_space(n, "  %at{d} = mul " + item + "{d}, %step{d}\n") + chain(n, "add", "%at", "%at");
}

std::string length_lines(const Pool& pool, Average kind, const std::string& window) {
  const int64_t n = pool.rank();
  if (kind == Average::kDivisor) {
    return "  %length = param divisor : i64\n";
  }
  const char* lines = pool.adaptive ? kLengthAdaptive : kind == Average::kIncludePad ? kLengthWithPad : kLengthInside;
  return per_space(n, replace_all(lines, "%r{d}", window)) + chain(n, "mul", "%len", "%length");
}

// %m: whether the point exists; without `masked` it does.
std::string begin(const Pool& pool, bool forward, bool masked) {
  const int64_t n = pool.rank();
  std::string lines = pool.adaptive ? kBackwardAdaptive : kBackward;
  if (forward) {
    lines = "  %w{d} = index {w}\n";
    if (masked) lines += "  %o{d} = index {k}\n";
    if (masked) lines += pool.adaptive ? kPlaceAdaptive : kPlace;
    if (masked) lines += pool.adaptive ? kInsideAdaptive : kInside;
  }
  return std::string("each:\n") + kConstants + per_space(n, kLoadParameters) + per_space(n, lines) +
         (masked ? chain(n, "and", "%v", "%m") : "");
}

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
  static_assert(3 * kPerDimension + 1 <= NPU_MAX_PARAMS);
  for (int64_t d = 0; d < n; ++d) {
    if (pool.adaptive) {
      nest.integers({1, 0, 1, 1});
    } else {
      nest.integers({pool.stride[d], pool.padding[d], pool.dilation[d], pool.kernel[d]});
    }
    const int64_t bits = std::bit_width(static_cast<uint64_t>(inner[d] - 1));
    nest.integers({pool.in[d], pool.out[d], stepped.stride(stepped.dim() - n + d), bits});
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

std::string load_input(const Pool& pool, bool masked) {
  return pool.adaptive ? offset_lines(pool.rank(), "%i") + "  %x = load_at x, %at, mask %m : $t\n"
         : masked      ? "  %x = load x, mask %m : $t\n"
                       : "  %x = load x : $t\n";
}

int64_t key_of(const Pool& pool, int64_t variant) {
  return (variant * 2 + pool.adaptive) * 4 + pool.rank();
}

KernelFamily f_max, f_max_backward, f_average, f_average_backward;

npu_dtype pool_compute(const at::Tensor& tensor, const char* label) {
  const npu_dtype compute = compute_dtype(numeric_dtype(tensor.scalar_type(), label));
  if (compute == NPU_BOOL) throw Unsupported(label);
  return compute;
}

}  // namespace

std::string largest_lines(const std::string& place, npu_dtype compute, const char* mask) {
  const bool floats = compute == NPU_F32 || compute == NPU_F64;
  std::string lines = R"(
  %nan = isnan %x
  %minus_one = const -1 : i64
  %mirrored = sub %minus_one, $place
  %key = where %nan, %mirrored, $place
  %best = fold argmax %x, %key$mask
row:
  %value = get %best, 0
  %found = get %best, 1
  %is_nan = isnan %value
  %mirror = const -1 : i64
  %back = sub %mirror, %found
  %place = where %is_nan, %back, %found
)";
  if (!floats)
    lines = "  %best = fold argmax %x, $place$mask\nrow:\n  %value = get %best, 0\n  %place = get %best, 1\n";
  return replace_all(replace_all(lines, "$place", place), "$mask", mask);
}

void max_pool(const Pool& pool, const at::Tensor& x, const at::Tensor& out, const at::Tensor& indices) {
  const int64_t n = pool.rank();
  if (out.numel() == 0) return;
  const npu_dtype compute = pool_compute(x, pool.label);
  const at::DimVector inner = forward_inner(pool);
  const Space space = make_space(out, n, inner);
  Nest nest(NPU_REDUCE, pool.label, space.sizes, static_cast<int>(n));
  add_input(nest, pool, space, x);
  nest.with(out, space.kept(out)).with(indices, space.kept(indices));
  add_parameters(nest, pool, x, inner, 1);
  const bool masked = !always_inside(pool);
  // Where in the window the largest value is, is one number for many windows; where in the plane, only their results
  // ask.
  nest.run(f_max.get(key_of(pool, masked), compute, [&] {
    const std::string plane = kConstants + per_space(n, kLoadParameters) + "  %window = add %place, %zero\n" +
                              unpack_lines(n) + per_space(n, "  %o{d} = index {k}\n") +
                              per_space(n, pool.adaptive ? kPlaceAdaptive : kPlace) + flat_lines(n);
    return header("x, out, indices", n) + begin(pool, true, masked) + pack_lines(n) + load_input(pool, masked) +
           largest_lines("%window", compute, masked ? ", mask %m" : "") +
           replace_all(replace_all(plane, "%", "%row_"), "%row_place", "%place") + R"(
  %none = lt %place, %row_zero
  %at_last = where %none, %place, %row_flat
  store out, %value
  store indices, %at_last
)";
  }));
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
program max_pool_backward(grad, indices, sum; size)
each:
  %i = load indices : i64
  %n = param size : i64
  %at = check_index %i, %n, check
  %g = load grad : $t
  store_at sum, %g, %at, add
)");
  }));
  if (!dense) out.copy_(sum);
}

void average_pool(const Pool& pool, Average kind, int64_t divisor, const at::Tensor& x, const at::Tensor& out) {
  const int64_t n = pool.rank();
  if (out.numel() == 0) return;
  const npu_dtype compute = pool_compute(x, pool.label);
  const at::DimVector inner = forward_inner(pool);
  const Space space = make_space(out, n, inner);
  Nest nest(NPU_REDUCE, pool.label, space.sizes, static_cast<int>(n));
  add_input(nest, pool, space, x);
  nest.with(out, space.kept(out));
  add_parameters(nest, pool, x, inner, divisor);
  const bool masked = !always_inside(pool);
  nest.run(f_average.get(key_of(pool, static_cast<int64_t>(kind) * 2 + masked), compute, [&] {
    std::string length = kConstants + per_space(n, kLoadParameters) + per_space(n, "  %r{d} = index {k}\n") +
                         length_lines(pool, kind, "%r{d}");
    return header("x, out", n) + begin(pool, true, masked) + load_input(pool, masked) + "  %sum = fold sum %x" +
           (masked ? ", mask %m" : "") + "\nrow:\n" + replace_all(length, "%", "%row_") + R"(
  %by = cast %row_length : $t
  %mean = div %sum, %by
  store out, %mean
)";
  }));
}

void average_pool_backward(const Pool& pool, Average kind, int64_t divisor, const at::Tensor& grad,
                           const at::Tensor& out) {
  const int64_t n = pool.rank();
  if (out.numel() == 0) return;
  const npu_dtype compute = pool_compute(grad, pool.label);
  const at::DimVector inner = backward_inner(pool);
  const Space space = make_space(out, n, inner);
  Nest nest(NPU_REDUCE, pool.label, space.sizes, static_cast<int>(n));
  nest.with(grad, space.plane(grad)).with(out, space.kept(out));
  add_parameters(nest, pool, grad, inner, divisor);
  nest.run(f_average_backward.get(key_of(pool, static_cast<int64_t>(kind)), compute, [&] {
    return header("grad, out", n) + begin(pool, false, true) + offset_lines(n, "%o") +
           length_lines(pool, kind, "%o{d}") + R"(
  %g = load_at grad, %at, mask %m : $t
  %by = cast %length : $t
  %part = div %g, %by
  %sum = fold sum %part, mask %m
row:
  store out, %sum
)";
  }));
}

}  // namespace torch_npu
