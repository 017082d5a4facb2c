// MAP, and the walk over points that it shares with SCATTER.
#include "drivers/cmodel/engine/map.h"

#include <algorithm>
#include <optional>

#include "drivers/cmodel/choose/choice.h"
#include "drivers/cmodel/choose/way.h"
#include "drivers/cmodel/engine/one_instruction.h"
#include "drivers/cmodel/interpreter/row_loops.h"
#include "drivers/cmodel/threads/pool.h"

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

// May the last two dimensions become one? Where that is no question of coordinates or masks, and results are dense in
// it.
bool can_fold(const Plan& plan, const Space& space) {
  if (space.rank < 3 || plan.indexes || plan.addresses) return false;
  const int last = space.rank - 1;
  for (const Op& op : plan.ops) {
    if (op.step != Step::kLoad && op.step != Step::kStore) continue;
    if (op.mask != NPU_NO_VALUE || space.stride[last - 2][op.view] == 1) return false;
    if (op.step == Step::kStore && space.stride[last - 1][op.view] != space.stride[last][op.view] * space.size[last])
      return false;
  }
  return true;
}

// Computed from values that are the same for a whole row, as a norm's deviation is from the variance.
bool is_row_value(const Plan& plan, const Space& space, const Op& op) {
  if (op.step != Step::kCompute) return false;
  const uint16_t ids[3] = {op.a, op.b, op.c};
  for (int k = 0; k < 3; ++k) {
    if (!(op.used >> k & 1)) continue;
    const Op& from = plan.ops[ids[k]];
    const bool constant = from.op == NPU_OP_CONST || from.op == NPU_OP_PARAM || from.op == NPU_OP_SIZE;
    const bool load = from.step == Step::kLoad && space.stride[space.rank - 1][from.view] == 0;
    if (!constant && !load && !is_row_value(plan, space, from)) return false;
  }
  return true;
}

// A program that is one compiled loop, or a norm, between operands of its own types touches no memory but theirs. Of
// several dimensions it takes long rows one by one.
bool only_loop(const Job& job, const Plan& plan, const Space& space) {
  if (space.rank == 0) return false;
  if (space.rank > 1 && space.size[space.rank - 1] < kLongLoopRow) return false;
  bool fixed[NPU_MAX_INSTRS];
  find_fixed(job, fixed);
  int loops = 0;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const bool loop = op.step == Step::kLoop || op.step == Step::kNormalize;
    loops += loop;
    if (fixed[i] || loop || op.step == Step::kNothing || is_row_value(plan, space, op)) continue;
    if (op.step != Step::kLoad && op.step != Step::kStore) return false;
    const int dtype = op.step == Step::kLoad ? op.dtype : plan.ops[op.a].dtype;
    const int64_t stride = space.stride[space.rank - 1][op.view];
    const int stored = job.operands[op.imm].dtype;
    const bool converts = (stored == NPU_BF16 || stored == NPU_F16) && dtype == NPU_F32 &&
                          (op.step == Step::kLoad ? op.is(Trait::kOnlyLooped) : plan.ops[op.a].is(Trait::kOnlyStored));
    if (stride != 0 && (stride != 1 || (stored != dtype && !converts))) return false;
  }
  return loops == 1;
}

int first_store(const Plan& plan) {
  for (const Op& op : plan.ops)
    if (op.step == Step::kStore) return op.view;
  return kNone;
}

}  // namespace

PointWalk::PointWalk(const Job& job)
    : job(job),
      plan(*job.program->plan),
      views(static_cast<int>(plan.views.size())),
      cost(std::max<int64_t>(plan.each_cost, kMapPoint)),
      streams(streamed_operands(job)) {
  // Scatters write in row-major order; everything else may be walked in the order of the output's memory.
  space.set(job, plan, 0, job.command.rank, plan.stores_at ? kNone : first_store(plan));
}

void PointWalk::choose_tiles() {
  if (plan.indexes && !plan.stores_at) space.widen_tiles(kSmallTile);  // small images
  square = !plan.stores_at && runs_across(space, views);
  if (!square && !job.command.choice && can_fold(plan, space)) space.fold_columns(views, kSmallTile);
  // Rows that computed addresses lead to are moved one by one within a tile, at a fraction of what a tile costs. What
  // coordinates are computed into is computed once per column of a tile, so tiles of several rows are cheaper.
  long_row = plan.addresses || space.inner ? kBlock : plan.indexes ? kIndexRow : kTileRow;
  // Several rows with coordinates: most values are those of a row or a column, and take no part of the first cache.
  const bool planes = plan.indexes && space.rank > 1 && space.size[space.rank - 1] < long_row;
  const int64_t chosen = job.command.choice ? choice_of(job.command).tile : 0;
  const int64_t decided = only_loop(job, plan, space) ? 8 * kBlock : planes ? 2 * kBlock : block_of(plan);
  block = chosen ? chosen : decided;
}

