// REDUCE of rows that lie dense in memory, by a compiled loop per segment and row. What rows compute between the
// segments is computed for several rows at once.
#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "drivers/cmodel/engine/reduce.h"
#include "drivers/cmodel/interpreter/row_loops.h"

namespace cmodel {
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
    if (inner_.rank == 1 && inner_.total < kKernelLoopRow && !loops.loops.back()->only_loops()) return false;
  }
  return true;
}

const char* Reduce::run_by_loops() {
  {
    Loops loops;
    if (!plan_loops(frame(), loops)) return "rows do not lie dense, or fold other than sums, or have masks";
  }
  struct State {
    Frame& frame;
    Loops loops;
  };
  const auto ready = [&] {
    auto state = std::make_unique<State>(frame());
    plan_loops(state->frame, state->loops);
    return state;
  };
  each_piece(std::clamp<int64_t>(kLoopPoints / inner_.total, 1, kMostLoopRows), grain_for(row_cost_), ready,
             [&](auto& state, int64_t first, int64_t rows) { run_loops(state->frame, state->loops, first, rows); });
  return nullptr;
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
  if (last == 0 || cols > kJoinedPiece) {
    RowWalk walk(inner_, last, views_);
    walk.start(0, base);
    for (int64_t p = 0; p < pieces; ++p, walk.next())
      accumulate_plain(*f.k, fold, acc[0], plain_values(segment, walk.offset), cols);
    return;
  }
  const int64_t rows = inner_.size[last - 1], most = 2 * kJoinedPiece / cols,
                size = npu::dtype_size(fold.member_dtype[0]);
  const int64_t step = inner_.stride[last - 1][plan_.ops[segment.plain_load].view] * size;
  alignas(64) char line[2 * kJoinedPiece * sizeof(double)];
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

void Reduce::run_loops(Frame& f, Loops& loops, int64_t first, int64_t rows) const {
  const Tile tile = rows_tile(first, rows);
  const int last = inner_.rank - 1;
  const int64_t cols = inner_.size[last], pieces = inner_.total / cols;
  each_segment(f, tile, [&](size_t s, const Segment& segment) {
    RowLoops* loop = loops.loops[s].get();
    Members members;
    find_results(f, s, members);
    if (loop && pieces == 1) {
      float* sums[NPU_MAX_FOLDS];
      for (size_t k = 0; k < segment.folds.size(); ++k) sums[k] = reinterpret_cast<float*>(members[k][0]);
      loop->run({tile.offset, tile.col_stride, rows, 0, 1}, segment, sums);
    } else if (pieces == 1) {
      fold_memory(f, segment, tile, members[0]);
    } else {
      int64_t base[kMaxViews];
      copy_offsets(base, tile.offset);
      for (int64_t r = 0; r < rows; ++r) {
        Acc acc[NPU_MAX_FOLDS];
        for (size_t k = 0; k < segment.folds.size(); ++k) begin(segment.folds[k], acc[k]);
        fold_row(f, segment, loop, base, r, acc);
        for (size_t k = 0; k < segment.folds.size(); ++k) finish(segment.folds[k], acc[k], members[k], r);
        for (int v = 0; v < views_; ++v) base[v] += tile.col_stride[v];
      }
    }
    for (size_t k = 0; k < segment.folds.size(); ++k) publish(f, segment.folds[k], members[k], rows == 1);
  });
}

}  // namespace cmodel
