// CONV from less: products of windows, or sums.
#include <algorithm>

#include "support/legalise/rules/parts.h"
#include "support/legalise/rules/products/conv_parts.h"

namespace npu::legalise {
namespace {

// A contraction of nothing, to all of the result.
Contraction whole_result(const Draft& conv) {
  Contraction c;
  c.result = conv.operands[2];
  for (int d = 0; d < conv.command.rank; ++d) c.kept.push_back({conv.command.size[d], 0, 0, c.result.form.stride[d]});
  return c;
}

// Every part of a convolution whose program other rules have cut off.
template <class Add>
bool each_part(const Draft& conv, Script& script, const Add& add, const Share& share = {}) {
  if (conv.program) return false;
  const std::vector<Contraction> parts = conv_parts(conv, share);
  // A rule makes something, and be it zeros that are none.
  if (parts.empty() && conv.points() == 0) return add_zeros(whole_result(conv), script, NPU_MAX_RANK);
  return !parts.empty() && std::all_of(parts.begin(), parts.end(), [&](const Contraction& part) {
    return points(part.kept) == 0 || points(part.summed) ? add(part) : add_zeros(part, script, NPU_MAX_RANK);
  });
}

// The products of a part, added to sums that are there.
bool add_more(const Contraction& part, Script& script, const Dimensions& dimensions) {
  Contraction c = part;
  std::vector<int64_t> size;
  for (const Axis& axis : c.kept) size.push_back(axis.size);
  c.result = script.scratch(c.acc, size);
  std::vector<Axis> axes = c.kept;
  for (size_t k = 0; k < axes.size(); ++k) axes[k].a = c.kept[k].result = c.result.form.stride[k];
  return add_products(c, script, dimensions) && add_to(axes, part.result, c.result, c.acc, script);
}

// The gradient of a weight that is small beside the images: a part of it is added to more cheaply than the images are
// laid out again for each kernel position.
bool sums_many_positions(const Draft& refused) {
  constexpr int64_t kAdd = 8;  // elements that are laid out in the time of one that is added
  const npu_conv& conv = refused.command.u.conv;
  int64_t in = conv.batch * conv.in_channels, out = conv.batch * conv.out_channels;
  for (uint32_t d = 0; d < conv.spatial_rank; ++d) {
    in *= conv.in_size[d];
    out *= conv.out_size[d];
  }
  return conv.mode == NPU_CONV_GRAD_WEIGHT && kAdd * refused.points() <= in + out;
}

bool weight_as_products(const Draft& refused, Script& script, const Dimensions& dimensions) {
  if (refused.program) return false;
  const int acc = refused.command.u.conv.acc_dtype;
  const bool in_place = refused.operands[2].form.dtype == acc;
  Draft conv = refused;
  if (!in_place) conv.operands[2] = script.scratch(acc, refused.size());
  auto parts = conv_terms(conv);
  if (!parts) return false;
  const auto whole = [&](const Contraction& part) { return points(part.kept) == refused.points(); };
  std::stable_partition(parts->begin(), parts->end(), whole);
  size_t first = 0;
  if (!parts->empty() && whole(parts->front())) {
    if (!add_products(parts->front(), script, dimensions)) return false;
    first = 1;
  } else if (!add_zeros(whole_result(conv), script, dimensions.most_rank)) {
    return false;
  }
  for (size_t k = first; k < parts->size(); ++k)
    if (!add_more((*parts)[k], script, dimensions)) return false;
  if (!in_place) script.add(copy(refused.size(), refused.operands[2], conv.operands[2]));
  return true;
}

template <int MostRank, int MostBatch>
bool as_products(const Draft& refused, Script& script) {
  if (sums_many_positions(refused)) return weight_as_products(refused, script, {MostRank, MostBatch});
  return each_part(
      refused, script, [&](const Contraction& part) { return add_products(part, script, {MostRank, MostBatch}); },
      [&](Contraction& c) { return lay_out_a(c, script, MostRank); });
}

bool as_reduce(const Draft& refused, Script& script) {
  return each_part(refused, script, [&](const Contraction& part) { return add_reduce(part, script); });
}

template <int Terms>
bool as_maps(const Draft& refused, Script& script) {
  return each_part(refused, script, [&](const Contraction& part) { return add_maps(part, script, Terms); });
}

// Depthwise and nearly so: a product of such a group would have a few rows.
bool has_groups_of(const npu_conv& conv, int64_t channels) {
  return conv.groups > 1 && conv.in_channels <= channels * conv.groups && conv.out_channels <= channels * conv.groups;
}

bool narrow_as_maps(const Draft& refused, Script& script) {
  constexpr int64_t kChannels = 2;
  const npu_conv& conv = refused.command.u.conv;
  return conv.mode != NPU_CONV_GRAD_WEIGHT && has_groups_of(conv, kChannels) && as_maps<24>(refused, script);
}

bool narrow_as_reduce(const Draft& refused, Script& script) {
  constexpr int64_t kChannels = 4;
  const npu_conv& conv = refused.command.u.conv;
  return conv.mode == NPU_CONV_GRAD_WEIGHT && has_groups_of(conv, kChannels) && as_reduce(refused, script);
}

bool weight_as_reduce(const Draft& refused, Script& script) {
  return refused.command.u.conv.mode == NPU_CONV_GRAD_WEIGHT && as_reduce(refused, script);
}

constexpr uint32_t kConv = for_kind(NPU_CONV);

constexpr Rule kRules[] = {
    {.name = "convolution of narrow groups, as sums in a MAP",
     .why = "a group of a channel or two is a row or two of a product, and few terms per result",
     .price = Price::kPass,
     .kinds = kConv,
     .repeats = false,
     .make = narrow_as_maps},
    {.name = "gradient of narrow groups' weight, as REDUCE",
     .why = "a group of few channels is a few rows of a product, and as many columns",
     .price = Price::kPass,
     .kinds = kConv,
     .repeats = false,
     .make = narrow_as_reduce},
    {.name = "convolution, as products of windows",
     .why =
         "what a kernel meets, laid out beside each other, is the row of a matrix. Results at the padding have fewer "
         "kernel positions and are products of their own",
     .price = Price::kPass,
     .kinds = kConv,
     .repeats = false,
     .make = as_products<NPU_MAX_RANK, NPU_MAX_RANK - 2>},
    {.name = "convolution, as products of windows with few dimensions",
     .why = "the same, with a command for each element of what is one dimension too many",
     .price = Price::kPasses,
     .kinds = kConv,
     .repeats = false,
     .make = as_products<4, 1>},
    {.name = "gradient of the weight, as REDUCE",
     .why = "what is summed lies beside each other: the positions of both operands",
     .price = Price::kLast,
     .kinds = kConv,
     .repeats = false,
     .make = weight_as_reduce},
    {.name = "convolution, as sums in MAPs",
     .why = "a kernel position is an operand that begins elsewhere",
     .price = Price::kLast,
     .kinds = kConv,
     .repeats = false,
     .make = as_maps<24>},
    {.name = "convolution, as REDUCE",
     .why = "strides walk the windows where they lie: nothing is laid out",
     .price = Price::kLast,
     .kinds = kConv,
     .repeats = false,
     .make = as_reduce},
    {.name = "convolution, as sums in smaller MAPs",
     .why = "a kernel position is an operand that begins elsewhere: here of three at a time",
     .price = Price::kLast,
     .kinds = kConv,
     .repeats = false,
     .make = as_maps<3>},
};

}  // namespace

const std::span<const Rule> conv_rules = kRules;

}  // namespace npu::legalise
