// CONV from less: products of windows, or sums.
#include <algorithm>

#include "support/legalise/rules/parts.h"
#include "support/legalise/rules/products/conv_parts.h"

namespace npu::legalise {
namespace {

// Every part of a convolution whose program other rules have cut off.
template <class Add>
bool each_part(const Draft& conv, Script& script, const Add& add, const Share& share = {}) {
  if (conv.program) return false;
  const std::vector<Contraction> parts = conv_parts(conv, share);
  if (parts.empty() && conv.points() == 0) {  // a rule makes something, and be it a COPY of nothing
    Contraction nothing;
    nothing.result = conv.operands[2];
    nothing.kept = {{0}};
    return add_zeros(nothing, script, 1);
  }
  return !parts.empty() && std::all_of(parts.begin(), parts.end(), [&](const Contraction& part) {
    return points(part.kept) == 0 || points(part.summed) ? add(part) : add_zeros(part, script, NPU_MAX_RANK);
  });
}

template <int MostRank, int MostBatch>
bool as_products(const Draft& refused, Script& script) {
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
     .price = Price::kPasses,
     .kinds = kConv,
     .repeats = false,
     .make = weight_as_reduce},
    {.name = "convolution, as sums in MAPs",
     .why = "a kernel position is an operand that begins elsewhere",
     .price = Price::kPasses,
     .kinds = kConv,
     .repeats = false,
     .make = as_maps<24>},
    {.name = "convolution, as REDUCE",
     .why = "strides walk the windows where they lie: nothing is laid out",
     .price = Price::kPasses,
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
