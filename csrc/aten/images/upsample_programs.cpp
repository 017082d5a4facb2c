#include "csrc/aten/images/upsample.h"

#include <ATen/ops/empty.h>

namespace torch_npu {
namespace {

// Lines for one dimension {d}, the {k}-th of the index space. They define positions %at{d}_0 .. and weights %w{d}_0 ..;
// %r is the position in the input that the output position falls on: for nearest neighbours in single precision
// whatever the data.
const char* const kNearest = "  %r = f32(index({k})) * scale{d}\n";
const char* const kNearestExact = "  %r = f32((f64(index({k})) + 0.5) * scale{d})\n";
const char* const kNearestEnd = "  %at{d}_0 = min(i64(floor(%r)), last{d})\n";

const char* const kAligned = "  %r = number(index({k})) * scale{d}\n";
const char* const kCentred = "  %r = (number(index({k})) + 0.5) * scale{d} - 0.5\n";
const char* const kLinear = R"(
  %inside = max(%r, 0)
  %at{d}_0 = min(i64(%inside), last{d})
  %at{d}_1 = min(%at{d}_0 + 1, last{d})
  %exact = min(max(%inside - number(%at{d}_0), 0), 1)
  %w{d}_1 = %exact + 0
  %w{d}_0 = 1 - %exact
)";
// Cubic convolution with A = -0.75; positions outside are clamped.
const char* const kCubic = R"(
  %floor = floor(%r)
  %i = i64(%floor)
  %at{d}_0 = min(max(%i - 1, 0), last{d})
  %at{d}_1 = min(max(%i, 0), last{d})
  %at{d}_2 = min(max(%i + 1, 0), last{d})
  %at{d}_3 = min(max(%i + 2, 0), last{d})
  %t = %r - %floor
  %x = %t + 1
  %w{d}_0 = ((-0.75 * %x - -3.75) * %x + -6) * %x - -3
  %w{d}_1 = (1.25 * %t - 2.25) * %t * %t + 1
  %u = 1 - %t
  %w{d}_2 = (1.25 * %u - 2.25) * %u * %u + 1
  %x = %u + 1
  %w{d}_3 = ((-0.75 * %x - -3.75) * %x + -6) * %x - -3
)";

int taps(Interpolation kind) {
  return kind == Interpolation::kLinear ? 2 : kind == Interpolation::kCubic ? 4 : 1;
}

std::string position_lines(Interpolation kind, bool align, int64_t n, int64_t lead) {
  std::string lines;
  switch (kind) {
    case Interpolation::kNearest:
      lines = std::string(kNearest) + kNearestEnd;
      break;
    case Interpolation::kNearestExact:
      lines = std::string(kNearestExact) + kNearestEnd;
      break;
    case Interpolation::kLinear:
      lines = std::string(align ? kAligned : kCentred) + kLinear;
      break;
    case Interpolation::kCubic:
      lines = std::string(align ? kAligned : kCentred) + kCubic;
      break;
  }
  std::string out;
  for (int64_t d = 0; d < n; ++d) {
    out += replace_all(replace_all(lines, "{d}", std::to_string(d)), "{k}", std::to_string(lead + d));
  }
  return out;
}

std::string header(Interpolation kind, const char* operands, int64_t n) {
  const char* type = kind == Interpolation::kNearest ? ": f32" : kind == Interpolation::kNearestExact ? ": f64" : "";
  return std::string("formula upsample(") + operands + "; " +
         per_dimension(n, std::string("scale{d}") + type + ", last{d}: i64, step{d}: i64", ", ") + ")\neach:\n";
}

// Calls corner(offset, weight or empty), both formulas, for every combination of positions.
template <class Corner>
void each_corner(Interpolation kind, int64_t n, Corner corner) {
  const int count = taps(kind);
  int64_t total = 1;
  for (int64_t d = 0; d < n; ++d) total *= count;
  for (int64_t c = 0; c < total; ++c) {
    std::string offset, weight;
    int64_t rest = c, divisor = total;
    for (int64_t d = 0; d < n; ++d) {
      divisor /= count;
      const std::string id = std::to_string(d), tap = id + "_" + std::to_string(rest / divisor);
      rest %= divisor;
      offset += (d ? " + %at" : "%at") + tap + " * step" + id;
      weight += (d ? " * %w" : "%w") + tap;
    }
    corner(offset, count > 1 ? weight : std::string());
  }
}

ProgramFamily f_forward, f_backward;

