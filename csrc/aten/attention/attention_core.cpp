// Attention without the matrix of scores: its commands work on tiles of whole rows of scores, as
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
#include <ATen/ExpandUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "csrc/aten/attention/attention.h"
#include "csrc/aten/dispatch/nest.h"
#include "csrc/aten/dispatch/reduction.h"
#include "csrc/core/random/generator.h"

namespace torch_npu::attention {
namespace {

using at::Tensor;

// -- programs --

TypedProgram k_scale(R"(
formula attention_scale(out, q; scale)
each:
  out = q * scale
)");

TypedProgram k_row_ends(R"(
formula attention_rows(max, sum, logsumexp, factor; keep)
each:
  %none = sum == 0
  logsumexp = where(%none, inf, max + log(sum))
  factor = where(%none, 0, keep / sum)
)");

TypedProgram k_times_row(R"(
formula attention_out(p, v, out, factor)
each:
  out = acc * factor
)");

TypedProgram k_times(R"(
formula attention_times(a, b, out; scale)
each:
  out = acc * scale
)");

TypedProgram k_add_to(R"(
formula attention_add(a, b, out)
each:
  out = out + acc
)");

TypedProgram k_score_grad(R"(
formula attention_score_grad(grad, v, p, ds, delta)
each:
  ds = p * (acc - delta)
)");

TypedProgram k_delta(R"(
formula attention_delta(delta, grad, out)
each:
  %s = fold(sum, grad * out)
row:
  delta = %s
)");

// %keep: is this score kept? A function of seed, offset and the score's place among all scores, not in the tile.
// Dimensions: batch, group, repeat, row, column.
constexpr const char* kKeep = R"(
  %head = fma(index(1), group_step, fma(index(0), batch_step, first))
  %place = fma(index(3), row_step, fma(index(2), head_step, %head)) + index(4)
  %keep = philox(seed, offset, %place, 0) >= threshold
)";
constexpr const char* kDropoutParams =
    "seed: i64, offset: i64, threshold: i64, first: i64, batch_step: i64, group_step: i64, head_step: i64, row_step: "
    "i64";

// What happens to a score behind its product, in this order.
enum Addends : int { kBias = 1, kHidden = 2, kPadding = 4, kBand = 8, kPrefix = 16, kProbability = 32 };

// The epilogue: operands behind the tile in the order of Addends, logsumexp first for a probability.
std::string score_text(int what) {
  std::string operands, score = "acc";
  const auto step = [&](const std::string& names, const std::string& formula) {
    operands += names;
    score = replace_all(formula, "$s", score);
  };
  if (what & kProbability) operands += ", logsumexp";
  if (what & kBias) step(", bias", "($s + bias)");
  if (what & kHidden) step(", hidden: bool", "where(hidden, -inf, $s)");
  if (what & kPadding) step(", padding: bool", "where(padding, -inf, $s)");
  if (what & kPrefix) {
    step(", band, prefix", "($s + max(band, prefix))");
  } else if (what & kBand) {
    step(", band", "($s + band)");
  }
  if (what & kProbability) step("", "exp($s - logsumexp)");
  return "formula attention_scores(q, k, tile" + operands + ")\neach:\n  tile = " + score + "\n";
}

ProgramFamily score_family, softmax_family, score_grad_dropout_family;

// A row in which nothing may be seen has the maximum -inf; with the lowest number instead its exponentials are 0.
DeviceProgram& softmax_program(npu_dtype compute, bool dropout) {
  return softmax_family.get(dropout, compute, [&] {
    return std::string("formula attention_softmax(tile, max, sum; lowest") + (dropout ? ", " : "") +
           (dropout ? kDropoutParams : "") + R"()
each:
  %high = fold(max, tile)
row:
  %max = max(%high, lowest)
  max = %max
each:
  %e = exp(tile - %max)
  %sum = fold(sum, %e)
)" + (dropout ? kKeep : "") +
           (dropout ? "  tile = where(%keep, %e, 0)\n" : "  tile = %e\n") + "row:\n  sum = %sum\n";
  });
}

