// How far approximated instructions may be off (docs/isa.md, "Functions").
#pragma once

namespace npu {

struct Approximation {
  double ulp = 0;       // units in the last place of the result's type; 0: the result is exact
  double absolute = 0;  // allowed besides: near a zero, or far out
};

// Of an instruction with a float result; `pow` of integers is exact and not asked for.
Approximation approximation(int op);

}  // namespace npu
