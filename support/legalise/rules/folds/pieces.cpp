#include "support/legalise/rules/folds/pieces.h"

#include <algorithm>

#include "support/legalise/rules/parts.h"

namespace npu::legalise {
namespace {

// A MAP that folds blocks along a dimension, and the REDUCE of what that leaves, if that is more than one for each row.
void fold_blocks(const Draft& refused, const Plain& plain, const Cut& cut, Script& script) {
  std::vector<int64_t> size = refused.size();
  if (cut.dimension >= 0) size[static_cast<size_t>(cut.dimension)] = cut.blocks;
  Draft map(NPU_MAP, size);
  Writer writer(refused, map);
  Unroll unroll(writer, refused, plain, cut);
  Combiner combiner(writer, refused, plain, cut.dimension);
  const Tuple folded = fold_block(combiner, unroll, writer, plain, cut);
  const bool done = inner_points(map, kept_rank(refused)) == 1;
  std::vector<Operand> left;
  if (done) {
    for (const Stored& stored : plain.stores)
      writer.store(first_dimensions(stored.to, kept_rank(refused)), folded[stored.member]);
  } else {
    for (const uint16_t member : folded) {
      left.push_back(script.scratch(writer.type(member), size));
      writer.store(left.back(), member);
    }
  }
  writer.finish(refused.program->name);
  script.add(map);
  if (!done) script.add(fold_again(refused, plain, size, left, plain.stores));
}

// Which inner dimension to begin with: the longest where order does not matter, else the last.
int dimension_to_fold(const Draft& refused, const Plain& plain) {
  int best = refused.command.rank - 1;
  for (int d = kept_rank(refused); d < refused.command.rank; ++d) {
    const int64_t extent = refused.command.size[d], most = refused.command.size[best];
    if (plain.any_order() ? extent > most : extent > 1) best = d;
  }
  return best;
}

bool in_pieces(const Draft& refused, Script& script, int64_t widest) {
  const std::optional<Plain> fold = plain(refused, script);
  if (!fold || inner_points(refused, kept_rank(refused)) < 2) return false;
  const Cut cut = share_out(refused, *fold, dimension_to_fold(refused, *fold), widest, !fold->any_order());
  if (cut.fan < 2) return value_first(refused, *fold, script);
  fold_blocks(refused, *fold, cut, script);
  return true;
}

bool one_element(const Draft& refused, Script& script) {
  const std::optional<Plain> fold = plain(refused, script);
  if (!fold || inner_points(refused, kept_rank(refused)) != 1) return false;
  fold_blocks(refused, *fold, {}, script);
  return true;
}

// How many elements a program takes. Programs grow with it, commands get fewer.
constexpr int64_t kWide = 48, kMiddle = 8, kNarrow = 2;

template <int64_t Widest>
bool own(const Draft& refused, Script& script) {
  return !for_own_folds(refused) && in_pieces(refused, script, Widest);
}

template <int64_t Widest>
bool any(const Draft& refused, Script& script) {
  return in_pieces(refused, script, Widest);
}

constexpr Rule kRules[] = {
    {.name = "a fold of one element as MAP",
     .why = "an element by itself is its fold, or the identity where it is left out",
     .price = Price::kCalls,
     .kinds = for_kind(NPU_REDUCE),
     .repeats = false,
     .make = one_element},
    {.name = "a fold in pieces as MAP",
     .why = "pieces of a row are folded by programs that load several elements, then the pieces; masked elements are "
            "the identity, or carry a flag, and elements of custom folds keep their order",
     .price = Price::kPasses,
     .kinds = for_kind(NPU_REDUCE),
     .repeats = true,
     .make = own<kWide>},
    {.name = "a fold in eights as MAP",
     .why = "as in pieces, for chips that take fewer operands or shorter programs",
     .price = Price::kPasses,
     .kinds = for_kind(NPU_REDUCE),
     .repeats = true,
     .make = own<kMiddle>},
    {.name = "a fold in pairs as MAP",
     .why = "as in pieces, for chips that take few operands or short programs, and where other ways led nowhere",
     .price = Price::kLast,
     .kinds = for_kind(NPU_REDUCE),
     .repeats = true,
     .make = any<kNarrow>},
};

}  // namespace

const std::span<const Rule> piece_rules = kRules;

}  // namespace npu::legalise
