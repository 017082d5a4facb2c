// npu::fusion_attention: attention with a window, a mask, padding, a prefix and a bias, over [batch, heads, length,
// features]. attention_core.cpp is its kernel. The composition works on blocks of queries, so its memory grows with the
// length too. fused_attention_call.cpp puts npu_fusion_attention's many arguments into these terms.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "csrc/aten/attention/attention.h"
#include "csrc/aten/dispatch/custom_op.h"
#include "csrc/aten/dispatch/optional.h"

namespace torch_npu::fused_attention_cpp {
namespace {

using at::Tensor;
using OptInts = std::optional<at::IntArrayRef>;
using Results = std::tuple<Tensor, Tensor, Tensor, Tensor>;  // out, logsumexp, max, sum

// Arguments of the op.
enum : int { kQuery, kKey, kValue, kBias, kHidden, kPadding, kPrefix, kScale, kDropout, kSeed, kOffset, kLow, kHigh };

// Everything but query, key and value.
struct Extras {
  Tensor bias, hidden, padding;
  OptInts prefix;
  double scale, dropout;
  int64_t seed, offset, low, high;

  attention::Options options() const {
    attention::Options out;
    out.scale = scale;
    out.bias = bias;
    out.hidden = hidden;
    out.padding = padding;
    out.window.low = std::max(low, -attention::Window::kFar);
    out.window.high = std::min(high, attention::Window::kFar);
    if (prefix) {
      out.prefix = prefix->vec();
      out.window.prefix = *std::max_element(prefix->begin(), prefix->end());
    }
    out.dropout = dropout;
    out.seed = static_cast<uint64_t>(seed);
    out.offset = static_cast<uint64_t>(offset);
    return out;
  }
};

void check(const Tensor& query, const Tensor& key, const Tensor& value, const OptTensor& bias, const OptTensor& hidden,
           const OptTensor& padding) {
  constexpr const char* op = "npu_fusion_attention";
  check_floating(op, "query", query);
  check_same_type(op, "key", key, "query", query);
  check_same_type(op, "value", value, "query", query);
  const bool fits = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && key.sym_size(0) == query.sym_size(0) &&
                    value.sym_size(0) == query.sym_size(0) && key.sym_size(1) == value.sym_size(1) &&
                    key.sym_size(2) == value.sym_size(2) && key.sym_size(3) == query.sym_size(3) &&
                    key.sym_size(1) != 0 && query.sym_size(1) % key.sym_size(1) == 0;
  TORCH_CHECK(fits, op,
              ": expected key [batch, heads, keys, features] of query's batch and features, with heads that divide "
              "query's, and value of key's first dimensions, got query ",
              query.sym_sizes(), ", key ", key.sym_sizes(), " and value ", value.sym_sizes());
  const Tensor extras[] = {given(bias), given(hidden), given(padding)};
  check_same_device(op, {&query, &key, &value, &extras[0], &extras[1], &extras[2]});
  const c10::SymInt scores[] = {query.sym_size(0), query.sym_size(1), query.sym_size(2), key.sym_size(2)};
  const char* names[] = {"pse", "atten_mask", "padding_mask"};
  for (int i = 0; i < 3; ++i) {
    if (!extras[i].defined()) continue;
    TORCH_CHECK_TYPE(i == 0 || at::isIntegralType(extras[i].scalar_type(), /*includeBool=*/true), op, ": expected ",
                     names[i], " of type Bool or Byte, true where a query must not look, got ", extras[i].scalar_type(),
                     "; what is added to the scores is pse");
    bool spreads = extras[i].dim() <= 4;
    for (int64_t d = 1; spreads && d <= extras[i].dim(); ++d) {
      spreads = extras[i].sym_size(-d) == 1 || extras[i].sym_size(-d) == scores[4 - d];
    }
    TORCH_CHECK(spreads, op, ": expected ", names[i], " that broadcasts to the scores [batch, heads, queries, keys] ",
                c10::SymIntArrayRef(scores, 4), ", got ", extras[i].sym_sizes());
  }
}

// The layout of the query, with the features of the value.
Tensor empty_out(const Tensor& query, const Tensor& value) {
  if (query.sym_size(3) == value.sym_size(3)) return at::empty_like(query);
  int order[] = {0, 1, 2, 3};
  const auto strides = query.sym_strides();
  std::stable_sort(order, order + 4, [&](int a, int b) { return strides[a] > strides[b]; });
  c10::SymDimVector sizes(query.sym_sizes()), out(4);
  sizes[3] = value.sym_size(3);
  c10::SymInt step = 1;
  for (int d = 3; d >= 0; --d) {
    out[order[d]] = step;
    step = step * sizes[order[d]];
  }
  return at::empty_strided_symint(sizes, out, query.options());
}

at::ScalarType wide_of(const Tensor& query) {
  return query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

Results meta(const Tensor& query, const Tensor& key, const Tensor& value, const OptTensor& bias,
             const OptTensor& hidden, const OptTensor& padding, OptInts, double, double, int64_t, int64_t, c10::SymInt,
             c10::SymInt) {
  check(query, key, value, bias, hidden, padding);
  const auto row = [&] {
    return at::empty_symint(query.sym_sizes().slice(0, 3), query.options().dtype(wide_of(query)));
  };
  return {empty_out(query, value), row(), row(), row()};
}

// -- the composition: blocks of queries --

constexpr int64_t kBlock = 256;

struct Blocks {
  Tensor query, key, value;  // in the wide type; key and value for every head of the query
  const Extras& extras;
  int64_t repeats;
  at::Generator generator;

  Blocks(const Tensor& q, const Tensor& k, const Tensor& v, const Extras& extras)
      : extras(extras), repeats(q.size(1) / k.size(1)) {
    const auto wide = wide_of(q);
    query = q.to(wide) * extras.scale;
    key = k.to(wide).repeat_interleave(repeats, 1);
    value = v.to(wide).repeat_interleave(repeats, 1);
    if (extras.dropout > 0) {
      generator = at::detail::createCPUGenerator(static_cast<uint64_t>(extras.seed + extras.offset));
    }
  }

  template <class Work>
  void each(Work work) const {
    for (int64_t row = 0; row < query.size(2); row += kBlock) work(row, std::min(kBlock, query.size(2) - row));
  }
  static Tensor rows_of(const Tensor& tensor, int64_t row, int64_t rows) {
    return tensor.dim() < 2 || tensor.size(-2) == 1 ? tensor : tensor.narrow(-2, row, rows);
  }

  Tensor scores(int64_t row, int64_t rows) const {
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    Tensor s = at::matmul(query.narrow(2, row, rows), key.transpose(2, 3));
    if (extras.bias.defined()) s = s + rows_of(extras.bias, row, rows);
    for (const Tensor* mask : {&extras.hidden, &extras.padding}) {
      if (mask->defined()) s = s.masked_fill(rows_of(*mask, row, rows).to(at::kBool), kNone);
    }
    const auto options = s.options().dtype(at::kLong);
    const Tensor j = at::arange(key.size(2), options), i = at::arange(row, row + rows, options).unsqueeze(1);
    const Tensor d = j - i;
    Tensor hidden = (d < extras.low).logical_or(d > extras.high);
    if (extras.prefix) {
      const Tensor prefix = at::tensor(*extras.prefix, at::kLong).to(s.device()).view({-1, 1, 1, 1});
      hidden = hidden.logical_and(j >= prefix);
    }
    return s.masked_fill(hidden, kNone);
  }

  // What each probability is multiplied with; the same in forward and backward.
  Tensor keep(const Tensor& like) const {
    const Tensor kept = at::empty(like.sizes(), at::kFloat);
    kept.bernoulli_(1 - extras.dropout, generator);
    return (kept * (extras.dropout < 1 ? 1 / (1 - extras.dropout) : 0)).to(like.options());
  }
};

Results composition_of(const Tensor& query, const Tensor& key, const Tensor& value, const Extras& extras) {
  const Blocks blocks(query, key, value, extras);
  const double lowest =
      wide_of(query) == at::kDouble ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest();
  std::vector<Tensor> outs, maxima, sums;
  blocks.each([&](int64_t row, int64_t rows) {
    const Tensor s = blocks.scores(row, rows);
    const Tensor max = s.detach().amax(-1, /*keepdim=*/true).clamp_min(lowest);
    const Tensor e = (s - max).exp(), sum = e.sum(-1, /*keepdim=*/true);
    Tensor p = e / sum.masked_fill(sum == 0, 1);
    if (extras.dropout > 0) p = p * blocks.keep(p);
    outs.push_back(at::matmul(p, blocks.value));
    maxima.push_back(max.squeeze(-1));
    sums.push_back(sum.squeeze(-1));
  });
  const Tensor max = at::cat(maxima, 2), sum = at::cat(sums, 2);
  const Tensor unseen = sum == 0, logsumexp = (max + sum.masked_fill(unseen, 1).log())
                                                  .masked_fill(unseen, std::numeric_limits<double>::infinity());
  return {at::cat(outs, 2).to(query.scalar_type()), logsumexp, max, sum.detach()};
}

using Grads = std::tuple<Tensor, Tensor, Tensor, Tensor>;

bool is_batched(const Tensor& tensor) {
  return tensor.key_set().has(c10::DispatchKey::FuncTorchBatched);
}

Tensor in_layout_of(const Tensor& like, const Tensor& result) {
  return is_batched(result) ? result.to(like.scalar_type()) : at::empty_like(like).copy_(result);
}

Grads backward_composition_of(const Tensor& grad_out, const Tensor& grad_logsumexp, const Tensor& query,
                              const Tensor& key, const Tensor& value, const Tensor& out, const Tensor& logsumexp,
                              const Extras& extras, bool of_bias) {
  const Blocks blocks(query, key, value, extras);
  const Tensor grad = grad_out.to(blocks.query.scalar_type());
  Tensor delta = (grad * out).sum(-1, /*keepdim=*/true);
  if (grad_logsumexp.defined()) delta = delta - grad_logsumexp.unsqueeze(-1);
  // No tensor is written in place: inside vmap what is added may have a dimension more.
  std::vector<Tensor> queries, biases;
  Tensor grad_key, grad_value;
  const auto add = [](Tensor& sum, const Tensor& part) { sum = sum.defined() ? sum + part : part; };
  const bool bias_has_rows = of_bias && extras.bias.dim() >= 2 && extras.bias.size(-2) != 1;
  blocks.each([&](int64_t row, int64_t rows) {
    const auto cut = [&](const Tensor& tensor) { return tensor.narrow(2, row, rows); };
    const Tensor p = (blocks.scores(row, rows) - cut(logsumexp).unsqueeze(-1)).exp();
    Tensor dp = at::matmul(cut(grad), blocks.value.transpose(2, 3)), used = p;
    if (extras.dropout > 0) {
      const Tensor keep = blocks.keep(p);
      dp = dp * keep;
      used = p * keep;
    }
    const Tensor ds = p * (dp - cut(delta));
    queries.push_back(at::matmul(ds, blocks.key) * extras.scale);
    add(grad_key, at::matmul(ds.transpose(2, 3), cut(blocks.query)));
    add(grad_value, at::matmul(used.transpose(2, 3), cut(grad)));
    if (of_bias) {
      const Tensor part = at::sum_to(ds, Blocks::rows_of(extras.bias, row, rows).sizes());
      if (bias_has_rows || biases.empty()) {
        biases.push_back(part);
      } else {
        add(biases[0], part);
      }
    }
  });
  const auto shared = [&](const Tensor& sum, const Tensor& like) {
    return in_layout_of(like, blocks.repeats == 1 ? sum : sum.unflatten(1, {-1, blocks.repeats}).sum(2));
  };
  return {in_layout_of(query, at::cat(queries, 2)), shared(grad_key, key), shared(grad_value, value),
          of_bias ? (bias_has_rows ? at::cat(biases, -2) : biases[0]).to(extras.bias.scalar_type())
                  : at::empty({0}, query.options())};
}

// -- kernels --

bool is_empty(const Tensor& query, const Tensor& key, const Tensor& value) {
  return query.numel() == 0 || key.numel() == 0 || value.numel() == 0;
}

Results nothing_seen(const Tensor& query, const Tensor& value) {
  const auto row = [&] { return at::zeros(query.sizes().slice(0, 3), query.options().dtype(wide_of(query))); };
  return {empty_out(query, value).zero_(), row(), row(), row()};
}

Results composition(const Tensor& query, const Tensor& key, const Tensor& value, const OptTensor& bias,
                    const OptTensor& hidden, const OptTensor& padding, OptInts prefix, double scale, double dropout,
                    int64_t seed, int64_t offset, int64_t low, int64_t high) {
  check(query, key, value, bias, hidden, padding);
  if (is_empty(query, key, value)) return nothing_seen(query, value);
  auto [out, logsumexp, max, sum] = composition_of(
      query, key, value, {given(bias), given(hidden), given(padding), prefix, scale, dropout, seed, offset, low, high});
  if (in_functorch() || is_batched(out)) return {out, logsumexp, max, sum};
  return {empty_out(query, value).copy_(out), logsumexp, max, sum};
}

Results native(const Tensor& query, const Tensor& key, const Tensor& value, const OptTensor& bias,
               const OptTensor& hidden, const OptTensor& padding, OptInts prefix, double scale, double dropout,
               int64_t seed, int64_t offset, int64_t low, int64_t high) {
  check(query, key, value, bias, hidden, padding);
  if (is_empty(query, key, value)) return nothing_seen(query, value);
  const Extras extras{given(bias), given(hidden), given(padding), prefix, scale, dropout, seed, offset, low, high};
  const auto result = attention::forward("npu::fusion_attention", query, key, value, extras.options());
  return {result.out, result.logsumexp, result.max, result.sum};
}

Grads backward_meta(const Tensor&, const OptTensor&, const Tensor& query, const Tensor& key, const Tensor& value,
                    const OptTensor& bias, const OptTensor&, const OptTensor&, OptInts, const Tensor&, const Tensor&,
                    double, double, int64_t, int64_t, c10::SymInt, c10::SymInt, bool of_bias) {
  return {at::empty_like(query), at::empty_like(key), at::empty_like(value),
          of_bias ? at::empty_symint(bias->sym_sizes(), bias->options()) : at::empty({0}, query.options())};
}

Grads backward_composition(const Tensor& grad, const OptTensor& grad_logsumexp, const Tensor& query, const Tensor& key,
                           const Tensor& value, const OptTensor& bias, const OptTensor& hidden,
                           const OptTensor& padding, OptInts prefix, const Tensor& out, const Tensor& logsumexp,
                           double scale, double dropout, int64_t seed, int64_t offset, int64_t low, int64_t high,
                           bool of_bias) {
  const Extras extras{given(bias), given(hidden), given(padding), prefix, scale, dropout, seed, offset, low, high};
  return backward_composition_of(grad, given(grad_logsumexp), query, key, value, out, logsumexp, extras, of_bias);
}

Grads backward_native(const Tensor& grad, const OptTensor& grad_logsumexp, const Tensor& query, const Tensor& key,
                      const Tensor& value, const OptTensor& bias, const OptTensor& hidden, const OptTensor& padding,
                      OptInts prefix, const Tensor& out, const Tensor& logsumexp, double scale, double dropout,
                      int64_t seed, int64_t offset, int64_t low, int64_t high, bool of_bias) {
  const Extras extras{given(bias), given(hidden), given(padding), prefix, scale, dropout, seed, offset, low, high};
  const auto grads = attention::backward("npu::fusion_attention_backward", grad, query, key, value, out, logsumexp,
                                         extras.options(), of_bias, given(grad_logsumexp));
  return {grads.query, grads.key, grads.value, of_bias ? grads.bias : at::empty({0}, query.options())};
}

// -- gradient --

void gradient(BackwardCall& call) {
  using Signature = Grads(const Tensor&, const OptTensor&, const Tensor&, const Tensor&, const Tensor&,
                          const OptTensor&, const OptTensor&, const OptTensor&, OptInts, const Tensor&, const Tensor&,
                          double, double, int64_t, int64_t, c10::SymInt, c10::SymInt, bool);
  static const auto op = npu_op<Signature>("npu::fusion_attention_backward");
  const Tensor &query = call.argument(kQuery), &key = call.argument(kKey), &value = call.argument(kValue),
               &bias = call.argument(kBias), &hidden = call.argument(kHidden), &padding = call.argument(kPadding);
  const auto prefix = call.value<std::optional<std::vector<int64_t>>>(kPrefix);
  const OptInts ints = prefix ? OptInts(*prefix) : OptInts();
  const double scale = call.value<double>(kScale), dropout = call.value<double>(kDropout);
  const auto low = call.value<c10::SymInt>(kLow), high = call.value<c10::SymInt>(kHigh);
  Tensor out = call.result(0), logsumexp = call.result(1);
  const Tensor grad = call.grad(0).defined() ? call.grad(0) : at::zeros_like(out);
  if (c10::GradMode::is_enabled()) {  // to be differentiated again, so these two must know where they come from
    TORCH_CHECK(dropout == 0, "npu_fusion_attention: expected keep_prob 1 for a second derivative, got ", 1 - dropout);
    const Extras extras{bias, hidden, padding, ints, scale, 0, 0, 0, low.expect_int(), high.expect_int()};
    std::tie(out, logsumexp, std::ignore, std::ignore) = composition_of(query, key, value, extras);
  }
  auto [q, k, v, b] =
      op.call(grad, call.grad(1), query, key, value, bias, hidden, padding, ints, out, logsumexp, scale, dropout,
              call.value<int64_t>(kSeed), call.value<int64_t>(kOffset), low, high, call.wants(kBias));
  call.give(kQuery, q);
  call.give(kKey, k);
  call.give(kValue, v);
  if (call.wants(kBias)) call.give(kBias, b);
}

TORCH_LIBRARY_FRAGMENT(npu, m) {
  const Places all = places(kQuery, kKey, kValue, kBias, kHidden, kPadding), out_and_logsumexp = places(0, 1);
  std::vector<GradientOf> of;
  for (const int argument : {kQuery, kKey, kValue, kBias}) of.push_back({argument, all, out_and_logsumexp});
  // Autocast as for scaled_dot_product_attention: in the lower precision.
  define<native, composition>(
      m,
      "fusion_attention(Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? hidden, Tensor? padding, "
      "int[]? prefix, float scale, float dropout, int seed, int offset, SymInt low, SymInt high) -> "
      "(Tensor, Tensor, Tensor, Tensor)",
      meta, {{gradient, of, /*results=*/out_and_logsumexp}, /*lower_precision=*/places(kQuery, kKey, kValue)});
  define<backward_native, backward_composition>(
      m,
      "fusion_attention_backward(Tensor grad, Tensor? grad_logsumexp, Tensor query, Tensor key, Tensor value, Tensor? "
      "bias, Tensor? hidden, "
      "Tensor? padding, int[]? prefix, Tensor out, Tensor logsumexp, float scale, float dropout, int seed, int offset, "
      "SymInt low, SymInt high, bool of_bias) -> (Tensor, Tensor, Tensor, Tensor)",
      backward_meta);
}

}  // namespace
}  // namespace torch_npu::fused_attention_cpp
