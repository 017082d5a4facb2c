// REDUCE. Rows are points of the kept dimensions; the folded dimensions are walked inside. Its ways:
//   loops:  rows that lie dense in memory, nothing but sums and plain folds: a loop per row and each segment;
//   lanes:  many rows at once, one folded point at a time: column sums, pooling windows, folds of a few values;
//   batch:  short rows, several in one tile;
//   single: one row at a time, tiles inside the row (threads share the rows, or one row's tiles if rows are few).
#pragma once
#include <algorithm>
#include <cstring>
#include <vector>

#include "drivers/cmodel/engine/tuning.h"
#include "drivers/cmodel/interpreter/fold.h"
#include "drivers/cmodel/interpreter/interpreter.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel {

class RowLoops;

class Reduce {
 public:
  Reduce(const Job& job, FailureSink& sink);
  void run();

 private:
  // -- which way (reduce.cpp): null, or why not --
  const char* refuses_loops() const;
  // Are neighbours in memory neighbours in the kept dimensions, or rows so short that other ways have nothing to do?
  const char* refuses_lanes() const;
  // Several rows in one tile: short ones, or rows that folds read from memory.
  const char* refuses_batches() const;
  const char* refuses_pieces() const;
  void run_all_lanes();
  void run_batches();
  void run_pieces();
  void run_rows();

  // -- what is known before (reduce.cpp) --
  // The operand whose memory decides how the space is walked: the one that the most folded dimensions move.
  void find_leader(int split);
  // Does the segment only fold values that lie side by side in memory, in the type of the fold?
  bool find_plain(const Segment& segment) const;
  bool plain(const Segment& segment) const { return plain_[static_cast<size_t>(&segment - plan_.segments.data())]; }
  // Rows one by one: what is known of them besides.
  void find_buffered();
  // Are the folded points neighbours in memory, in their order?
  bool lies_dense(int view) const;

