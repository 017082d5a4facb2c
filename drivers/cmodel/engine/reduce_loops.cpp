// REDUCE of rows that lie dense in memory, by a compiled loop per segment and row. What rows compute between the
// segments is computed for several rows at once.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "drivers/cmodel/engine/reduce.h"
#include "drivers/cmodel/interpreter/row_loops.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel {
namespace {

constexpr int64_t kShortestPiece = 16;  // of the last folded dimension: one vector
constexpr int64_t kShortestFold = 64;   // what a call of a fold's kernel is worth
constexpr int64_t kShortestRow = 32;    // shorter ones share tiles
constexpr int64_t kKernelRow = 128;     // the same where kernels are called for a row
constexpr int64_t kPoints = 1 << 14;    // of several rows, which stay in the second cache from segment to segment
constexpr int64_t kMostRows = 64;

}  // namespace

// By segment: how it is run. One for each thread.
struct Reduce::Loops {
  RowView view[kMaxViews];
  std::vector<std::unique_ptr<RowLoops>> loops;  // null: folds_pieces(), or no each segment
};

bool Reduce::folds_pieces(const Segment& segment) const {
  if (segment.plain_load == kNone || segment.plain_index != kNone) return false;
  const Op& load = plan_.ops[segment.plain_load];
  const Operand& operand = job_.operands[load.imm];
  const int last = inner_.rank - 1;
  const int64_t length = inner_.size[last] * (last > 0 ? inner_.size[last - 1] : 1);  // see fold_row
  return !operand.immediate && operand.dtype == load.dtype && inner_.stride[last][load.view] == 1 &&
         length >= kShortestFold;
}

bool Reduce::plan_loops(Frame& f, Loops& loops) const {
  const int last = inner_.rank - 1;
  for (int v = 0; v < views_; ++v) {
    if (plan_.views[v].kind != View::kOperand) return false;
    loops.view[v] = {job_.operands[plan_.views[v].number].ptr, inner_.stride[last][v], true};
  }
  for (const Segment& segment : plan_.segments) {
    loops.loops.emplace_back();
    if (segment.kind == NPU_SEGMENT_COMBINE) return false;
    if (segment.kind == NPU_SEGMENT_ROW || folds_pieces(segment)) continue;
    loops.loops.back() = std::make_unique<RowLoops>(f, loops.view, inner_.size[last], true);
    if (!loops.loops.back()->plan(segment)) return false;
    if (inner_.rank == 1 && inner_.total < kKernelRow && !loops.loops.back()->only_loops()) return false;
  }
  return true;
}

bool Reduce::run_by_loops() {
  if (kept_.rank == 0 || inner_.rank == 0 || streams_ != 0) return false;
  if (inner_.size[inner_.rank - 1] < kShortestPiece || inner_.total * kept_.total >= kFarPoints) return false;
  if (kept_.total < 2 * pool_threads() || (inner_.rank == 1 && inner_.total < kShortestRow)) return false;
  {
    Loops loops;
    if (!plan_loops(frame(), loops)) return false;
  }
  const int64_t last = kept_.size[kept_.rank - 1];
  const int64_t most = std::min(last, std::clamp<int64_t>(kPoints / inner_.total, 1, kMostRows));
  const int64_t per_outer = (last + most - 1) / most;
  const int64_t cost = std::max<int64_t>(plan_.each_cost, 200) * inner_.total * most;  // picoseconds
  parallel_for(kept_.total / last * per_outer, std::max<int64_t>(1, 10'000'000 / cost),
               [&](int64_t begin, int64_t end) {
                 Frame& f = frame();
                 Loops loops;
                 plan_loops(f, loops);
                 for (int64_t i = begin; i < end; ++i) {
                   const int64_t first = i % per_outer * most;
                   run_loops(f, loops, i / per_outer * last + first, std::min(most, last - first));
                 }
               });
  return true;
}

