// MAP and SCATTER.
#include <algorithm>
#include <cstring>
#include <utility>

#include "drivers/cmodel/choose/choice.h"
#include "drivers/cmodel/engine/one_instruction.h"
#include "drivers/cmodel/engine/scatter_split.h"
#include "drivers/cmodel/interpreter/interpreter.h"
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

// The bytes that an operand's points, or its computed addresses, can reach.
std::pair<const char*, const char*> reach(const Job& job, const Op& op) {
  const Operand& operand = job.operands[op.imm];
  const int log_size = log_size_of(operand.dtype);
  if (op.step == Step::kLoadAt || op.step == Step::kStoreAt) {
    if (operand.limit == 0) return {operand.begin, operand.end};
    return {operand.ptr, operand.ptr + (operand.limit << log_size)};
  }
  int64_t low = 0, high = 1;
  for (int d = 0; d < job.command.rank; ++d) {
    const int64_t last = (job.command.size[d] - 1) * operand.stride[d];
    (last < 0 ? low : high) += last;
  }
  return {operand.ptr + low * (int64_t{1} << log_size), operand.ptr + (high << log_size)};
}

// Can several threads run the program side by side, each writing its own part? Not if what one writes another one reads
// or writes as well, or if there are stores that each would do.
bool only_scatters(const Job& job, const Plan& plan) {
  for (const Op& op : plan.ops) {
    if (op.step == Step::kStore) return false;
    if (op.step != Step::kLoad && op.step != Step::kLoadAt && op.step != Step::kStoreAt) continue;
    if (job.operands[op.imm].immediate) continue;
    const auto [begin, end] = reach(job, op);
    for (const Op& store : plan.ops) {
      if (store.step != Step::kStoreAt || (op.step == Step::kStoreAt && op.imm == store.imm)) continue;
      const auto [first, last] = reach(job, store);
      if (begin < last && first < end) return false;
    }
  }
  return true;
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
  constexpr int64_t kLongRow = 512;
  if (space.rank == 0) return false;
  if (space.rank > 1 && space.size[space.rank - 1] < kLongRow) return false;
  bool fixed[NPU_MAX_INSTRS];
  find_fixed(job, fixed);
  int loops = 0;
  for (size_t i = 0; i < plan.ops.size(); ++i) {
    const Op& op = plan.ops[i];
    const bool loop = op.step == Step::kGroup || op.step == Step::kNormalize;
    loops += loop;
    if (fixed[i] || loop || op.step == Step::kNothing || is_row_value(plan, space, op)) continue;
    if (op.step != Step::kLoad && op.step != Step::kStore) return false;
    const int dtype = op.step == Step::kLoad ? op.dtype : plan.ops[op.a].dtype;
    const int64_t stride = space.stride[space.rank - 1][op.view];
    const int stored = job.operands[op.imm].dtype;
    const bool converts = (stored == NPU_BF16 || stored == NPU_F16) && dtype == NPU_F32 &&
                          (op.step == Step::kLoad ? op.in_loops : plan.ops[op.a].only_stored);
    if (stride != 0 && (stride != 1 || (stored != dtype && !converts))) return false;
  }
  return loops == 1;
}

int first_store(const Plan& plan) {
  for (const Op& op : plan.ops)
    if (op.step == Step::kStore) return op.view;
  return kNone;
}

// Rows that lie dense in all operands, one call of each compiled loop per row. False: nothing was done.
bool run_by_rows(const Job& job, const Plan& plan, const Space& space, FailureSink& sink) {
  constexpr int64_t kShortestRow = 32, kTileRow = 128;  // shorter rows share tiles
  const int last = space.rank - 1, views = static_cast<int>(plan.views.size());
  if (plan.groups.empty() || plan.indexes || space.rank < 2 || space.total == 0) return false;
  const int64_t cols = space.size[last], rows = space.total / cols;
  if (cols < kShortestRow) return false;
  RowView view[kMaxViews];
  for (int v = 0; v < views; ++v) {
    view[v] = {job.operands[plan.views[v].number].ptr, space.stride[last][v], false};
    for (int d = 0; d < last; ++d) view[v].moves |= space.stride[d][v] != 0;
  }
  const auto ready = [&]() -> Frame& {
    Frame& frame = prepare(job, sink);
    if (!plan.invariants.empty()) hoist(frame);
    return frame;
  };
  {
    RowLoops loops(ready(), view, cols, false);
    if (!loops.plan(plan.segments[0]) || (cols < kTileRow && !loops.only_loops())) return false;
  }
  const int64_t cost = std::max<int64_t>(plan.each_cost, 100) * cols;  // picoseconds per row
  parallel_for(rows, std::max<int64_t>(1, 10'000'000 / cost), [&](int64_t begin, int64_t end) {
    RowLoops loops(ready(), view, cols, false);
    loops.plan(plan.segments[0]);
    // Rows of the last but one dimension are a fixed step apart.
    const int64_t together = space.size[last - 1], *step = space.stride[last - 1];
    RowWalk walk(space, last - 1, views);
    walk.start(begin / together, nullptr);
    for (int64_t r = begin; r < end; walk.next()) {
      const int64_t first = r % together, count = std::min(together - first, end - r);
      int64_t offset[kMaxViews];
      for (int v = 0; v < views; ++v) offset[v] = walk.offset[v] + first * step[v];
      loops.run({offset, step, count, 0, 0});
      r += count;
    }
  });
  return true;
}

}  // namespace

