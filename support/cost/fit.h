// A chip's file from measured times: the numbers with which the model of chip.h comes nearest to them.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "support/cost/chip.h"

namespace npu {

struct Sample {
  Work work;
  double milliseconds = 0;  // measured, above 0
};

struct Fit {
  Chip chip;
  // Predicted over measured time, or the other way round where that is larger: 1.2 is a fifth off.
  double median_ratio = 1, worst_ratio = 1;
  // What no sample depends on keeps its value from the start, and is named here: "matrix.fill_cycles".
  std::vector<std::string> unknown;
};

// `start`: the clock, the size of the SRAM and the width of the vector unit are taken from it as they are, since times
// tell only ratios of them; the rest is where the search begins. Throws std::invalid_argument without samples.
Fit fit_chip(const Chip& start, std::span<const Sample> samples);

}  // namespace npu