void Reduce::fold_row(Frame& f, const Segment& segment, RowLoops* loop, const int64_t* base, int64_t row,
                      Acc* acc) const {
  const int last = inner_.rank - 1;
  const int64_t cols = inner_.size[last], pieces = inner_.total / cols;
  if (loop) {
    const int64_t together = last > 0 ? inner_.size[last - 1] : 1;
    RowWalk walk(inner_, std::max(0, last - 1), views_);
    walk.start(0, base);
    for (int64_t p = 0; p < pieces; p += together, walk.next())
      loop->run({walk.offset, last > 0 ? inner_.stride[last - 1] : kZeroStrides, together, row, 0});
    return loop->take_sums(segment, acc);
  }
  const FoldPlan& fold = segment.folds[0];
  // A fold costs something at its end, so short pieces are laid side by side before.
  constexpr int64_t kShort = 512;
  if (last == 0 || cols > kShort) {
    RowWalk walk(inner_, last, views_);
    walk.start(0, base);
    for (int64_t p = 0; p < pieces; ++p, walk.next())
      accumulate_plain(*f.k, fold, acc[0], plain_values(segment, walk.offset), cols);
    return;
  }
  const int64_t rows = inner_.size[last - 1], most = 2 * kShort / cols, size = npu::dtype_size(fold.member_dtype[0]);
  const int64_t step = inner_.stride[last - 1][plan_.ops[segment.plain_load].view] * size;
  alignas(64) char line[2 * kShort * sizeof(double)];
  RowWalk walk(inner_, last - 1, views_);
  walk.start(0, base);
  for (int64_t p = 0; p < pieces; p += rows, walk.next()) {
    const char* values = plain_values(segment, walk.offset);
    for (int64_t i = 0; i < rows; i += most) {
      const int64_t together = std::min(most, rows - i);
      f.k->copy_rows(line, cols * size, values + i * step, step, together, cols * size);
      accumulate_plain(*f.k, fold, acc[0], line, together * cols);
    }
  }
}

void Reduce::fold_memory(Frame& f, const Segment& segment, const Tile& tile, int64_t rows, char* const* members) const {
  const FoldPlan& fold = segment.folds[0];
  const int dtype = fold.member_dtype[0], log_size = log_size_of(dtype);
  const char* values = plain_values(segment, tile.offset);
  const int64_t step = tile.col_stride[plan_.ops[segment.plain_load].view] * (int64_t{1} << log_size);
  const int64_t cols = inner_.size[inner_.rank - 1];
  if (cols <= kPlainBlock && fold.kind <= NPU_FOLD_XOR) {
    const Fold kernel = f.k->fold[fold.kind][type_class(dtype)];
    for (int64_t r = 0; r < rows; ++r) kernel(members[0] + (r << log_size), values + r * step, cols);
    return;
  }
  Acc start;
  begin(fold, start);
  for (int64_t r = 0; r < rows; ++r) {
    Acc acc = start;
    accumulate_plain(*f.k, fold, acc, values + r * step, cols);
    finish(fold, acc, members, r);
  }
}

void Reduce::run_loops(Frame& f, Loops& loops, int64_t first, int64_t rows) const {
  Tile tile;  // of the rows' own values
  std::memset(tile.offset, 0, sizeof(int64_t) * static_cast<size_t>(views_));
  kept_.add_offsets(first, views_, tile.offset);
  tile.cols = tile.n = rows;
  tile.row_stride = kZeroStrides;
  tile.col_stride = kept_.stride[kept_.rank - 1];
  tile.position = first;
  const int last = inner_.rank - 1;
  const int64_t cols = inner_.size[last], pieces = inner_.total / cols;
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const Segment& segment = plan_.segments[s];
    if (segment.kind == NPU_SEGMENT_ROW) {
      run_tile(f, segment.begin, segment.end, tile);
      continue;
    }
    RowLoops* loop = loops.loops[s].get();
    char* members[NPU_MAX_FOLDS][NPU_MAX_TUPLE];
    int slot = 0;
    for (size_t k = 0; k < segment.folds.size(); ++k) {
      for (int j = 0; j < segment.folds[k].members; ++j) members[k][j] = result(f, s, slot + j);
      slot += segment.folds[k].members + 1;
    }
    if (loop && pieces == 1) {
      float* sums[NPU_MAX_FOLDS];
      for (size_t k = 0; k < segment.folds.size(); ++k) sums[k] = reinterpret_cast<float*>(members[k][0]);
      loop->run({tile.offset, tile.col_stride, rows, 0, 1}, segment, sums);
    } else if (pieces == 1) {
      fold_memory(f, segment, tile, rows, members[0]);
    } else {
      int64_t base[kMaxViews];
      std::memcpy(base, tile.offset, sizeof(int64_t) * static_cast<size_t>(views_));
      for (int64_t r = 0; r < rows; ++r) {
        Acc acc[NPU_MAX_FOLDS];
        for (size_t k = 0; k < segment.folds.size(); ++k) begin(segment.folds[k], acc[k]);
        fold_row(f, segment, loop, base, r, acc);
        for (size_t k = 0; k < segment.folds.size(); ++k) finish(segment.folds[k], acc[k], members[k], r);
        for (int v = 0; v < views_; ++v) base[v] += tile.col_stride[v];
      }
    }
    for (size_t k = 0; k < segment.folds.size(); ++k) publish(f, segment.folds[k], members[k], rows == 1);
  }
}

}  // namespace cmodel
