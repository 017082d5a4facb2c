#include "support/legalise/rules/products/conv_parts.h"

#include <algorithm>
#include <numeric>

namespace npu::legalise {
namespace {

// Along one spatial dimension: results, each of which is a sum of terms. Where the first lies, and how far a step
// moves, in positions of that dimension of each operand.
struct Span {
  struct Steps {
    int64_t first = 0, result = 0, term = 0;
  };
  int64_t results = 1, terms = 0;
  Steps a, b;
  int64_t first_result = 0, result_step = 1;
};

// One spatial dimension.
struct Line {
  int64_t in, out, kernel, stride, padding, dilation;
  // The input position of an output and a kernel position; outside [0, in) is padding.
  int64_t position(int64_t o, int64_t tap) const { return o * stride - padding + tap * dilation; }
  bool inside(int64_t position) const { return position >= 0 && position < in; }
};

// The numbers below `count` for which `holds`, which are neighbours.
template <class Holds>
std::pair<int64_t, int64_t> run_of(int64_t count, const Holds& holds) {
  int64_t first = 0;
  while (first < count && !holds(first)) ++first;
  int64_t end = first;
  while (end < count && holds(end)) ++end;
  return {first, end - first};
}

// Appends, or lets the last span have one more result.
void put(std::vector<Span>& spans, const Span& span, bool goes_on) {
  if (goes_on)
    ++spans.back().results;
  else
    spans.push_back(span);
}

std::vector<Span> forward(const Line& line) {
  std::vector<Span> spans;
  for (int64_t o = 0; o < line.out; ++o) {
    const auto [tap, taps] = run_of(line.kernel, [&](int64_t t) { return line.inside(line.position(o, t)); });
    const bool goes_on = !spans.empty() && spans.back().terms == taps && (!taps || spans.back().a.first == tap);
    put(spans, {1, taps, {tap, 0, 1}, {line.position(o, tap), line.stride, line.dilation}, o, 1}, goes_on);
  }
  return spans;
}

// Input positions that are `stride` apart meet the same kernel positions, at neighbouring output positions.
std::vector<Span> grad_input(const Line& line) {
  std::vector<Span> spans;
  const int64_t step = line.stride / std::gcd(line.stride, line.dilation);
  for (int64_t phase = 0; phase < std::min(line.stride, line.in); ++phase) {
    const size_t before = spans.size();
    for (int64_t i = phase; i < line.in; i += line.stride) {
      const auto output = [&](int64_t tap) { return i + line.padding - tap * line.dilation; };  // times stride
      int64_t tap = 0, taps = 0;
      for (int64_t t = 0; t < line.kernel; ++t)
        if (output(t) >= 0 && output(t) % line.stride == 0 && output(t) / line.stride < line.out)
          tap = taps++ ? tap : t;
      const bool goes_on =
          spans.size() > before && spans.back().terms == taps && (!taps || spans.back().a.first == tap);
      const Span::Steps b = {output(tap) / line.stride, 1, -step * line.dilation / line.stride};
      put(spans, {1, taps, {tap, 0, step}, b, i, line.stride}, goes_on);
    }
  }
  return spans;
}

std::vector<Span> grad_weight(const Line& line) {
  std::vector<Span> spans;
  for (int64_t tap = 0; tap < line.kernel; ++tap) {
    const auto [o, terms] = run_of(line.out, [&](int64_t o) { return line.inside(line.position(o, tap)); });
    const bool goes_on = !spans.empty() && spans.back().terms == terms && (!terms || spans.back().a.first == o);
    put(spans, {1, terms, {o, 0, 1}, {line.position(o, tap), line.dilation, line.stride}, tap, 1}, goes_on);
  }
  return spans;
}

// The output positions that meet the same kernel positions: for each of those a sum over them.
std::vector<Span> grad_weight_terms(const Line& line) {
  std::vector<Span> spans;
  for (const Span& span : forward(line)) {
    const int64_t o = span.first_result, tap = span.a.first;
    if (!span.terms) continue;
    spans.push_back({span.terms, span.results, {o, 0, 1}, {line.position(o, tap), line.dilation, line.stride}, tap, 1});
  }
  return spans;
}

Line line_of(const npu_conv& conv, int d) {
  return {conv.in_size[d], conv.out_size[d], conv.kernel[d], conv.stride[d], conv.padding[d], conv.dilation[d]};
}

std::vector<Span> spans_of(const npu_conv& conv, int d) {
  const Line line = line_of(conv, d);
  return conv.mode == NPU_CONV_FORWARD      ? forward(line)
         : conv.mode == NPU_CONV_GRAD_INPUT ? grad_input(line)
                                            : grad_weight(line);
}

// Batch and channels, which all parts have.
Contraction channels_of(const Draft& draft) {
  const npu_conv& conv = draft.command.u.conv;
  const bool weight_grad = conv.mode == NPU_CONV_GRAD_WEIGHT;
  Contraction c;
  c.a = draft.operands[weight_grad ? 0 : 1];
  c.b = draft.operands[weight_grad ? 1 : 0];
  c.result = draft.operands[2];
  c.acc = conv.acc_dtype;
  c.flags = conv.flags;
  const int64_t *a = c.a.form.stride, *b = c.b.form.stride, *r = c.result.form.stride;
  const int64_t ins = conv.in_channels / conv.groups, outs = conv.out_channels / conv.groups;
  if (weight_grad) {
    c.kept = {{conv.groups, outs * a[1], ins * b[1], outs * r[0]}, {outs, a[1], 0, r[0]}, {ins, 0, b[1], r[1]}};
    c.summed = {{conv.batch, a[0], b[0], 0}};
  } else if (conv.mode == NPU_CONV_FORWARD) {
    c.kept = {{conv.groups, outs * a[0], ins * b[1], outs * r[1]}, {outs, a[0], 0, r[1]}, {conv.batch, 0, b[0], r[0]}};
    c.summed = {{ins, a[1], b[1], 0}};
  } else {
    c.kept = {{conv.groups, outs * a[0], outs * b[1], ins * r[1]}, {ins, a[1], 0, r[1]}, {conv.batch, 0, b[0], r[0]}};
    c.summed = {{outs, a[0], b[1], 0}};
  }
  return c;
}

// Where axes of spatial dimensions begin in a contraction: behind groups and two others, and behind one.
constexpr std::ptrdiff_t kKept = 3, kSummed = 1;

// Each contraction once for each span of dimension d. Those behind d were put before.
std::vector<Contraction> along(const std::vector<Contraction>& before, const std::vector<Span>& spans, int d) {
  std::vector<Contraction> out;
  for (const Contraction& one : before)
    for (const Span& span : spans) {
      const int64_t a = one.a.form.stride[2 + d], b = one.b.form.stride[2 + d], r = one.result.form.stride[2 + d];
      Contraction c = one;
      c.kept.insert(c.kept.begin() + kKept, {span.results, span.a.result * a, span.b.result * b, span.result_step * r});
      c.summed.insert(c.summed.begin() + kSummed, {span.terms, span.a.term * a, span.b.term * b, 0});
      if (span.terms) {
        c.a = c.a.moved(span.a.first * a);
        c.b = c.b.moved(span.b.first * b);
      }
      c.result = c.result.moved(span.first_result * r);
      out.push_back(std::move(c));
    }
  return out;
}

bool share_first(std::vector<Contraction>& parts, const npu_conv& conv, const Share& share) {
  for (Contraction& c : parts) {
    if (points(c.kept) == 0 || points(c.summed) == 0) continue;
    const int64_t extent = conv.mode == NPU_CONV_GRAD_WEIGHT ? conv.out_size[0] : conv.kernel[0];
    c.summed.insert(c.summed.begin(), {extent, c.a.form.stride[2], 0, 0});
    if (!share(c)) return false;
    c.a.form.stride[2] = c.summed.front().a;
    c.summed.erase(c.summed.begin());
  }
  return true;
}

constexpr size_t kMostParts = 256;  // a convolution with three kernel positions along each of three dimensions has 27

}  // namespace

std::vector<Contraction> conv_parts(const Draft& conv, const Share& share) {
  const npu_conv& form = conv.command.u.conv;
  std::vector<Contraction> parts = {channels_of(conv)};
  for (int d = static_cast<int>(form.spatial_rank) - 1; d >= 0; --d) {
    const std::vector<Span> spans = spans_of(form, d);
    if (parts.size() * spans.size() > kMostParts) return {};
    if (share && d == 0 && spans.size() > 1 && !share_first(parts, form, share)) return {};
    parts = along(parts, spans, d);
  }
  return parts;
}

std::optional<std::vector<Contraction>> conv_terms(const Draft& conv) {
  const npu_conv& form = conv.command.u.conv;
  std::vector<Contraction> parts = {channels_of(conv)};
  for (int d = static_cast<int>(form.spatial_rank) - 1; d >= 0; --d) {
    const std::vector<Span> spans = grad_weight_terms(line_of(form, d));
    if (parts.size() * spans.size() > kMostParts) return std::nullopt;
    parts = along(parts, spans, d);
  }
  std::erase_if(parts, [](const Contraction& part) { return !points(part.kept) || !points(part.summed); });
  return parts;
}

}  // namespace npu::legalise
