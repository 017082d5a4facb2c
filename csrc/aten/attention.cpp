// scaled_dot_product_attention without the matrix of scores: its commands work on tiles of whole rows of scores, as
// many queries and heads at a time as fit in a tile. Memory grows with the length of the sequences, not with its
// square.
//
// Forward, per tile:  MATMUL  tile = q * scale @ k^T (+ bias)
//                     REDUCE  tile = exp(tile - row maximum), with the maximum and the sum of each row
//                     MATMUL  out = tile @ v / sum
// Backward, per tile: MATMUL  p = exp(q * scale @ k^T (+ bias) - logsumexp)
//                     MATMUL  ds = p * (grad @ v^T - delta), where delta = rowsum(grad * out)
//                     MATMUL  grad_v += p^T @ grad,  grad_q = ds @ k * scale,  grad_k += ds^T @ (q * scale)
//
// Rows are whole, so no running maximum has to be corrected, which would cost another pass over the tile.
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

#include "csrc/aten/attention.h"
#include "csrc/aten/nest.h"
#include "csrc/aten/reduction.h"
#include "csrc/core/generator.h"

namespace torch_npu {
namespace {

using at::Tensor;
using attention::Shape;
using attention::Step;
using attention::Tile;

constexpr const char* kForward = "aten::_scaled_dot_product_fused_attention_overrideable";
constexpr const char* kBackward = "aten::_scaled_dot_product_fused_attention_overrideable_backward";

// -- programs --

TypedKernel k_scale(R"(
program attention_scale(out, q; scale)
each:
  %q = load q : $t
  %s = param scale : $t
  %r = mul %q, %s
  store out, %r
)");

TypedKernel k_plus_bias(R"(
program attention_scores(q, k, tile, bias)
each:
  %s = acc : $t
  %b = load bias : $t
  %r = add %s, %b
  store tile, %r
)");

// A row in which nothing may be seen has the maximum -inf; with the lowest number instead its exponentials are 0.
const char* const kSoftmaxHead = R"(
program attention_softmax(tile, max, sum; lowest$dropout)
each:
  %s = load tile : $t
  %high = fold max %s
row:
  %lowest = param lowest : $t
  %max = max %high, %lowest
  store max, %max
each:
  %t = load tile : $t
  %d = sub %t, %max
  %e = exp %d
  %sum = fold sum %e
)";

TypedKernel k_row_ends(R"(
program attention_rows(max, sum, logsumexp, factor; keep)
each:
  %max = load max : $t
  %sum = load sum : $t
  %zero = const 0 : $t
  %none = eq %sum, %zero
  %log = log %sum
  %l = add %max, %log
  %inf = const inf : $t
  %lse = where %none, %inf, %l
  store logsumexp, %lse
  %keep = param keep : $t
  %r = div %keep, %sum
  %f = where %none, %zero, %r
  store factor, %f
)");

TypedKernel k_times_row(R"(
program attention_out(p, v, out, factor)
each:
  %a = acc : $t
  %f = load factor : $t
  %r = mul %a, %f
  store out, %r
)");

TypedKernel k_times(R"(
program attention_times(a, b, out; scale)
each:
  %a = acc : $t
  %s = param scale : $t
  %r = mul %a, %s
  store out, %r
)");

TypedKernel k_add_to(R"(
program attention_add(a, b, out)
each:
  %a = acc : $t
  %o = load out : $t
  %r = add %o, %a
  store out, %r
)");

TypedKernel k_probability(R"(
program attention_probability(q, k, tile, logsumexp)
each:
  %s = acc : $t
  %l = load logsumexp : $t
  %d = sub %s, %l
  %p = exp %d
  store tile, %p
)");

TypedKernel k_probability_bias(R"(
program attention_probability(q, k, tile, logsumexp, bias)
each:
  %s = acc : $t
  %b = load bias : $t
  %t = add %s, %b
  %l = load logsumexp : $t
  %d = sub %t, %l
  %p = exp %d
  store tile, %p
)");

TypedKernel k_score_grad(R"(
program attention_score_grad(grad, v, p, ds, delta)
each:
  %a = acc : $t
  %d = load delta : $t
  %x = sub %a, %d
  %p = load p : $t
  %r = mul %p, %x
  store ds, %r
)");

TypedKernel k_delta(R"(
program attention_delta(delta, grad, out)
each:
  %g = load grad : $t
  %o = load out : $t
  %p = mul %g, %o
  %s = fold sum %p
row:
  store delta, %s
)");

// %keep: is this score kept? A function of seed, offset and the score's place among all scores, not in the tile.
// Dimensions: batch, group, repeat, row, column.
std::string keep_lines() {
  return R"(
  %g = index 0
  %h = index 1
  %n = index 2
  %i = index 3
  %j = index 4
  %batch_step = param batch_step : i64
  %group_step = param group_step : i64
  %head_step = param head_step : i64
  %row_step = param row_step : i64
  %first = param first : i64
  %b0 = fma %g, %batch_step, %first
  %b1 = fma %h, %group_step, %b0
  %b2 = fma %n, %head_step, %b1
  %b3 = fma %i, %row_step, %b2
  %place = add %b3, %j
  %seed = param seed : i64
  %offset = param offset : i64
  %word = philox %seed, %offset, %place, 0
  %threshold = param threshold : i64
  %keep = ge %word, %threshold
)";
}

