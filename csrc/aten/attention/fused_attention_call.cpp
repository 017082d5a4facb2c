// npu_fusion_attention, the attention call that transformers and others make on a device named npu: layouts, sparse
// modes and packed sequences in terms of npu::fusion_attention. Views only, so gradients and meta tensors follow.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/sigmoid.h>

#include "csrc/aten/attention/attention.h"
#include "csrc/aten/dispatch/custom_op.h"
#include "csrc/aten/dispatch/optional.h"
#include "csrc/core/random/generator.h"

namespace torch_npu::fused_attention_call_cpp {
namespace {

using at::Tensor;
using c10::SymInt;
using OptInts = std::optional<at::IntArrayRef>;
using Core = std::tuple<Tensor, Tensor, Tensor, Tensor>;

constexpr const char* kOp = "npu_fusion_attention";
constexpr int64_t kAll = 2147483647;  // of pre_tockens and next_tockens: no bound

// To [batch, heads, length, features] and back; H is heads * features in one dimension.
Tensor spread(const Tensor& x, const SymInt& heads, c10::string_view layout) {
  if (layout == "BNSD") return x;
  if (layout == "BSND") return x.transpose(1, 2);
  const Tensor split = x.unflatten_symint(-1, {heads, x.sym_size(-1) / heads});
  return layout == "BSH" ? split.transpose(1, 2) : split.permute({1, 2, 0, 3});
}

Tensor gather(const Tensor& x, c10::string_view layout) {
  if (layout == "BNSD") return x;
  if (layout == "BSND") return x.transpose(1, 2);
  return layout == "BSH" ? x.transpose(1, 2).flatten(2) : x.permute({2, 0, 1, 3}).flatten(2);
}

void check_layout(const Tensor& query, const Tensor& key, const Tensor& value, int64_t heads, c10::string_view layout) {
  const bool known = layout == "BSH" || layout == "SBH" || layout == "BSND" || layout == "BNSD" || layout == "TND";
  TORCH_CHECK_VALUE(known, kOp, ": expected input_layout BSH, SBH, BSND, BNSD or TND, got ", layout);
  const auto rank = static_cast<int64_t>(layout.size());
  TORCH_CHECK(query.dim() == rank && key.dim() == rank && value.dim() == rank, kOp, ": expected ", rank,
              " dimensions for input_layout ", layout, ", got query ", query.sym_sizes(), ", key ", key.sym_sizes(),
              " and value ", value.sym_sizes());
  const int64_t place = layout == "BNSD" || layout == "TND" ? 1 : 2;
  const bool packed = layout == "BSH" || layout == "SBH";
  const bool fits = heads > 0 && (packed ? query.sym_size(2) % heads == 0 : query.sym_size(place) == heads);
  TORCH_CHECK(fits, kOp, ": expected head_num to be the number of query's heads in ", query.sym_sizes(), " (", layout,
              "), got ", heads);
}

struct Request {
  OptTensor bias, hidden, padding, sink;
  double scale, dropout;
  int64_t pre, next, mode;
  std::vector<int64_t> prefix;
  int64_t seed = 0, offset = 0;

  Core run(const Tensor& query, const Tensor& key, const Tensor& value, const OptTensor& mask,
           at::IntArrayRef prefixes) const {
    using Signature = Core(const Tensor&, const Tensor&, const Tensor&, const OptTensor&, const OptTensor&,
                           const OptTensor&, OptInts, double, double, int64_t, int64_t, SymInt, SymInt);
    static const auto op = npu_op<Signature>("npu::fusion_attention");
    constexpr int64_t kFar = attention::Window::kFar;
    SymInt low = -kFar, high = kFar;
    const SymInt shift = key.sym_size(2) - query.sym_size(2);  // the last query meets the last key
    if (mode == 0 || mode == 4) {
      const SymInt by = mode == 4 ? shift : SymInt(0);
      if (pre < kAll) low = by - pre;
      if (next < kAll) high = by + next;
    } else if (mode >= 2) {
      high = mode == 2 ? SymInt(0) : shift;
    }
    auto results = op.call(query, key, value, bias, mode <= 1 ? mask : OptTensor(), padding,
                           mode >= 5 ? OptInts(prefixes) : OptInts(), scale, dropout, seed, offset, low, high);
    return sink && sink->defined() ? with_sink(results) : results;
  }

