// Where the integers of a program lie, as far as that follows from its constants, sizes, checks and known parameters;
// and along which dimensions a value may differ. Rules that make SCATTER from less walk what it may store to.
#pragma once
#include <cstdint>
#include <vector>

#include "support/legalise/draft/draft.h"

namespace npu::legalise {

// low, low + step, ..., high; step 0: low only. Unknown: it may be anything.
struct Range {
  bool known = false;
  int64_t low = 0, high = 0, step = 0;
  bool within(int64_t least, int64_t most) const { return known && low >= least && high <= most; }
};

Range range(int64_t low, int64_t high, int64_t step);
Range operator+(const Range& a, const Range& b);
Range operator*(const Range& a, const Range& b);
// All that is in one of them.
Range either(const Range& a, const Range& b);

// Of each instruction of the draft's program (one each segment), at points where the value `mask` is true.
std::vector<Range> ranges_of(const Draft& draft, uint16_t mask);
// Of each instruction, bit d: its value, or where it takes place, may differ along dimension d.
std::vector<uint32_t> dimensions_of(const Draft& draft);
// The parameters that say where a program's store_at stores.
std::vector<uint32_t> params_of_offsets(const Program& program);

}  // namespace npu::legalise