const char* const kDropoutParams = "seed, offset, threshold, first, batch_step, group_step, head_step, row_step";

KernelFamily softmax_family, score_grad_dropout_family;

Kernel& softmax_kernel(npu_dtype compute, bool dropout) {
  return softmax_family.get(dropout, compute, [&] {
    std::string text = replace_all(kSoftmaxHead, "$dropout", dropout ? std::string(", ") + kDropoutParams : "");
    text += dropout ? keep_lines() + "  %zero = const 0 : $t\n  %left = where %keep, %e, %zero\n  store tile, %left\n"
                    : std::string("  store tile, %e\n");
    return text + "row:\n  store sum, %sum\n";
  });
}

// With dropout p becomes what was multiplied with v, and the gradient of p that of what was kept.
Kernel& score_grad_dropout_kernel(npu_dtype compute) {
  return score_grad_dropout_family.get(0, compute, [] {
    return std::string("program attention_score_grad(grad, v, p, ds, delta; factor, ") + kDropoutParams + ")\neach:\n" +
           keep_lines() + R"(
  %zero = const 0 : $t
  %factor = param factor : $t
  %a = acc : $t
  %af = mul %a, %factor
  %ad = where %keep, %af, %zero
  %d = load delta : $t
  %x = sub %ad, %d
  %p = load p : $t
  %r = mul %p, %x
  store ds, %r
  %pf = mul %p, %factor
  %pd = where %keep, %pf, %zero
  store p, %pd
)";
  });
}

// -- the choice --

bool fits(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask, bool gqa) {
  for (const Tensor* tensor : {&query, &key, &value}) {
    if (tensor->is_nested() || tensor->dim() != 4 || tensor->numel() == 0 || !tensor->is_privateuseone()) return false;
    if (!is_float(storage_dtype(tensor->scalar_type())) || tensor->scalar_type() != query.scalar_type()) return false;
  }
  if (key.size(0) != query.size(0) || value.size(0) != query.size(0)) return false;
  if (key.size(1) != value.size(1) || key.size(2) != value.size(2) || key.size(3) != query.size(3)) return false;
  if (key.size(1) != query.size(1) && !(gqa && query.size(1) % key.size(1) == 0)) return false;
  if (!mask || !mask->defined()) return true;
  const int64_t scores[] = {query.size(0), query.size(1), query.size(2), key.size(2)};
  return mask->dim() <= 4 && mask->is_privateuseone() && storage_dtype(mask->scalar_type()) != NPU_DTYPE_NONE &&
         at::is_expandable_to(mask->sizes(), scores);
}

// A driver may lack MATMUL with an epilogue or REDUCE: each device is asked once, with the smallest problem there is.
bool device_can(c10::DeviceIndex device);

// torch.nn.attention.sdpa_kernel decides what may be used; this is a flash attention, so either name allows it.
int64_t choose(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask, double,
               bool, std::optional<double>, bool gqa) {
  const auto& context = at::globalContext();
  if ((context.userEnabledOverrideableSDP() || context.userEnabledFlashSDP()) && fits(query, key, value, mask, gqa) &&
      device_can(query.device().index())) {
    return static_cast<int64_t>(sdp::SDPBackend::overrideable);
  }
  TORCH_CHECK(context.userEnabledMathSDP(),
              "scaled_dot_product_attention: no allowed backend takes these inputs. npu has OVERRIDEABLE (alias "
              "FLASH_ATTENTION: 4-D, one floating type, equal batch sizes, a mask that broadcasts) and MATH");
  return static_cast<int64_t>(sdp::SDPBackend::math);
}