  // One more score per head, which takes its share of the probabilities and adds nothing to the result.
  Core with_sink(const Core& without) const {
    const auto& [out, logsumexp, max, sum] = without;
    const Tensor score = sink->to(logsumexp.scalar_type()).view({1, -1, 1});
    const Tensor share = at::sigmoid(logsumexp - score), top = at::maximum(max, score.detach());
    return {(out * share.unsqueeze(-1)).to(out.scalar_type()), logsumexp, top,
            sum * (max - top).exp() + (score.detach() - top).exp()};
  }
};

// Of each row of scores, eight times, as callers expect it.
Tensor eight(const Tensor& rows) {
  c10::SymDimVector sizes(rows.sym_sizes());
  sizes.push_back(8);
  return rows.unsqueeze(-1).expand_symint(sizes);
}

using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, int64_t, int64_t, int64_t>;

// Sequences of several lengths, one behind the other; `ends` say where each ends, trailing zeros are none.
std::tuple<Tensor, Tensor, Tensor> packed(const Tensor& query, const Tensor& key, const Tensor& value,
                                          const Request& request, OptInts q_ends, OptInts k_ends, bool tnd) {
  TORCH_CHECK_VALUE(q_ends && k_ends && q_ends->size() == k_ends->size(), kOp,
                    ": expected actual_seq_qlen and actual_seq_kvlen of one length for input_layout TND, got ",
                    q_ends ? std::to_string(q_ends->size()) : "None", " and ",
                    k_ends ? std::to_string(k_ends->size()) : "None");
  TORCH_CHECK_VALUE(request.mode < 5 || request.prefix.size() == q_ends->size(), kOp,
                    ": expected a prefix for each of the ", q_ends->size(), " sequences, got ", request.prefix.size());
  std::vector<Tensor> outs, maxima, sums;
  int64_t q0 = 0, k0 = 0;
  for (size_t i = 0; i < q_ends->size(); ++i) {
    const int64_t q1 = (*q_ends)[i], k1 = (*k_ends)[i];
    if (q1 == 0 && k1 == 0) break;
    TORCH_CHECK_VALUE(q0 <= q1 && k0 <= k1 && q1 <= query.size(0) && k1 <= key.size(0), kOp,
                      ": expected actual_seq_qlen and actual_seq_kvlen to rise to at most ", query.size(0), " and ",
                      key.size(0), ", got ", *q_ends, " and ", *k_ends);
    const auto part = [](const Tensor& x, int64_t from, int64_t to) {
      return x.narrow(0, from, to - from).transpose(0, 1).unsqueeze(0);
    };
    OptTensor mask = request.hidden;
    if (mask && mask->defined() && mask->dim() == 2) mask = mask->narrow(0, 0, q1 - q0).narrow(1, 0, k1 - k0);
    const int64_t prefix = request.mode >= 5 ? request.prefix[i] : 0;
    auto [out, logsumexp, max, sum] =
        request.run(part(query, q0, q1), part(key, k0, k1), part(value, k0, k1), mask, {prefix});
    outs.push_back(out.squeeze(0).transpose(0, 1));
    maxima.push_back(max.squeeze(0));
    sums.push_back(sum.squeeze(0));
    q0 = q1;
    k0 = k1;
  }
  if (q0 < query.size(0)) {  // rows behind the last sequence
    outs.push_back(query.narrow(0, q0, query.size(0) - q0).narrow(2, 0, value.size(2)).mul(0));
  }
  const auto rows = [&](const std::vector<Tensor>& parts) {
    const Tensor all = at::cat(parts, 1);
    return eight(tnd ? all.transpose(0, 1) : all);
  };
  return {at::cat(outs, 0), rows(maxima), rows(sums)};
}

Results npu_fusion_attention(const Tensor& query, const Tensor& key, const Tensor& value, int64_t head_num,
                             c10::string_view input_layout, const OptTensor& pse, const OptTensor& padding_mask,
                             const OptTensor& atten_mask, double scale, double keep_prob, int64_t pre_tockens,
                             int64_t next_tockens, int64_t, OptInts prefix, OptInts actual_seq_qlen,
                             OptInts actual_seq_kvlen, int64_t sparse_mode, bool, bool, c10::string_view softmax_layout,
                             const OptTensor& sink) {
  check_layout(query, key, value, head_num, input_layout);
  TORCH_CHECK_VALUE(
      sparse_mode >= 0 && sparse_mode <= 6, kOp,
      ": expected sparse_mode 0 (mask and band), 1 (mask), 2 (causal), 3 (causal to the last key), 4 (band "
      "to the last key), 5 or 6 (prefix), got ",
      sparse_mode,
      sparse_mode == 7 || sparse_mode == 8 ? "; for parts of packed sequences, one call for each part" : "");
  TORCH_CHECK_VALUE(keep_prob > 0 && keep_prob <= 1, kOp, ": expected keep_prob above 0 and up to 1, got ", keep_prob);
  if (sink && sink->defined()) {
    check_floating(kOp, "sink", *sink);
    check_same_device(kOp, {&query, &*sink});
    TORCH_CHECK(sink->dim() == 1 && sink->sym_size(0) == head_num, kOp, ": expected sink of ", head_num,
                " numbers, one for each head of query, got ", sink->sym_sizes());
  }
  Request request{pse, atten_mask, {}, sink, scale, 1 - keep_prob, pre_tockens, next_tockens, sparse_mode, {}};
  if (prefix) request.prefix = prefix->vec();
  if (pse && pse->defined()) request.bias = *pse * scale;  // it is added before the scores are scaled
  if (padding_mask && padding_mask->defined()) {
    const Tensor& mask = *padding_mask;
    request.padding = mask.dim() == 2 ? mask.unsqueeze(1).unsqueeze(1) : mask;
  }
  if (request.dropout > 0) {
    if (query.is_privateuseone()) {
      const auto [seed, offset] = draw_philox(std::nullopt, query.device().index(), 4);
      request.seed = static_cast<int64_t>(seed);
      request.offset = static_cast<int64_t>(offset);
    } else {
      request.seed = at::randint(int64_t{1} << 62, {}, at::kLong).item<int64_t>();
    }
  }
  const Tensor none = at::empty({0}, query.options());
  if (input_layout == "TND") {
    auto [out, max, sum] =
        packed(query, key, value, request, actual_seq_qlen, actual_seq_kvlen, softmax_layout == "TND");
    return {out, max, sum, none, request.seed, request.offset, 0};
  }
  const Tensor q = spread(query, head_num, input_layout);
  SymInt key_heads = 0;
  if (input_layout == "BSH" || input_layout == "SBH") {
    const auto features = q.sym_size(3);
    TORCH_CHECK(features > 0 && key.sym_size(2) % features == 0, kOp, ": expected key with a multiple of ", features,
                " features, got ", key.sym_sizes());
    key_heads = key.sym_size(2) / features;
  }
  const Tensor k = spread(key, key_heads, input_layout), v = spread(value, key_heads, input_layout);
  if (sparse_mode >= 5) {
    TORCH_CHECK_VALUE(k.sym_size(0) == static_cast<int64_t>(request.prefix.size()), kOp,
                      ": expected a prefix for each of the ", k.sym_size(0), " batches, got ", request.prefix.size());
    for (const int64_t length : request.prefix) {
      TORCH_CHECK_VALUE(length >= 0 && k.sym_size(2) >= length, kOp, ": expected prefixes from 0 to ", k.sym_size(2),
                        " keys, got ", length);
    }
  }
  auto [out, logsumexp, max, sum] = request.run(q, k, v, atten_mask, request.prefix);
  const int64_t drawn = request.dropout > 0 ? q.size(0) * q.size(1) * q.size(2) * k.size(2) : 0;
  return {gather(out, input_layout), eight(max), eight(sum), none, request.seed, request.offset, drawn};
}

TORCH_LIBRARY_FRAGMENT(npu, m) {
  m.def(
      "npu_fusion_attention(Tensor query, Tensor key, Tensor value, int head_num, str input_layout, Tensor? pse=None, "
      "Tensor? padding_mask=None, Tensor? atten_mask=None, float scale=1., float keep_prob=1., "
      "int pre_tockens=2147483647, int next_tockens=2147483647, int inner_precise=0, int[]? prefix=None, "
      "int[]? actual_seq_qlen=None, int[]? actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, "
      "bool sync=False, str softmax_layout='', Tensor? sink=None) -> (Tensor, Tensor, Tensor, Tensor, int, int, int)",
      npu_fusion_attention);
}

}  // namespace
}  // namespace torch_npu::fused_attention_call_cpp