// With dropout p becomes what was multiplied with v, and the gradient of p that of what was kept.
DeviceProgram& score_grad_dropout_program(npu_dtype compute) {
  return score_grad_dropout_family.get(0, compute, [] {
    return std::string("formula attention_score_grad(grad, v, p, ds, delta; factor, ") + kDropoutParams + ")\neach:\n" +
           kKeep + R"(
  ds = p * (where(%keep, acc * factor, 0) - delta)
  p = where(%keep, p * factor, 0)
)";
  });
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
  const Options& options;
  Shape shape;
  npu_dtype compute;
  at::TensorOptions wide;        // of the compute type
  Tensor scaled;                 // q * scale
  Tensor bias, hidden, padding;  // undefined, or expanded to the scores
  Tensor band;                   // for each diagonal 0 if it is in the window, else -inf
  Tensor prefix;                 // [batch, 1, 1, keys]: 0 or -inf

  Call(const char* label, const Tensor& query, const Tensor& key, const Tensor& value, const Options& options)
      : label(label), options(options), shape(query, key, options.window) {
    check_same_device(label, {&query, &key, &value, &options.bias, &options.hidden, &options.padding});
    compute = compute_dtype(storage_dtype(query.scalar_type()));
    wide = query.options().dtype(compute == NPU_F64 ? at::kDouble : at::kFloat);
    scaled = at::empty(query.sizes(), wide);
    Rows(label, query.sizes(), {}).add(scaled).add(query).map(k_scale.of(compute), {number(options.scale)});
    const auto over_scores = [&](const Tensor& tensor) {
      return tensor.defined() ? tensor.expand({query.size(0), query.size(1), query.size(2), key.size(2)}) : tensor;
    };
    bias = over_scores(options.bias);
    hidden = over_scores(options.hidden);
    padding = over_scores(options.padding);
    constexpr double kNone = -std::numeric_limits<double>::infinity();
    if (shape.window.bounded()) {
      // The vector begins with the diagonal of the last query and the first key.
      const int64_t before = shape.queries - 1, length = before + shape.keys;
      const int64_t from = std::clamp<int64_t>(before + shape.window.low, 0, length);
      const int64_t to = std::clamp<int64_t>(before + shape.window.high + 1, from, length);
      band = at::empty({length}, wide);
      if (from > 0) band.narrow(0, 0, from).fill_(kNone);
      if (to > from) band.narrow(0, from, to - from).zero_();
      if (to < length) band.narrow(0, to, length - to).fill_(kNone);
    }
    if (!options.prefix.empty()) {
      prefix = at::empty({shape.batches, 1, 1, shape.keys}, wide).fill_(kNone);
      for (int64_t b = 0; b < shape.batches; ++b) {
        prefix.select(0, b).narrow(2, 0, options.prefix[b]).zero_();
      }
      prefix = prefix.expand({shape.batches, shape.heads(), shape.queries, shape.keys});
    }
  }

  // The product of queries and keys of a tile, with all that happens to a score. Columns that every query of the tile
  // sees need no band: they are a product of their own.
  void scores(const Tile& tile, const Tensor& key, const Tensor& logsumexp) const {
    const int64_t end = tile.column + tile.columns;
    const auto free = shape.window.free_columns(tile.row, tile.row + tile.rows, shape.keys);
    const auto part = [&](int64_t column, int64_t last, bool banded) {
      if (column >= last) return;
      Step step(NPU_MATMUL, label, tile, tile.rows, last - column);
      step.contract(key.size(3), compute).with(scaled, tile.row).with_transposed(key, column);
      step.with_tile(tile, column - tile.column);
      int what = 0;
      if (logsumexp.defined()) {
        step.with_row(logsumexp);
        what |= kProbability;
      }
      for (const auto& [tensor, flag] :
           {std::pair(&bias, kBias), std::pair(&hidden, kHidden), std::pair(&padding, kPadding)}) {
        if (!tensor->defined()) continue;
        step.with(*tensor, tile.row, column);
        what |= flag;
      }
      if (banded) {
        step.with_diagonals(band, shape.queries, column);
        what |= kBand;
        if (prefix.defined()) {
          step.with(prefix, 0, column);
          what |= kPrefix;
        }
      }
      if (what == 0) return step.run();
      step.run(score_family.get(what, compute, [&] { return score_text(what); }));
    };
    if (!band.defined()) return part(tile.column, end, false);
    if (free.first >= free.second) return part(tile.column, end, true);
    part(tile.column, free.first, true);
    part(free.first, free.second, false);
    part(free.second, end, true);
  }

  Step& dropout_params(Step& step, const Tile& tile) const {
    const int64_t row = shape.keys, head = row * shape.queries, group = head * shape.repeats,
                  batch = group * shape.groups;
    const int64_t first = tile.batch * batch + tile.group * group + tile.repeat * head + tile.row * row + tile.column;
    return step.integer(static_cast<int64_t>(options.seed))
        .integer(static_cast<int64_t>(options.offset))
        .integer(std::llround(std::ldexp(options.dropout, 32)))
        .integer(first)
        .integer(batch)
        .integer(group)
        .integer(head)
        .integer(row);
  }
  double keep_factor() const {
    return options.dropout == 0 ? 1.0 : options.dropout == 1 ? 0.0 : 1.0 / (1.0 - options.dropout);
  }
};