// -- tiles --

// The layout of `like`, with another last dimension if need be.
Tensor make_output(const Tensor& like, int64_t last) {
  if (like.size(3) == last) return at::empty_like(like);
  std::array<int64_t, 4> order = {0, 1, 2, 3}, sizes = {like.size(0), like.size(1), like.size(2), last}, strides;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return like.stride(a) > like.stride(b); });
  int64_t step = 1;
  for (int d = 3; d >= 0; --d) {
    strides[order[d]] = step;
    step *= sizes[order[d]];
  }
  return at::empty_strided(sizes, strides, like.options());
}

struct Call {
  const char* label;
  Shape shape;
  npu_dtype compute;
  at::TensorOptions wide;  // of the compute type
  Tensor scaled;           // q * scale
  Tensor bias;             // undefined, or expanded to the scores
  double scale;
  bool causal;
  Tensor later;  // if causal: 0 up to the diagonal, -inf behind it
  double dropout;
  uint64_t seed = 0, offset = 0;

  Call(const char* label, const Tensor& query, const Tensor& key, const Tensor& value,
       const std::optional<Tensor>& attn_bias, double dropout, bool causal, std::optional<double> scale_opt)
      : label(label), shape(query, key), causal(causal), dropout(dropout) {
    check_same_device(label, {&query, &key, &value});
    TORCH_CHECK(fits(query, key, value, attn_bias, /*gqa=*/true), label,
                ": expected 4-D query, key and value of one floating type that fit together, got ", query.sizes(), ", ",
                key.sizes(), " and ", value.sizes());
    compute = compute_dtype(storage_dtype(query.scalar_type()));
    wide = query.options().dtype(compute == NPU_F64 ? at::kDouble : at::kFloat);
    scale = scale_opt.value_or(1.0 / std::sqrt(static_cast<double>(query.size(3))));
    scaled = at::empty(query.sizes(), wide);
    Rows(label, query.sizes(), {}).add(scaled).add(query).map(k_scale.of(compute), {number(scale)});
    if (attn_bias && attn_bias->defined()) {
      TORCH_CHECK(!causal, label, ": expected attn_bias or is_causal, got both");
      bias = attn_bias->expand({query.size(0), query.size(1), query.size(2), key.size(2)});
    }
    if (causal) {
      later = at::empty({2 * shape.queries}, wide);
      later.narrow(0, 0, shape.queries + 1).zero_();
      later.narrow(0, shape.queries + 1, shape.queries - 1).fill_(-std::numeric_limits<double>::infinity());
    }
  }

  // A product with the columns of a tile. What a query may not see lies right of the diagonal, and only there the
  // scores get an addend: the columns before it are a product of their own.
  template <class Product>
  void columns_of(const Tile& tile, Product product) const {
    const int64_t seen = causal ? std::min(tile.row, tile.columns) : tile.columns;
    if (seen > 0) product(0, seen, false);
    if (seen < tile.columns) product(seen, tile.columns - seen, true);
  }

  Step& dropout_params(Step& step, const Tile& tile) const {
    const int64_t row = shape.keys, head = row * shape.queries, group = head * shape.repeats,
                  batch = group * shape.groups;
    const int64_t first = tile.batch * batch + tile.group * group + tile.repeat * head + tile.row * row;
    return step.integer(static_cast<int64_t>(seed))
        .integer(static_cast<int64_t>(offset))
        .integer(std::llround(std::ldexp(dropout, 32)))
        .integer(first)
        .integer(batch)
        .integer(group)
        .integer(head)
        .integer(row);
  }
  double keep_factor() const { return dropout == 0 ? 1.0 : dropout == 1 ? 0.0 : 1.0 / (1.0 - dropout); }
};

// -- forward --

using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