// Dimensions first, first + 1, ... of the tensors, one per scale.
struct Along {
  Interpolation kind;
  bool align;
  int64_t first;
  at::ArrayRef<double> scales;

  int64_t count() const { return static_cast<int64_t>(scales.size()); }
  int64_t key() const { return ((static_cast<int64_t>(kind) * 2 + align) * 4 + count()) * 8 + first; }
  std::string lines() const { return position_lines(kind, align, count(), first); }

  void fill(Nest& nest, const at::Tensor& wide, const at::Tensor& inner) const {
    at::DimVector plane(inner.strides());
    std::fill_n(plane.begin() + first, count(), 0);
    nest.with(wide).with(inner, plane);
    for (int64_t d = 0; d < count(); ++d) {
      nest.number(scales[d]).integer(inner.size(first + d) - 1).integer(inner.stride(first + d));
    }
  }
};

void read(const char* label, const Along& along, const at::Tensor& x, const at::Tensor& out) {
  const npu_dtype compute = compute_dtype(numeric_dtype(x.scalar_type(), label));
  Nest nest(NPU_MAP, label, out.sizes());
  along.fill(nest, out, x);
  nest.run(f_forward.get(along.key(), compute, [&] {
    std::string sum;
    each_corner(along.kind, along.count(), [&](const std::string& offset, const std::string& weight) {
      sum +=
          (sum.empty() ? "" : " + ") + ("load_at(x, " + offset + ")") + (weight.empty() ? "" : " * (" + weight + ")");
    });
    return header(along.kind, "out, x", along.count()) + along.lines() + "  out = " + sum + "\n";
  }));
}

void add(const char* label, const Along& along, const at::Tensor& grad, const at::Tensor& sum) {
  const npu_dtype compute = compute_dtype(numeric_dtype(grad.scalar_type(), label));
  Nest nest(NPU_SCATTER, label, grad.sizes());
  along.fill(nest, grad, sum);
  nest.run(f_backward.get(along.key(), compute, [&] {
    std::string text = header(along.kind, "grad, sum", along.count()) + along.lines();
    each_corner(along.kind, along.count(), [&](const std::string& offset, const std::string& weight) {
      text += "  store_at(sum, grad" + (weight.empty() ? "" : " * (" + weight + ")") + ", " + offset + ", add)\n";
    });
    return text;
  }));
}

// What lies between two dimensions: `from` with the size that `to` has along `d`, 16-bit numbers in single precision.
at::Tensor between(const at::Tensor& from, const at::Tensor& to, int64_t d, bool zero) {
  at::DimVector sizes(from.sizes());
  sizes[d] = to.size(d);
  const auto type = at::isReducedFloatingType(from.scalar_type()) ? at::kFloat : from.scalar_type();
  const at::Tensor made = at::empty(sizes, from.options().dtype(type), from.suggest_memory_format());
  return zero ? made.zero_() : made;
}

}  // namespace

// One dimension after the other, the last first, where there are several taps: 2 and 2 reads instead of 4, and those of
// all dimensions but the last are whole rows. It is also the order in which PyTorch adds up.
void interpolate(const char* label, Interpolation kind, bool align, const at::Tensor& x, const at::Tensor& out,
                 at::ArrayRef<double> scales) {
  if (out.numel() == 0) return;
  const int64_t n = static_cast<int64_t>(scales.size()), lead = out.dim() - n;
  if (taps(kind) == 1) return read(label, {kind, align, lead, scales}, x, out);
  at::Tensor from = x;
  for (int64_t d = n - 1; d >= 0; --d) {
    const at::Tensor to = d == 0 ? out : between(from, out, lead + d, false);
    read(label, {kind, align, lead + d, scales.slice(d, 1)}, from, to);
    from = to;
  }
}

void interpolate_backward(const char* label, Interpolation kind, bool align, const at::Tensor& grad,
                          const at::Tensor& sum, at::ArrayRef<double> scales) {
  if (grad.numel() == 0) return;
  const int64_t n = static_cast<int64_t>(scales.size()), lead = grad.dim() - n;
  if (taps(kind) == 1) return add(label, {kind, align, lead, scales}, grad, sum);
  at::Tensor from = grad;
  for (int64_t d = 0; d < n; ++d) {
    const at::Tensor to = d == n - 1 ? sum : between(from, sum, lead + d, true);
    add(label, {kind, align, lead + d, scales.slice(d, 1)}, from, to);
    from = to;
  }
}

}  // namespace torch_npu
