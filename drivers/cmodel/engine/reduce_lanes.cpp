// REDUCE of many rows at once, one folded point after the other.
#include <cstring>

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

void Reduce::run_lanes(const Tiling& tiling, int64_t index) {
  Frame& f = frame();
  f.folding = false;
  Tile row, each;
  tiling.at(index, nullptr, row);
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const Segment& segment = plan_.segments[s];
    if (segment.kind == NPU_SEGMENT_COMBINE) continue;
    if (segment.kind == NPU_SEGMENT_ROW) {
      run_tile(f, segment.begin, segment.end, row);
      continue;
    }
    Lanes lanes[NPU_MAX_FOLDS];
    int slot = 0;
    for (size_t k = 0; k < segment.folds.size(); ++k) {
      for (int j = 0; j < segment.folds[k].members; ++j) lanes[k].member[j] = result(f, s, slot + j);
      lanes[k].partial = result(f, s, slot + segment.folds[k].members);
      slot += segment.folds[k].members + 1;
      begin(f, segment.folds[k], lanes[k], row.n);
    }
    each.rows = row.rows;
    each.cols = row.cols;
    each.n = row.n;
    each.row_stride = row.row_stride;
    each.col_stride = row.col_stride;
    each.position = row.position;
    std::memcpy(each.offset, row.offset, sizeof(int64_t) * static_cast<size_t>(views_));
    int64_t point[NPU_MAX_RANK] = {};
    const bool columns = columns_[s] && row.rows == 1;
    if (columns) sum_columns(f, segment, row, inner_, lanes);
    const bool whole = !columns && folds_rows(f, segment, row);
    for (int64_t i = 0; i < inner_.total && whole; i += inner_.size[inner_.rank - 1]) {
      const Op& load = plan_.ops[segment.plain_load];
      std::memcpy(each.offset, row.offset, sizeof(int64_t) * static_cast<size_t>(views_));
      inner_.add_offsets(i, views_, each.offset);
      accumulate_rows(f, segment.folds[0], lanes[0], plain_values(segment, each.offset),
                      inner_.stride[inner_.rank - 1][load.view], inner_.size[inner_.rank - 1], row,
                      row.row_stride[load.view]);
    }
    for (int64_t i = 0; i < inner_.total && !whole && !columns; ++i) {
      run_tile(f, segment.begin, segment.end, each);
      for (size_t k = 0; k < segment.folds.size(); ++k) accumulate(f, segment.folds[k], lanes[k], row.n);
      for (int d = inner_.rank - 1; d >= 0; --d) {
        const bool more = ++point[d] < inner_.size[d];
        const int64_t moved = more ? 1 : 1 - inner_.size[d];
        for (int v = 0; v < views_; ++v) each.offset[v] += moved * inner_.stride[d][v];
        if (more) break;
        point[d] = 0;
      }
    }
    for (size_t k = 0; k < segment.folds.size(); ++k) {
      finish(f, segment.folds[k], lanes[k], row.n);
      publish(f, segment.folds[k], lanes[k].member, row.n == 1);
    }
  }
}

}  // namespace cmodel