Forward forward(const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& attn_bias,
                double dropout, bool causal, bool, std::optional<double> scale) {
  Call call(kForward, query, key, value, attn_bias, dropout, causal, scale);
  const Shape& shape = call.shape;
  if (dropout > 0) {
    std::tie(call.seed, call.offset) = draw_philox(std::nullopt, query.device().index(), 4);
  }
  const Tensor out = make_output(query, value.size(3));
  const Tensor logsumexp = at::empty({shape.batches, shape.heads(), shape.queries}, call.wide);
  const Tensor ends = at::empty({3, shape.batches, shape.heads(), shape.queries}, call.wide);
  const Tensor max = ends.select(0, 0), sum = ends.select(0, 1), factor = ends.select(0, 2);
  Tensor scores;
  const double lowest =
      call.compute == NPU_F64 ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest();
  shape.for_each_tile(causal, 1, call.wide, scores, [&](const Tile& tile, bool) {
    call.columns_of(tile, [&](int64_t column, int64_t columns, bool diagonal) {
      Step step(NPU_MATMUL, kForward, tile, tile.rows, columns);
      step.contract(query.size(3), call.compute).with(call.scaled, tile.row).with_transposed(key, column);
      step.with_tile(tile, column);
      if (diagonal) {
        step.with_diagonals(call.later).run(k_plus_bias.of(call.compute));
      } else if (call.bias.defined()) {
        step.with(call.bias, tile.row).run(k_plus_bias.of(call.compute));
      } else {
        step.run();
      }
    });

    Step softmax(NPU_REDUCE, kForward, tile, tile.rows, tile.columns);
    softmax.with_tile(tile).with_row(max).with_row(sum).number(lowest);
    if (dropout > 0) call.dropout_params(softmax, tile);
    softmax.run(softmax_kernel(call.compute, dropout > 0));

    Step ends_step(NPU_MAP, kForward, tile, tile.rows, 1);
    ends_step.with_row(max).with_row(sum).with_row(logsumexp).with_row(factor).number(call.keep_factor());
    ends_step.run(k_row_ends.of(call.compute));

    Step result(NPU_MATMUL, kForward, tile, tile.rows, value.size(3));
    result.contract(tile.columns, call.compute).with_tile(tile).with(value).with(out, tile.row).with_row(factor);
    result.run(k_times_row.of(call.compute));
  });
  const auto word = [](uint64_t bits) { return at::scalar_tensor(static_cast<int64_t>(bits), at::kLong); };
  return {out, logsumexp, Tensor(), Tensor(), query.size(2), key.size(2), word(call.seed), word(call.offset), Tensor()};
}

// -- backward --

