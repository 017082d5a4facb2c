// REDUCE. Rows are points of the kept dimensions; the folded dimensions are walked inside. Four ways:
//   loops:  rows that lie dense in memory, nothing but sums and plain folds: a loop per row and each segment;
//   single: one row at a time, tiles inside the row (threads share the rows, or one row's tiles if rows are few);
//   batch:  short rows, several in one tile;
//   lanes:  many rows at once, one folded point at a time: column sums, pooling windows, folds of a few values.
#pragma once
#include <algorithm>
#include <vector>

#include "drivers/cmodel/interpreter/fold.h"
#include "drivers/cmodel/interpreter/interpreter.h"

namespace cmodel {

class RowLoops;

constexpr int64_t kFarPoints = 1 << 19;  // as many values are not in the second cache: the next row is fetched ahead

class Reduce {
 public:
  Reduce(const Job& job, FailureSink& sink);
  void run();

 private:
  // -- which way (reduce.cpp) --
  // The operand whose memory decides how the space is walked: the one that the most folded dimensions move.
  void find_leader(int split);
  // Are neighbours in memory neighbours in the kept dimensions, or rows so short that other ways have nothing to do?
  bool use_lanes() const;
  // Several rows in one tile: short ones, or rows that folds read from memory.
  bool batches(int64_t m) const;
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
  static void publish(Frame& f, const FoldPlan& fold, char* const* members, bool uniform) {
    for (int k = 0; k < fold.members; ++k)
      for (int id : fold.gets[k]) f.val[id] = {members[k], uniform};
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

  // -- loops (reduce_loops.cpp) --
  // False: nothing was done.
  bool run_by_loops();
  struct Loops;
  bool plan_loops(Frame& f, Loops& loops) const;
  // Rows first .. first + rows, neighbours in the last kept dimension, segment by segment.
  void run_loops(Frame& f, Loops& loops, int64_t first, int64_t rows) const;
  // Of rows that are one piece each: what the segment loads as it lies in memory.
  void fold_memory(Frame& f, const Segment& segment, const Tile& tile, int64_t rows, char* const* members) const;
  // Of one row: by the loop, or what the segment loads as it lies in memory.
  void fold_row(Frame& f, const Segment& segment, RowLoops* loop, const int64_t* base, int64_t row, Acc* acc) const;
  // Does the segment fold what it loads, of which the last folded dimension lies dense?
  bool folds_pieces(const Segment& segment) const;

  // -- lanes (reduce_lanes.cpp) --
  // Can the lanes of this tile be folded straight from memory, many folded points in one call?
  bool folds_rows(const Frame& f, const Segment& segment, const Tile& row) const;
  // One tile of kept points; the folded points one after the other.
  void run_lanes(const Tiling& tiling, int64_t index);

  const Job& job_;
  const Plan& plan_;
  FailureSink& sink_;
  Space kept_, inner_;
  int views_ = 0, leader_ = kNone, extra_ = 0, expanded_ = 0, each_ = 0;
  int row_buffer_ = 0;  // temporary
  bool lanes_ = true, buffered_ = false;
  int64_t block_ = kBlock;
  uint64_t streams_ = 0;
  std::vector<int> results_;                              // first temporary of each segment's folds
  bool plain_[NPU_MAX_INSTRS], columns_[NPU_MAX_INSTRS];  // of each segment: plain(), sums_columns()
};

}  // namespace cmodel