bool run_map(const Job& given, Failure& failure) {
  Job own;
  const Job& job = with_plan(given, own);
  const Plan& plan = *job.program->plan;
  if (plan.direct.kind != Direct::kNot && (run_direct(job, plan.direct) || run_direct_rows(job, plan.direct)))
    return true;
  Space space;
  // Scatters write in row-major order; everything else may be walked in the order of the output's memory.
  space.set(job, plan, 0, job.command.rank, plan.stores_at ? kNone : first_store(plan));
  const int views = static_cast<int>(plan.views.size());
  const Segment& segment = plan.segments[0];
  FailureSink sink;
  const uint64_t streams = streamed_operands(job);
  if (!plan.stores_at && !job.command.choice && streams == 0 && run_by_rows(job, plan, space, sink))
    return sink.finish(failure);
  if (plan.indexes && !plan.stores_at) space.widen_tiles(512);  // small images
  const bool square = !plan.stores_at && runs_across(space, views);
  constexpr int64_t kSmallTile = 512;
  if (!square && !job.command.choice && can_fold(plan, space)) space.fold_columns(views, kSmallTile);
  // Rows that computed addresses lead to are moved one by one within a tile, at a fraction of what a tile costs.
  const int64_t long_row = plan.addresses || space.inner ? kBlock : plan.indexes ? 512 : 128;
  // Several rows with coordinates: most values are those of a row or a column, and take no part of the first cache.
  const bool planes = plan.indexes && space.rank > 1 && space.size[space.rank - 1] < long_row;
  const int64_t chosen = job.command.choice ? choice_of(job.command).tile : 0;
  const int64_t decided = only_loop(job, plan, space) ? 8 * kBlock : planes ? 2 * kBlock : block_of(plan);
  const int64_t block = chosen ? chosen : decided;
  // What coordinates are computed into is computed once per column of a tile, so tiles of several rows are cheaper.
  const Tiling tiling(space, views, block, square, long_row);
  auto run = [&](Frame& frame, const Tiling& tiles, int64_t begin, int64_t end, const int64_t* base, int64_t position) {
    if (end - begin > 1 && !plan.invariants.empty()) hoist(frame);
    Tile tile;
    for (int64_t i = begin; i < end && !sink.failed(); ++i) {
      tiles.at(i, base, tile);
      tile.position += position;
      run_tile(frame, segment.begin, segment.end, tile);
    }
  };
  const int64_t cost = std::max<int64_t>(plan.each_cost, 100);  // picoseconds per point
  if (!plan.stores_at) {
    const int64_t grain = std::max<int64_t>(1, 10'000'000 / cost / std::max<int64_t>(tiling.points(), 1));
    parallel_for(tiling.count(), grain, [&](int64_t begin, int64_t end) {
      Frame& frame = prepare(job, sink, block);
      frame.streams = streams;
      run(frame, tiling, begin, end, nullptr, 0);
      stream_fence();
    });
    return sink.finish(failure);
  }
  // Addresses may repeat, and the last store in row-major order stays.
  const int64_t parts = pool_threads();
  if (parts == 1 || space.total * cost < 100'000'000 || !only_scatters(job, plan)) {
    run(prepare(job, sink, block), tiling, 0, tiling.count(), nullptr, 0);
    return sink.finish(failure);
  }
  if (const int d = split_dimension(job, plan, space); d != kNone && space.size[d] >= parts) {
    // Each thread has points of its own. Long pieces of the last dimension: rows are walked once for each.
    const int64_t others = space.total / space.size[d];
    const int64_t grain = std::max<int64_t>(1, 10'000'000 / cost / others);
    const int64_t least = d == space.rank - 1 && d > 0 ? (space.size[d] + 2 * parts - 1) / (2 * parts) : 1;
    parallel_for(space.size[d], std::max(grain, least), [&](int64_t begin, int64_t end) {
      Space piece = space;
      piece.size[d] = end - begin;
      piece.total = others * (end - begin);
      int64_t base[kMaxViews];
      for (int v = 0; v < views; ++v) base[v] = begin * space.stride[d][v];
      const Tiling tiles(piece, views, block, false, long_row);
      run(prepare(job, sink, block), tiles, 0, tiles.count(), base, begin * others);
    });
    return sink.finish(failure);
  }
  // Every thread walks all points in order and writes those that fall into its part of memory.
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      Frame& frame = prepare(job, sink, block);
      frame.part = part;
      frame.parts = parts;
      run(frame, tiling, 0, tiling.count(), nullptr, 0);
    }
  });
  return sink.finish(failure);
}

}  // namespace cmodel