// -- forward --

}  // namespace

Result forward(const char* label, const Tensor& query, const Tensor& key, const Tensor& value, const Options& options) {
  Call call(label, query, key, value, options);
  const Shape& shape = call.shape;
  const Tensor out = make_output(query, value.size(3));
  const auto row = [&] { return at::empty({shape.batches, shape.heads(), shape.queries}, call.wide); };
  const Tensor logsumexp = row(), max = row(), sum = row(), factor = row();
  Tensor scores;
  const double lowest =
      call.compute == NPU_F64 ? std::numeric_limits<double>::lowest() : std::numeric_limits<float>::lowest();
  shape.for_each_tile(1, call.wide, scores, [&](const Tile& tile, bool) {
    call.scores(tile, key, {});

    Step softmax(NPU_REDUCE, label, tile, tile.rows, tile.columns);
    softmax.with_tile(tile).with_row(max).with_row(sum).number(lowest);
    if (options.dropout > 0) call.dropout_params(softmax, tile);
    softmax.run(softmax_program(call.compute, options.dropout > 0));

    Step ends_step(NPU_MAP, label, tile, tile.rows, 1);
    ends_step.with_row(max).with_row(sum).with_row(logsumexp).with_row(factor).number(call.keep_factor());
    ends_step.run(k_row_ends.of(call.compute));

    Step result(NPU_MATMUL, label, tile, tile.rows, value.size(3));
    result.contract(tile.columns, call.compute).with_tile(tile).with(value, tile.column).with(out, tile.row);
    result.with_row(factor).run(k_times_row.of(call.compute));
  });
  return {out, logsumexp, max, sum};
}

// -- backward --

namespace {

// The sum of a tile over the dimensions that the bias lacks, added to its gradient.
void add_to_bias(const Tensor& grad_bias, const Tensor& scores, const Tile& tile) {
  Tensor part = grad_bias;
  const int64_t first[] = {tile.batch, tile.first_head(), tile.row, tile.column};
  const int64_t sizes[] = {tile.batches, tile.groups * tile.repeats, tile.rows, tile.columns};
  for (int d = 0; d < 4; ++d) {
    if (part.size(d) != 1) part = part.narrow(d, first[d], sizes[d]);
  }
  const Tensor ds = scores.as_strided(sizes, {tile.stride[0], tile.stride[2], tile.stride[3], 1}, scores.numel() / 2);
  part.add_(at::sum_to(ds, part.sizes()));
}

}  // namespace