// The sum of a tile over the dimensions that the bias lacks, added to its gradient.
void add_to_bias(const Tensor& grad_bias, const Tensor& scores, const Tile& tile) {
  Tensor part = grad_bias;
  const int64_t first[] = {tile.batch, tile.first_head(), tile.row, 0};
  const int64_t sizes[] = {tile.batches, tile.groups * tile.repeats, tile.rows, tile.columns};
  for (int d = 0; d < 4; ++d) {
    if (part.size(d) != 1) part = part.narrow(d, first[d], sizes[d]);
  }
  const Tensor ds = scores.as_strided(sizes, {tile.stride[0], tile.stride[2], tile.stride[3], 1}, scores.numel() / 2);
  part.add_(at::sum_to(ds, part.sizes()));
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward(const Tensor& grad, const Tensor& query, const Tensor& key,
                                                    const Tensor& value, const Tensor& attn_bias,
                                                    std::array<bool, 4> wanted, const Tensor& out,
                                                    const Tensor& logsumexp, const Tensor&, const Tensor&, int64_t,
                                                    int64_t, double dropout, bool causal, const Tensor& seed,
                                                    const Tensor& offset, std::optional<double> scale) {
  if (!grad.defined()) return {};
  Call call(kBackward, query, key, value, attn_bias, dropout, causal, scale);
  const Shape& shape = call.shape;
  if (dropout > 0) {
    call.seed = static_cast<uint64_t>(seed.item<int64_t>());
    call.offset = static_cast<uint64_t>(offset.item<int64_t>());
  }
  const Tensor delta = at::empty({shape.batches, shape.heads(), shape.queries}, call.wide);
  Rows(kBackward, grad.sizes(), one_dim(grad, 3)).reduced(delta).add(grad).add(out).reduce(k_delta.of(call.compute));

  const Tensor grad_q = at::empty_like(query), grad_k = at::empty_like(key), grad_v = at::empty_like(value);
  // Sums over queries and over the heads that share a key are kept in the compute type.
  const bool narrow = query.scalar_type() != call.wide.dtype();
  const Tensor sum_k = narrow ? at::empty(key.sizes(), call.wide) : grad_k;
  const Tensor sum_v = narrow ? at::empty(value.sizes(), call.wide) : grad_v;
  Tensor grad_bias;
  if (wanted[3] && call.bias.defined()) {
    at::DimVector sizes(4 - attn_bias.dim(), 1);
    sizes.append(attn_bias.sizes().begin(), attn_bias.sizes().end());
    grad_bias = at::zeros(sizes, call.wide);
  }
  const int64_t unseen = shape.keys - shape.columns(shape.queries, causal);
  if (unseen > 0) {
    sum_k.narrow(2, shape.keys - unseen, unseen).zero_();
    sum_v.narrow(2, shape.keys - unseen, unseen).zero_();
  }

  Tensor scores;
  shape.for_each_tile(causal, 2, call.wide, scores, [&](const Tile& tile, bool first) {
    const Tile ds = tile.behind(scores.numel() / 2);
    call.columns_of(tile, [&](int64_t column, int64_t columns, bool diagonal) {
      Step step(NPU_MATMUL, kBackward, tile, tile.rows, columns);
      step.contract(query.size(3), call.compute).with(call.scaled, tile.row).with_transposed(key, column);
      step.with_tile(tile, column).with_row(logsumexp);
      if (diagonal) {
        step.with_diagonals(call.later);
      } else if (call.bias.defined()) {
        step.with(call.bias, tile.row);
      }
      step.run((diagonal || call.bias.defined() ? k_probability_bias : k_probability).of(call.compute));
    });

    Step inner(NPU_MATMUL, kBackward, tile, tile.rows, tile.columns);
    inner.contract(value.size(3), call.compute).with(grad, tile.row).with_transposed(value);
    inner.with_tile(tile).with_tile(ds).with_row(delta);
    if (dropout > 0) {
      inner.number(call.keep_factor());
      call.dropout_params(inner, tile).run(score_grad_dropout_kernel(call.compute));
    } else {
      inner.run(k_score_grad.of(call.compute));
    }

    Step result(NPU_MATMUL, kBackward, tile, tile.rows, query.size(3));
    result.contract(tile.columns, call.compute).with_tile(ds).with(key).with(grad_q, tile.row).number(call.scale);
    result.run(k_times.of(call.compute));

    // Heads that share a key add to the same gradient: one after the other.
    for (int64_t r = 0; r < tile.repeats; ++r) {
      const bool fresh = first && tile.repeat + r == 0;
      const auto add = [&](const Tile& p, const Tensor& with, const Tensor& sum) {
        const Tile one = p.one_repeat(r);
        Step step(NPU_MATMUL, kBackward, one, one.columns, with.size(3));
        step.contract(one.rows, call.compute).with_tile_transposed(one).with(with, tile.row).with(sum);
        fresh ? step.run() : step.run(k_add_to.of(call.compute));
      };
      add(tile, grad, sum_v);
      add(ds, call.scaled, sum_k);
    }
    if (grad_bias.defined()) add_to_bias(grad_bias, scores, tile);
  });
  if (narrow) {
    grad_k.copy_(sum_k);
    grad_v.copy_(sum_v);
  }
  if (grad_bias.defined()) grad_bias = grad_bias.view(attn_bias.sizes()).to(attn_bias.scalar_type());
  return {grad_q, grad_k, grad_v, grad_bias};
}

bool device_can(c10::DeviceIndex device) {
  static std::atomic<int8_t> answers[64];  // 0: not asked, 1: yes, 2: no
  std::atomic<int8_t>& answer = answers[device];
  if (answer == 0) {
    const Tensor one = at::empty({1, 1, 1, 1}, at::TensorOptions().device(c10::kPrivateUse1, device));
    try {
      one.zero_();
      const auto out = forward(one, one, one, std::nullopt, 0, true, false, std::nullopt);
      backward(one, one, one, one, {}, {}, std::get<0>(out), std::get<1>(out), {}, {}, 1, 1, 0, true, {}, {}, {});
      answer = 1;
    } catch (const Unsupported&) {
      answer = 2;
    }
  }
  return answer == 1;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_sdp_choice", TORCH_FN(choose));
  // Not register_native: there is no CPU kernel behind these two. A driver that refuses a command makes them raise.
  m.impl("_scaled_dot_product_fused_attention_overrideable", TORCH_FN(forward));
  m.impl("_scaled_dot_product_fused_attention_overrideable_backward", TORCH_FN(backward));
}

}  // namespace
}  // namespace torch_npu

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torch_npu::choose)
}  // namespace at::native
