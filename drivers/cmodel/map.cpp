// MAP and SCATTER.
#include <algorithm>
#include <cstring>

#include "drivers/cmodel/direct.h"
#include "drivers/cmodel/exec.h"
#include "drivers/cmodel/pool.h"

namespace cmodel {
namespace {

// Does some view run along the rows of the last two dimensions? Then tiles should be square.
bool runs_across(const Space& space, int views) {
  if (space.rank < 2) return false;
  for (int v = 0; v < views; ++v) {
    const int64_t inner = space.stride[space.rank - 1][v], outer = space.stride[space.rank - 2][v];
    if (outer == 1 && inner != 0 && inner != 1) return true;
  }
  return false;
}

int first_store(const Plan& plan) {
  for (const Op& op : plan.ops)
    if (op.step == Step::kStore) return op.view;
  return kNone;
}

}  // namespace

bool run_map(const Job& job, Failure& failure) {
  const Plan& plan = *job.program->plan;
  if (plan.direct.kind != Direct::kNot && (run_direct(job, plan.direct) || run_direct_rows(job, plan.direct)))
    return true;
  Space space;
  // Scatters write in row-major order; everything else may be walked in the order of the output's memory.
  space.set(job, plan, 0, job.command.rank, plan.stores_at ? kNone : first_store(plan));
  const int views = static_cast<int>(plan.views.size());
  const Segment& segment = plan.segments[0];
  FailureSink sink;
  const bool square = !plan.stores_at && runs_across(space, views);
  const int64_t block = plan.slots > 8 ? kBlock / 2 : kBlock;
  const Tiling tiling(space, views, block, square);
  auto body = [&](int64_t begin, int64_t end) {
    Frame& frame = prepare(job, sink, block);
    Tile tile;
    for (int64_t i = begin; i < end && !sink.failed(); ++i) {
      tiling.at(i, nullptr, tile);
      run_tile(frame, segment.begin, segment.end, tile);
    }
  };
  if (plan.stores_at) {
    body(0, tiling.count());  // addresses may repeat: the order is part of the result
  } else {
    const int64_t cost = std::max<int64_t>(plan.each_cost, 100);  // picoseconds per point
    const int64_t grain = std::max<int64_t>(1, 10'000'000 / cost / std::max<int64_t>(tiling.points(), 1));
    parallel_for(tiling.count(), grain, body);
  }
  return sink.finish(failure);
}

}  // namespace cmodel
