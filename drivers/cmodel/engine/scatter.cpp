// SCATTER: who writes where. One thread does it in order; several may, where each has places of its own.
#include <algorithm>
#include <utility>

#include "drivers/cmodel/choose/way.h"
#include "drivers/cmodel/engine/map.h"
#include "drivers/cmodel/engine/scatter_split.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel {
namespace {

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

struct ScatterProblem {
  PointWalk& walk;
  const char* alone;      // why one thread has to do it all; null: several may
  int dimension = kNone;  // whose points the threads share
};

const char* one_thread_only(const PointWalk& p) {
  if (pool_threads() == 1) return "there is one thread";
  if (p.space.total * p.cost < kScatterCost) return "there are few points";
  return only_scatters(p.job, p.plan) ? nullptr : "what one thread writes another may touch";
}

const char* refuses_points(ScatterProblem& s) {
  if (s.alone) return s.alone;
  s.dimension = split_dimension(s.walk.job, s.walk.plan, s.walk.space);
  if (s.dimension == kNone) return "no dimension keeps stores apart";
  return s.walk.space.size[s.dimension] < pool_threads() ? "the dimension is shorter than the threads are many"
                                                         : nullptr;
}

// Each thread has points of its own.
void share_points(ScatterProblem& s) {
  PointWalk& p = s.walk;
  const int d = s.dimension;
  const int64_t others = p.space.total / p.space.size[d], pieces = 2 * pool_threads();
  // Long pieces of the last dimension: rows are walked once for each.
  const int64_t least = d == p.space.rank - 1 && d > 0 ? (p.space.size[d] + pieces - 1) / pieces : 1;
  parallel_for(p.space.size[d], std::max(grain_for(p.cost * others), least), [&](int64_t begin, int64_t end) {
    Space piece = p.space;
    piece.size[d] = end - begin;
    piece.total = others * (end - begin);
    int64_t base[kMaxViews];
    for (int v = 0; v < p.views; ++v) base[v] = begin * p.space.stride[d][v];
    const Tiling tiles(piece, p.views, p.block, false, p.long_row);
    p.run_tiles(prepare(p.job, p.sink, p.block), tiles, 0, tiles.count(), base, begin * others);
  });
}

const char* refuses_memory(ScatterProblem& s) {
  return s.alone;
}

// Every thread walks all points in order and writes those that fall into its part of memory.
void share_memory(ScatterProblem& s) {
  PointWalk& p = s.walk;
  const Tiling tiling(p.space, p.views, p.block, p.square, p.long_row);
  const int64_t parts = pool_threads();
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      Frame& frame = prepare(p.job, p.sink, p.block);
      frame.part = part;
      frame.parts = parts;
      p.run_tiles(frame, tiling, 0, tiling.count(), nullptr, 0);
    }
  });
}

void run_alone(ScatterProblem& s) {
  PointWalk& p = s.walk;
  const Tiling tiling(p.space, p.views, p.block, p.square, p.long_row);
  p.run_tiles(prepare(p.job, p.sink, p.block), tiling, 0, tiling.count(), nullptr, 0);
}

constexpr Way<ScatterProblem> kWays[] = {
    {"threads share points", refuses_points, always<share_points>},
    {"threads share memory", refuses_memory, always<share_memory>},
    {"one thread", nullptr, always<run_alone>},
};

}  // namespace

void run_scatter(PointWalk& walk) {
  walk.choose_tiles();
  ScatterProblem scatter{walk, one_thread_only(walk)};
  run_first(walk.job.command, kWays, scatter);
}

}  // namespace cmodel
