// What the ways of MAP and SCATTER share: the walk over a command's points.
#pragma once
#include <algorithm>
#include <cstdint>

#include "drivers/cmodel/engine/tuning.h"
#include "drivers/cmodel/interpreter/interpreter.h"

namespace cmodel {

struct PointWalk {
  explicit PointWalk(const Job& job);

  const Job& job;
  const Plan& plan;
  const int views;
  const int64_t cost;      // picoseconds per point
  const uint64_t streams;  // see streamed_operands
  FailureSink sink;
  Space space;
  // Of tiles.
  bool square = false;
  int64_t long_row = 0, block = 0;  // points

  void choose_tiles();
  // Tiles begin .. end, whose first point is number `position`, at offsets that `base` is added to.
  void run_tiles(Frame& frame, const Tiling& tiles, int64_t begin, int64_t end, const int64_t* base, int64_t position);
};

// Addresses may repeat, and the last store in row-major order stays.
void run_scatter(PointWalk& walk);

}  // namespace cmodel