void PointWalk::run_tiles(Frame& frame, const Tiling& tiles, int64_t begin, int64_t end, const int64_t* base,
                          int64_t position) {
  if (end - begin > 1 && !plan.invariants.empty()) hoist(frame);
  const Segment& segment = plan.segments[0];
  Tile tile;
  for (int64_t i = begin; i < end && !sink.failed(); ++i) {
    tiles.at(i, base, tile);
    tile.position += position;
    run_tile(frame, segment.begin, segment.end, tile);
  }
}

namespace {

struct MapProblem {
  explicit MapProblem(const Job& job) : job(job), plan(*job.program->plan) {}  // an aggregate would clear all of `walk`

  const Job& job;
  const Plan& plan;
  std::optional<PointWalk> walk;  // where one call does not do
};

const char* refuses_call(MapProblem& p) {
  return p.plan.one_instruction.kind == OneInstruction::kNot ? "the program has several instructions" : nullptr;
}

const char* refuses_row_loops(MapProblem& problem) {
  const PointWalk& p = problem.walk.emplace(problem.job);
  if (p.job.command.choice) return "a tile was asked for";
  if (p.streams != 0) return "results bypass the caches";
  if (p.plan.loops.empty()) return "the program has no compiled loop";
  if (p.plan.indexes) return "the program reads coordinates";
  if (p.space.rank < 2 || p.space.total == 0) return "there is one row";
  return p.space.size[p.space.rank - 1] < kLoopRow ? "rows are short" : nullptr;
}

// Rows that lie dense in all operands, one call of each compiled loop per row.
const char* run_row_loops(MapProblem& problem) {
  PointWalk& p = *problem.walk;
  const Space& space = p.space;
  const int last = space.rank - 1;
  const int64_t cols = space.size[last], rows = space.total / cols;
  RowView view[kMaxViews];
  for (int v = 0; v < p.views; ++v) {
    view[v] = {p.job.operands[p.plan.views[v].number].ptr, space.stride[last][v], false};
    for (int d = 0; d < last; ++d) view[v].moves |= space.stride[d][v] != 0;
  }
  const auto ready = [&]() -> Frame& {
    Frame& frame = prepare(p.job, p.sink);
    if (!p.plan.invariants.empty()) hoist(frame);
    return frame;
  };
  {
    RowLoops loops(ready(), view, cols, false);
    if (!loops.plan(p.plan.segments[0])) return "rows do not lie dense, or have masks or computed addresses";
    if (cols < kLoopTileRow && !loops.only_loops()) return "rows are short for what runs beside the loops";
  }
  parallel_for(rows, grain_for(p.cost * cols), [&](int64_t begin, int64_t end) {
    RowLoops loops(ready(), view, cols, false);
    loops.plan(p.plan.segments[0]);
    // Rows of the last but one dimension are a fixed step apart.
    const int64_t together = space.size[last - 1], *step = space.stride[last - 1];
    RowWalk walk(space, last - 1, p.views);
    walk.start(begin / together, nullptr);
    for (int64_t r = begin; r < end; walk.next()) {
      const int64_t first = r % together, count = std::min(together - first, end - r);
      int64_t offset[kMaxViews];
      for (int v = 0; v < p.views; ++v) offset[v] = walk.offset[v] + first * step[v];
      loops.run({offset, step, count, 0, 0});
      r += count;
    }
  });
  return nullptr;
}

void run_all_tiles(MapProblem& problem) {
  PointWalk& p = *problem.walk;
  p.choose_tiles();
  const Tiling tiling(p.space, p.views, p.block, p.square, p.long_row);
  parallel_for(tiling.count(), grain_for(p.cost * tiling.points()), [&](int64_t begin, int64_t end) {
    Frame& frame = prepare(p.job, p.sink, p.block);
    frame.streams = p.streams;
    p.run_tiles(frame, tiling, begin, end, nullptr, 0);
    stream_fence();
  });
}

const char* run_call(MapProblem& p) {
  return run_contiguous(p.job, p.plan.one_instruction);
}
const char* run_row_calls(MapProblem& p) {
  return run_contiguous_rows(p.job, p.plan.one_instruction);
}

constexpr Way<MapProblem> kWays[] = {
    {"one kernel call", refuses_call, run_call},
    {"a kernel call per row", refuses_call, run_row_calls},
    {"compiled loops by row", refuses_row_loops, run_row_loops},
    {"tiles", nullptr, always<run_all_tiles>},
};

}  // namespace

bool run_map(const Job& given, Failure& failure) {
  Job own;
  const Job& job = with_plan(given, own);
  MapProblem problem(job);
  if (problem.plan.stores_at)
    run_scatter(problem.walk.emplace(job));
  else
    run_first(job.command, kWays, problem);
  return !problem.walk || problem.walk->sink.finish(failure);
}

}  // namespace cmodel
