// Folds and scans without REDUCE and SCAN: a MAP whose program takes several elements along one dimension and combines
// them, then the same for what it leaves, which is a fraction.
#pragma once
#include "support/legalise/rules/folds/combine.h"

namespace npu::legalise {

// How the n elements along a dimension are shared out: block i of `blocks` has element i * step + k * next as its k-th.
struct Cut {
  int dimension = -1;  // none: there is one element
  int64_t n = 1, fan = 1, blocks = 1;
  bool in_order =
      false;  // blocks of neighbours; otherwise neighbours lie in different blocks, so that MAPs walk densely

  int64_t step() const { return in_order ? fan : 1; }
  int64_t next() const { return in_order ? 1 : blocks; }
  int64_t copies() const { return in_order ? fan : (n + blocks - 1) / blocks; }
  // The last block may have no k-th element.
  bool partial(int64_t k) const { return (blocks - 1) * step() + k * next() >= n; }
};

// Lets a writer copy an element of a block after the other.
class Unroll {
 public:
  Unroll(Writer& writer, const Draft& source, const Plain& plain, const Cut& cut);
  // What is copied from now on is of element k. Whether that is there, where it may not be.
  uint16_t at(int64_t k);
  // The same element's operand in another array of the shape.
  Operand moved(const Operand& operand, int64_t k) const;
  // Behind the last copy.
  void end();

 private:
  uint16_t position(int64_t k, int dtype);
  Writer& writer_;
  const Cut cut_;
  const std::vector<npu_instr>& instrs_;
  std::vector<uint16_t> places_;  // instructions that ask for the place along the dimension, or its extent
};

// Shares out `dimension` so that no program has more than about `widest` elements, and fewer where they do not fit.
// Less than 2 at a time: they do not fit.
Cut share_out(const Draft& source, const Plain& plain, int dimension, int64_t widest, bool in_order);
// Each block's fold, as a tuple, in a MAP over the blocks.
Tuple fold_block(Combiner& combiner, Unroll& unroll, Writer& writer, const Plain& plain, const Cut& cut);
// The same REDUCE or SCAN over tuples that lie in memory, `size` being the index space.
Draft fold_again(const Draft& refused, const Plain& plain, const std::vector<int64_t>& size,
                 const std::vector<Operand>& tuple, const std::vector<Stored>& stores);
// Computes what is folded (or scanned) into scratch, so that the command only loads it. False: it does already.
bool value_first(const Draft& refused, const Plain& plain, Script& script);

constexpr const char* kValueFirst = "the value in scratch, then its fold";
constexpr const char* kArgAsMax = "argmax as max, then the lowest place of it";
constexpr const char* kMomentsAsSums = "moments as sums";
constexpr const char* kTurned = "min as max of what is turned around";
constexpr const char* kLogicAsExtremes = "and, or as min, max";
constexpr const char* kLogicAsCount = "logic as a count";
constexpr const char* kMapAsReduce = "a MAP as a REDUCE without folds";

// Has a rule begun that makes use of a chip's own folds? Who makes folds out of MAPs does better with the command
// before.
bool for_own_folds(const Draft& draft);

}  // namespace npu::legalise
