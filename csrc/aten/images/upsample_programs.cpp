#include "csrc/aten/images/upsample.h"

#include <ATen/ops/empty.h>

namespace torch_npu {
namespace {

// Lines for one dimension {d}, the {k}-th of the index space. They define positions %at{d}_0 .. and weights %w{d}_0 ..;
// %r{d} is the position in the input that the output position falls on. $f is the type of positions: nearest
// neighbours are found in single precision whatever the data.
const char* const kNearest = R"(
  %o{d} = index {k}
  %of{d} = cast %o{d} : f32
  %scale{d} = param scale{d} : f32
  %r{d} = mul %of{d}, %scale{d}
)";
const char* const kNearestExact = R"(
  %o{d} = index {k}
  %o1{d} = cast %o{d} : f64
  %half{d} = const 0.5 : f64
  %o2{d} = add %o1{d}, %half{d}
  %scale{d} = param scale{d} : f64
  %rd{d} = mul %o2{d}, %scale{d}
  %r{d} = cast %rd{d} : f32
)";
const char* const kNearestEnd = R"(
  %fl{d} = floor %r{d}
  %ii{d} = cast %fl{d} : i64
  %last{d} = param last{d} : i64
  %at{d}_0 = min %ii{d}, %last{d}
)";

const char* const kAligned = R"(
  %o{d} = index {k}
  %of{d} = cast %o{d} : $t
  %scale{d} = param scale{d} : $t
  %r{d} = mul %of{d}, %scale{d}
)";
const char* const kCentred = R"(
  %o{d} = index {k}
  %of{d} = cast %o{d} : $t
  %half{d} = const 0.5 : $t
  %oh{d} = add %of{d}, %half{d}
  %scale{d} = param scale{d} : $t
  %rs{d} = mul %oh{d}, %scale{d}
  %r{d} = sub %rs{d}, %half{d}
)";
const char* const kLinear = R"(
  %rz{d} = const 0 : $t
  %ro{d} = const 1 : $t
  %rp{d} = max %r{d}, %rz{d}
  %ti{d} = cast %rp{d} : i64
  %last{d} = param last{d} : i64
  %at{d}_0 = min %ti{d}, %last{d}
  %one{d} = const 1 : i64
  %nx{d} = add %at{d}_0, %one{d}
  %at{d}_1 = min %nx{d}, %last{d}
  %fi{d} = cast %at{d}_0 : $t
  %l1{d} = sub %rp{d}, %fi{d}
  %l2{d} = max %l1{d}, %rz{d}
  %exact{d} = min %l2{d}, %ro{d}
  %w{d}_1 = add %exact{d}, %rz{d}
  %w{d}_0 = sub %ro{d}, %exact{d}
)";
// Cubic convolution with A = -0.75; positions outside are clamped.
const char* const kCubic = R"(
  %fl{d} = floor %r{d}
  %ii{d} = cast %fl{d} : i64
  %t{d} = sub %r{d}, %fl{d}
  %last{d} = param last{d} : i64
  %zero{d} = const 0 : i64
  %c1{d} = const 1 : i64
  %c2{d} = const 2 : i64
  %pm{d} = sub %ii{d}, %c1{d}
  %pp{d} = add %ii{d}, %c1{d}
  %pq{d} = add %ii{d}, %c2{d}
  %qa{d} = max %pm{d}, %zero{d}
  %at{d}_0 = min %qa{d}, %last{d}
  %qb{d} = max %ii{d}, %zero{d}
  %at{d}_1 = min %qb{d}, %last{d}
  %qc{d} = max %pp{d}, %zero{d}
  %at{d}_2 = min %qc{d}, %last{d}
  %qd{d} = max %pq{d}, %zero{d}
  %at{d}_3 = min %qd{d}, %last{d}
  %A{d} = const -0.75 : $t
  %f1{d} = const 1 : $t
  %A2{d} = const 1.25 : $t
  %A3{d} = const 2.25 : $t
  %A5{d} = const -3.75 : $t
  %A8{d} = const -6 : $t
  %A4{d} = const -3 : $t
  %x0{d} = add %t{d}, %f1{d}
  %ma{d} = mul %A{d}, %x0{d}
  %mb{d} = sub %ma{d}, %A5{d}
  %mc{d} = mul %mb{d}, %x0{d}
  %md{d} = add %mc{d}, %A8{d}
  %me{d} = mul %md{d}, %x0{d}
  %w{d}_0 = sub %me{d}, %A4{d}
  %na{d} = mul %A2{d}, %t{d}
  %nb{d} = sub %na{d}, %A3{d}
  %nc{d} = mul %nb{d}, %t{d}
  %nd{d} = mul %nc{d}, %t{d}
  %w{d}_1 = add %nd{d}, %f1{d}
  %u{d} = sub %f1{d}, %t{d}
  %va{d} = mul %A2{d}, %u{d}
  %vb{d} = sub %va{d}, %A3{d}
  %vc{d} = mul %vb{d}, %u{d}
  %vd{d} = mul %vc{d}, %u{d}
  %w{d}_2 = add %vd{d}, %f1{d}
  %y0{d} = add %u{d}, %f1{d}
  %za{d} = mul %A{d}, %y0{d}
  %zb{d} = sub %za{d}, %A5{d}
  %zc{d} = mul %zb{d}, %y0{d}
  %zd{d} = add %zc{d}, %A8{d}
  %ze{d} = mul %zd{d}, %y0{d}
  %w{d}_3 = sub %ze{d}, %A4{d}
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
  lines += "  %step{d} = param step{d} : i64\n";
  for (int t = 0; t < taps(kind); ++t) {
    lines += replace_all("  %off{d}_T = mul %at{d}_T, %step{d}\n", "T", std::to_string(t));
  }
  std::string out;
  for (int64_t d = 0; d < n; ++d) {
    out += replace_all(replace_all(lines, "{d}", std::to_string(d)), "{k}", std::to_string(lead + d));
  }
  return out;
}

