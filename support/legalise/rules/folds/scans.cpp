// SCAN without SCAN: blocks are folded, their running folds are scanned, and each block goes on from the one before.
#include "support/legalise/rules/folds/pieces.h"
#include "support/legalise/rules/parts.h"
#include "support/program/op_info.h"

namespace npu::legalise {
namespace {

// The running fold of each block but the last, in scratch that the returned operands walk.
std::vector<Operand> scan_blocks(const Draft& refused, const Plain& plain, Cut cut, Script& script) {
  cut.blocks -= 1;
  std::vector<int64_t> size = refused.size();
  size.back() = cut.blocks;
  Draft map(NPU_MAP, size);
  Writer writer(refused, map);
  Unroll unroll(writer, refused, plain, cut);
  Combiner combiner(writer, refused, plain, cut.dimension);
  std::vector<Operand> totals, running;
  std::vector<Stored> stores;
  for (const uint16_t member : fold_block(combiner, unroll, writer, plain, cut)) {
    totals.push_back(script.scratch(writer.type(member), size));
    running.push_back(script.scratch(writer.type(member), size));
    stores.push_back({static_cast<uint32_t>(running.size() - 1), running.back()});
    writer.store(totals.back(), member);
  }
  writer.finish(refused.program->name);
  script.add(map);
  script.add(fold_again(refused, plain, size, totals, stores));
  return running;
}

// Elements of each block one after the other, from what the blocks before have come to.
void run_blocks(const Draft& refused, const Plain& plain, const Cut& cut, const std::vector<Operand>& running,
                Script& script) {
  std::vector<int64_t> size = refused.size();
  size.back() = cut.blocks;
  Draft map(NPU_MAP, size);
  Writer writer(refused, map);
  Unroll unroll(writer, refused, plain, cut);
  Combiner combiner(writer, refused, plain, cut.dimension);
  Tuple all;
  for (int64_t k = 0; k < cut.copies(); ++k) {
    const uint16_t there = unroll.at(k);
    Tuple one = combiner.element();
    if (k == 0 && plain.kind == NPU_FOLD_SUM && is_float(plain.types[0]))  // 0 + -0 is 0
      one = combiner.combine(combiner.identity(), one);
    if (k == 0 && !running.empty()) {
      const uint16_t behind = writer.emit(NPU_OP_GT, NPU_BOOL, writer.index(cut.dimension), writer.integer(NPU_I64, 0));
      for (const Operand& member : running)
        all.push_back(writer.load(member.moved(-member.form.stride[cut.dimension]), member.form.dtype, behind));
      one = combiner.choose(behind, combiner.combine(all, one), one);
    } else if (k > 0) {
      one = combiner.combine(all, one);
    }
    all = one;
    for (const Stored& stored : plain.stores) writer.store(unroll.moved(stored.to, k), all[stored.member], there);
  }
  writer.finish(refused.program->name);
  script.add(map);
}

bool in_pieces(const Draft& refused, Script& script, int64_t widest) {
  const std::optional<Plain> scan = plain(refused, script);
  if (!scan || refused.points() == 0) return false;
  const Cut cut = share_out(refused, *scan, refused.command.rank - 1, widest, true);
  if (cut.fan < 2 && cut.n > 1) return value_first(refused, *scan, script);
  std::vector<Operand> running;
  if (cut.blocks > 1) running = scan_blocks(refused, *scan, cut, script);
  run_blocks(refused, *scan, cut, running, script);
  return true;
}

// As of folds.
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
    {.name = "a scan in pieces as MAP",
     .why = "pieces of a row are folded, what they come to is scanned, and each piece runs on from the ones before",
     .price = Price::kPasses,
     .kinds = for_kind(NPU_SCAN),
     .repeats = true,
     .make = own<kWide>},
    {.name = "a scan in eights as MAP",
     .why = "as in pieces, for chips that take fewer operands or shorter programs",
     .price = Price::kPasses,
     .kinds = for_kind(NPU_SCAN),
     .repeats = true,
     .make = own<kMiddle>},
    {.name = "a scan in pairs as MAP",
     .why = "as in pieces, for chips that take few operands or short programs, and where other ways led nowhere",
     .price = Price::kLast,
     .kinds = for_kind(NPU_SCAN),
     .repeats = true,
     .make = any<kNarrow>},
};

}  // namespace

const std::span<const Rule> scan_rules = kRules;

}  // namespace npu::legalise