Grads backward(const char* label, const Tensor& grad, const Tensor& query, const Tensor& key, const Tensor& value,
               const Tensor& out, const Tensor& logsumexp, const Options& given, bool of_bias,
               const Tensor& grad_logsumexp) {
  Options options = given;
  if (options.dropout > 0)
    std::tie(options.seed, options.offset) = drawn_philox(given.seed, given.offset, query.device().index());
  Call call(label, query, key, value, options);
  const Shape& shape = call.shape;
  const Tensor delta = at::empty({shape.batches, shape.heads(), shape.queries}, call.wide);
  Rows(label, grad.sizes(), one_dim(grad, 3)).reduced(delta).add(grad).add(out).reduce(k_delta.of(call.compute));
  // The derivative of logsumexp is p: ds = p * (grad @ v^T - delta + grad_logsumexp).
  if (grad_logsumexp.defined()) delta.sub_(grad_logsumexp);

  const Tensor grad_q = at::empty_like(query), grad_k = at::empty_like(key), grad_v = at::empty_like(value);
  // Sums over queries and over the heads that share a key are kept in the compute type.
  const bool narrow = query.scalar_type() != call.wide.dtype();
  const Tensor sum_k = narrow ? at::empty(key.sizes(), call.wide) : grad_k;
  const Tensor sum_v = narrow ? at::empty(value.sizes(), call.wide) : grad_v;
  Tensor grad_bias;
  if (of_bias && options.bias.defined()) {
    at::DimVector sizes(4 - options.bias.dim(), 1);
    sizes.append(options.bias.sizes().begin(), options.bias.sizes().end());
    grad_bias = at::zeros(sizes, call.wide);
  }
  // Without a lower bound the first tile sees all that any sees, and writes where the others add.
  const bool first_writes = shape.window.low <= -Window::kFar;
  const auto seen = shape.window.columns(0, shape.queries, shape.keys);
  for (const Tensor* sum : {&sum_k, &sum_v}) {
    if (!first_writes) {
      sum->zero_();
    } else if (seen.second < shape.keys) {
      sum->narrow(2, seen.second, shape.keys - seen.second).zero_();
    }
  }

  Tensor scores;
  shape.for_each_tile(2, call.wide, scores, [&](const Tile& tile, bool first) {
    const Tile ds = tile.behind(scores.numel() / 2);
    call.scores(tile, key, logsumexp);

    Step inner(NPU_MATMUL, label, tile, tile.rows, tile.columns);
    inner.contract(value.size(3), call.compute).with(grad, tile.row).with_transposed(value, tile.column);
    inner.with_tile(tile).with_tile(ds).with_row(delta);
    if (options.dropout > 0) {
      inner.number(call.keep_factor());
      call.dropout_params(inner, tile).run(score_grad_dropout_program(call.compute));
    } else {
      inner.run(k_score_grad.of(call.compute));
    }

    Step result(NPU_MATMUL, label, tile, tile.rows, query.size(3));
    result.contract(tile.columns, call.compute).with_tile(ds).with(key, tile.column).with(grad_q, tile.row);
    result.number(options.scale).run(k_times.of(call.compute));

    // Heads that share a key add to the same gradient: one after the other.
    for (int64_t r = 0; r < tile.repeats; ++r) {
      const bool fresh = first_writes && first && tile.repeat + r == 0;
      const auto add = [&](const Tile& p, const Tensor& with, const Tensor& sum) {
        const Tile one = p.one_repeat(r);
        Step step(NPU_MATMUL, label, one, one.columns, with.size(3));
        step.contract(one.rows, call.compute).with_tile_transposed(one).with(with, tile.row).with(sum, tile.column);
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
  if (grad_bias.defined()) grad_bias = grad_bias.view(options.bias.sizes()).to(options.bias.scalar_type());
  return {grad_q, grad_k, grad_v, grad_bias};
}

}  // namespace torch_npu::attention