  // -- what the ways share --
  const char* plain_values(const Segment& segment, const int64_t* offset) const {
    const Op& load = plan_.ops[segment.plain_load];
    return job_.operands[load.imm].ptr + (offset[load.view] << log_size_of(load.dtype));
  }
  // The coordinate of folded point `from`, and how far apart those behind it are.
  void plain_index(const Segment& segment, const int64_t* offset, int64_t from, int64_t* first, int64_t* step) const {
    if (segment.plain_index == kNone) return;
    const int view = plan_.ops[segment.plain_index].view;
    *step = inner_.stride[0][view];
    *first = offset[view] + from * *step;
  }
  char* result(Frame& f, size_t segment, int slot) const { return f.temp(results_[segment] + slot); }
  // The results of a segment's folds, by fold and member.
  using Members = char* [NPU_MAX_FOLDS][NPU_MAX_TUPLE];
  void find_results(Frame& f, size_t segment, Members& members) const {
    int slot = 0;
    const std::vector<FoldPlan>& folds = plan_.segments[segment].folds;
    for (size_t k = 0; k < folds.size(); ++k, ++slot)
      for (int j = 0; j < folds[k].members; ++j) members[k][j] = result(f, segment, slot++);
  }
  static void publish(Frame& f, const FoldPlan& fold, char* const* members, bool uniform) {
    for (int k = 0; k < fold.members; ++k)
      for (int id : fold.gets[k]) f.val[id] = {members[k], uniform};
  }
  // Calls fold(s, segment) for each segment that folds; what rows compute between them is computed in tile `row`.
  template <class F>
  void each_segment(Frame& f, const Tile& row, F fold) const {
    for (size_t s = 0; s < plan_.segments.size(); ++s) {
      const Segment& segment = plan_.segments[s];
      if (segment.kind == NPU_SEGMENT_ROW)
        run_tile(f, segment.begin, segment.end, row);
      else if (segment.kind == NPU_SEGMENT_EACH)
        fold(s, segment);
    }
  }
  void copy_offsets(int64_t* to, const int64_t* from) const {
    std::memcpy(to, from, sizeof(int64_t) * static_cast<size_t>(views_));
  }
  // The values of rows first .. first + rows, neighbours in the last kept dimension: one for each.
  Tile rows_tile(int64_t first, int64_t rows) const {
    Tile tile;
    std::memset(tile.offset, 0, sizeof(int64_t) * static_cast<size_t>(views_));
    kept_.add_offsets(first, views_, tile.offset);
    tile.cols = tile.n = rows;
    tile.row_stride = kZeroStrides;
    tile.col_stride = kept_.stride[kept_.rank - 1];
    tile.position = first;
    return tile;
  }
  // Rows in pieces of up to `most`, neighbours in the last kept dimension each. ready() is called once for each chunk
  // of at least `rows_per_chunk` rows, and what it returns handed to run(state, first, rows).
  template <class Ready, class Run>
  void each_piece(int64_t most, int64_t rows_per_chunk, Ready ready, Run run) const {
    const int64_t last = kept_.size[kept_.rank - 1];
    most = std::min(most, last);
    const int64_t per_outer = (last + most - 1) / most;
    parallel_for(kept_.total / last * per_outer, grain_for(most, rows_per_chunk), [&](int64_t begin, int64_t end) {
      auto&& state = ready();
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i % per_outer * most;
        run(state, i / per_outer * last + first, std::min(most, last - first));
      }
      stream_fence();
    });
  }
  Frame& frame() const {
    Frame& f = prepare(job_, sink_, std::max(block_, kBlock), extra_);
    f.streams = streams_;
    f.folding = true;
    return f;
  }

  // -- rows (reduce_rows.cpp) --
  void run_single(Frame& f, const Tiling& tiles, int64_t row, bool parallel);
  void fold_tiles(Frame& f, const Segment& segment, const Tiling& tiles, int64_t first, int64_t last,
                  const int64_t* base, int64_t row, Acc* acc) const;
  // As a plain one, but the values lie apart or are of another type: they are collected first, block by block.
  bool gathers(const Segment& segment) const;
  void fold_gathered(Frame& f, const Segment& segment, const Tiling& tiles, int64_t first, int64_t last,
                     const int64_t* base, Acc& acc) const;
  void fold_pieces(Frame& f, const Segment& segment, const Tiling& tiles, const int64_t* base, int64_t row,
                   Acc* acc) const;
  // Rows first .. first + rows, neighbours in the last kept dimension, in one tile of rows x m.
  void run_batch(Frame& f, int64_t first, int64_t rows);
  // For a tile of several rows: a value of a row stands beside each of the row's elements. What it was goes to `saved`.
  void place_row_values(Frame& f, const Segment& segment, int64_t rows, std::vector<Ref>& saved) const;
  // Of rows that are one piece each: what the segment loads as it lies in memory.
  void fold_memory(Frame& f, const Segment& segment, const Tile& rows, char* const* members) const;

  // -- loops (reduce_loops.cpp) --
  const char* run_by_loops();
  struct Loops;
  bool plan_loops(Frame& f, Loops& loops) const;
  // Rows first .. first + rows, neighbours in the last kept dimension, segment by segment.
  void run_loops(Frame& f, Loops& loops, int64_t first, int64_t rows) const;
  // Of one row: by the loop, or what the segment loads as it lies in memory.
  void fold_row(Frame& f, const Segment& segment, RowLoops* loop, const int64_t* base, int64_t row, Acc* acc) const;
  // Does the segment fold what it loads, of which the last folded dimension lies dense?
  bool folds_pieces(const Segment& segment) const;

  // -- lanes (reduce_lanes.cpp) --
  // Can the lanes of this tile be folded straight from memory, many folded points in one call?
  bool folds_rows(const Frame& f, const Segment& segment, const Tile& row) const;
  // One tile of kept points; the folded points one after the other.
  void run_lanes(const Tiling& tiling, int64_t index);
  void fold_lanes(Frame& f, size_t s, const Segment& segment, const Tile& row, Lanes* lanes) const;

  const Job& job_;
  const Plan& plan_;
  FailureSink& sink_;
  Space kept_, inner_;
  int views_ = 0, leader_ = kNone, extra_ = 0, expanded_ = 0, each_ = 0;
  int row_buffer_ = 0;  // temporary
  bool lanes_ = true, buffered_ = false;
  int64_t block_ = kBlock;
  int64_t row_cost_ = 0;  // picoseconds
  uint64_t streams_ = 0;
  std::vector<int> results_;                              // first temporary of each segment's folds
  bool plain_[NPU_MAX_INSTRS], columns_[NPU_MAX_INSTRS];  // of each segment: plain(), sums_columns()
};

}  // namespace cmodel
