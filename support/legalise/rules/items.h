// What the rules for SORT work on: each key with its place in its row, as integers that are all different and whose
// order is the one that is wanted. So every order of work gives the stable result, and what stands behind the end of a
// row is greater than all.
#pragma once
#include <optional>

#include "support/legalise/draft/writer.h"
#include "support/legalise/rules/rule.h"

namespace npu::legalise {

// One item in a program.
struct Item {
  uint16_t key = NPU_NO_VALUE, place = NPU_NO_VALUE;
};

// An array of items in scratch: rows of `length`, dense.
struct Items {
  Operand key;                   // i64. Alone: 32 bits of key, then 32 of the place
  std::optional<Operand> place;  // i32, where a key needs more than 32 bits
  int64_t length = 0;

  // Views of items: strides are those of the index space of a draft.
  Items view(int64_t first, const std::vector<int64_t>& strides) const;
  Item load(Writer& writer, uint16_t mask = NPU_NO_VALUE) const;
  Item load_at(Writer& writer, uint16_t offset) const;
  void store(Writer& writer, const Item& item, uint16_t mask = NPU_NO_VALUE) const;
};

// Rows, and the keys of a row.
inline int64_t row_length(const Draft& sort) {
  return sort.command.size[sort.command.rank - 1];
}
inline int64_t rows_of(const Draft& sort) {
  return sort.points() / row_length(sort);
}

Items scratch_items(Script& script, const Draft& sort, int64_t length);
// Writes the commands that make the items of a SORT's keys; those behind the end of a row, up to `length`, too.
Items items_of(const Draft& sort, Script& script, int64_t length);
// Is a greater than b?
uint16_t greater(Writer& writer, const Item& a, const Item& b);
// Writes the commands that store what belongs to the first items of each row: the results of the SORT.
void store_results(const Draft& sort, const Items& sorted, Script& script);

}  // namespace npu::legalise
