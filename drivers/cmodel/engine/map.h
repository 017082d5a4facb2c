// What the ways of MAP and SCATTER share: the walk over a command's points.
#pragma once
#include <algorithm>
#include <cstdint>

#include "drivers/cmodel/engine/tuning.h"
#include "drivers/cmodel/interpreter/interpreter.h"

namespace cmodel {

struct MapProblem {
  explicit MapProblem(const Job& job) : job(job), plan(*job.program->plan) {}

  const Job& job;
  const Plan& plan;
  FailureSink sink;
  int views = 0;
  int64_t cost = 0;      // picoseconds per point
  uint64_t streams = 0;  // see streamed_operands
  Space space;
  // Of tiles.
  bool square = false;
  int64_t long_row = 0, block = 0;  // points

  // Scatters write in row-major order; everything else may be walked in the order of the output's memory.
  void find_space();
  void choose_tiles();
  // Tiles begin .. end, whose first point is number `position`, at offsets that `base` is added to.
  void run_tiles(Frame& frame, const Tiling& tiles, int64_t begin, int64_t end, const int64_t* base, int64_t position);
};

// Addresses may repeat, and the last store in row-major order stays.
void run_scatter(MapProblem& problem);

}  // namespace cmodel
