// What a draft does with its operands.
#pragma once
#include <vector>

#include "support/legalise/draft/draft.h"

namespace npu::legalise {

struct Use {
  bool read = false;  // also by a store that meets what is there
  bool written = false;
  bool partly = false;        // written behind a mask or where the program says: what is there may stay
  bool computed = false;      // by load_at or store_at
  int rank = 0;               // of the points at which it is touched
  std::vector<int64_t> size;  // the extents that its strides belong to; 1 beyond `rank`
};

// One for each operand.
std::vector<Use> uses_of(const Draft& draft);

// Row-major without gaps; but for dimensions of stride 0 where `broadcast` allows them. Of size 1, any stride will do.
bool is_dense(const Operand& operand, const std::vector<int64_t>& size, bool broadcast);
}  // namespace npu::legalise
