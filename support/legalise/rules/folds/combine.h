// A fold's arithmetic as instructions of a program: what an element is worth, and two of them in one.
#pragma once
#include <vector>

#include "support/legalise/rules/folds/form.h"

namespace npu::legalise {

// Values of a program in the making: a fold's members. Where elements may be left out, a last one says whether there
// is anything (kinds whose identity shows in their results).
using Tuple = std::vector<uint16_t>;

class Combiner {
 public:
  // Of the fold `plain` of `source`, whose values `writer` copies. `along`: elements come in the order of this
  // dimension, so that of equals the first is the lowest where that is what argmax and argmin have as index.
  Combiner(Writer& writer, const Draft& source, const Plain& plain, int along = -1);

  // Does the tuple need that last member?
  static bool flagged(const Plain& plain);
  // The types of a tuple.
  static std::vector<int> types(const Plain& plain);

  // The element of the point that the writer copies: what was left out is the identity.
  Tuple element();
  Tuple identity();
  // Left comes before right.
  Tuple combine(const Tuple& left, const Tuple& right);
  Tuple choose(uint16_t condition, const Tuple& yes, const Tuple& no);

 private:
  uint16_t where(uint16_t condition, uint16_t yes, uint16_t no);
  uint16_t op(npu_op op, uint16_t a, uint16_t b) { return writer_.emit(op, writer_.type(a), a, b); }
  uint16_t is(npu_op op, uint16_t a, uint16_t b = NPU_NO_VALUE) { return writer_.emit(op, NPU_BOOL, a, b); }
  Tuple members(const Tuple& left, const Tuple& right);
  Tuple extreme(const Tuple& left, const Tuple& right);
  Tuple moments(const Tuple& left, const Tuple& right);
  Tuple custom(const Tuple& left, const Tuple& right);

  Writer& writer_;
  const Program& program_;
  const Plain& plain_;
  const bool rising_;
};

// How many instructions a combination of two elements takes, at most.
int combine_length(const Draft& source, const Plain& plain, int along);
// The value that leaves every other as it is, as a constant; of argmax and argmin, and of tuples, that of `member`.
uint16_t identity(Writer& writer, const Plain& plain, uint32_t member);
// A constant of any type.
uint16_t number(Writer& writer, int dtype, int value);

}  // namespace npu::legalise
