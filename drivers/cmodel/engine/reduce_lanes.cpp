// REDUCE of many rows at once, one folded point after the other.
#include "drivers/cmodel/engine/reduce.h"
#include "drivers/cmodel/engine/reduce_columns.h"

namespace cmodel {

bool Reduce::folds_rows(const Frame& f, const Segment& segment, const Tile& row) const {
  if (segment.plain_load == kNone || inner_.rank == 0 || !lanes_fold_rows(*f.k, segment.folds[0])) return false;
  const Op& load = plan_.ops[segment.plain_load];
  const Operand& operand = job_.operands[load.imm];
  return !operand.immediate && operand.dtype == load.dtype && row.col_stride[load.view] == 1 &&
         (row.rows == 1 || row.cols >= 16);
}

void Reduce::fold_lanes(Frame& f, size_t s, const Segment& segment, const Tile& row, Lanes* lanes) const {
  if (columns_[s] && row.rows == 1) return sum_columns(f, segment, row, inner_, lanes);
  Tile each;
  each.rows = row.rows;
  each.cols = row.cols;
  each.n = row.n;
  each.row_stride = row.row_stride;
  each.col_stride = row.col_stride;
  each.position = row.position;
  if (folds_rows(f, segment, row)) {
    const Op& load = plan_.ops[segment.plain_load];
    const int64_t folded = inner_.size[inner_.rank - 1], stride = inner_.stride[inner_.rank - 1][load.view];
    for (int64_t i = 0; i < inner_.total; i += folded) {
      copy_offsets(each.offset, row.offset);
      inner_.add_offsets(i, views_, each.offset);
      accumulate_rows(f, segment.folds[0], lanes[0], plain_values(segment, each.offset), stride, folded, row,
                      row.row_stride[load.view]);
    }
    return;
  }
  if (inner_.total == 0) return;
  RowWalk walk(inner_, inner_.rank, views_);
  walk.start(0, row.offset);
  for (int64_t i = 0; i < inner_.total; ++i, walk.next()) {
    copy_offsets(each.offset, walk.offset);
    run_tile(f, segment.begin, segment.end, each);
    for (size_t k = 0; k < segment.folds.size(); ++k) accumulate(f, segment.folds[k], lanes[k], row.n);
  }
}

void Reduce::run_lanes(const Tiling& tiling, int64_t index) {
  Frame& f = frame();
  f.folding = false;
  Tile row;
  tiling.at(index, nullptr, row);
  each_segment(f, row, [&](size_t s, const Segment& segment) {
    Lanes lanes[NPU_MAX_FOLDS];
    int slot = 0;
    for (size_t k = 0; k < segment.folds.size(); ++k) {
      for (int j = 0; j < segment.folds[k].members; ++j) lanes[k].member[j] = result(f, s, slot + j);
      lanes[k].partial = result(f, s, slot + segment.folds[k].members);
      slot += segment.folds[k].members + 1;
      begin(f, segment.folds[k], lanes[k], row.n);
    }
    fold_lanes(f, s, segment, row, lanes);
    for (size_t k = 0; k < segment.folds.size(); ++k) {
      finish(f, segment.folds[k], lanes[k], row.n);
      publish(f, segment.folds[k], lanes[k].member, row.n == 1);
    }
  });
}

}  // namespace cmodel