std::string header(const char* operands, int64_t n) {
  std::string names;
  for (int64_t d = 0; d < n; ++d) {
    names += replace_all(d ? ", scale{d}, last{d}, step{d}" : "scale{d}, last{d}, step{d}", "{d}", std::to_string(d));
  }
  return std::string("program upsample(") + operands + "; " + names + ")\neach:\n";
}

// Calls corner(name, offset value, weight value or empty) for every combination of positions.
template <class Corner>
void each_corner(Interpolation kind, int64_t n, std::string& text, Corner corner) {
  const int count = taps(kind);
  int64_t total = 1;
  for (int64_t d = 0; d < n; ++d) total *= count;
  for (int64_t c = 0; c < total; ++c) {
    const std::string id = std::to_string(c);
    std::string offset, weight;
    int64_t rest = c, divisor = total;
    for (int64_t d = 0; d < n; ++d) {
      divisor /= count;
      const std::string tap = std::to_string(d) + "_" + std::to_string(rest / divisor);
      rest %= divisor;
      if (d == 0) {
        offset = "%off" + tap;
        weight = "%w" + tap;
      } else {
        const std::string at = id + "_" + std::to_string(d);
        text += "  %co" + at + " = add " + offset + ", %off" + tap + "\n";
        offset = "%co" + at;
        if (count > 1) {
          text += "  %cw" + at + " = mul " + weight + ", %w" + tap + "\n";
          weight = "%cw" + at;
        }
      }
    }
    corner(id, offset, count > 1 ? weight : std::string());
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
    std::string text = header("out, x", along.count()) + along.lines(), sum;
    each_corner(along.kind, along.count(), text,
                [&](const std::string& id, const std::string& offset, const std::string& weight) {
                  text += "  %x" + id + "v = load_at x, " + offset + " : $t\n";
                  if (weight.empty()) {
                    sum = "%x" + id + "v";
                    return;
                  }
                  text += "  %p" + id + "v = mul %x" + id + "v, " + weight + "\n";
                  if (!sum.empty()) text += "  %s" + id + "v = add " + sum + ", %p" + id + "v\n";
                  sum = (sum.empty() ? "%p" : "%s") + id + "v";
                });
    return text + "  store out, " + sum + "\n";
  }));
}

void add(const char* label, const Along& along, const at::Tensor& grad, const at::Tensor& sum) {
  const npu_dtype compute = compute_dtype(numeric_dtype(grad.scalar_type(), label));
  Nest nest(NPU_SCATTER, label, grad.sizes());
  along.fill(nest, grad, sum);
  nest.run(f_backward.get(along.key(), compute, [&] {
    std::string text = header("grad, sum", along.count()) + along.lines() + "  %g = load grad : $t\n";
    each_corner(along.kind, along.count(), text,
                [&](const std::string& id, const std::string& offset, const std::string& weight) {
                  std::string value = "%g";
                  if (!weight.empty()) {
                    value = "%p" + id + "v";
                    text += "  " + value + " = mul %g, " + weight + "\n";
                  }
                  text += "  store_at sum, " + value + ", " + offset + ", add\n";
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
