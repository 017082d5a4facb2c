// REDUCE row by row, and of several short rows in one tile.
#include <algorithm>

#include "drivers/cmodel/engine/reduce.h"

namespace cmodel {
namespace {

std::vector<Acc>& accumulators() {
  thread_local std::vector<Acc> list;
  return list;
}

}  // namespace

void Reduce::run_single(Frame& f, const Tiling& tiles, int64_t row, bool parallel) {
  Tile point;
  std::memset(point.offset, 0, sizeof(int64_t) * static_cast<size_t>(views_));
  kept_.add_offsets(row, views_, point.offset);
  point.row_stride = point.col_stride = kZeroStrides;
  point.position = row;
  const int64_t* base = point.offset;
  // Its element 0 is that of the operand, which may be far away.
  if (buffered_)
    f.row_buffer = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(f.temp(row_buffer_)) -
                                           static_cast<uintptr_t>(base[plan_.row_view] * 4));
  each_segment(f, point, [&](size_t s, const Segment& segment) {
    Acc acc[NPU_MAX_FOLDS];
    if (parallel)
      fold_pieces(f, segment, tiles, base, row, acc);
    else
      fold_tiles(f, segment, tiles, 0, tiles.count(), base, row, acc);
    Members members;
    find_results(f, s, members);
    for (size_t k = 0; k < segment.folds.size(); ++k) {
      finish(segment.folds[k], acc[k], members[k], 0);
      publish(f, segment.folds[k], members[k], true);
    }
  });
}

void Reduce::fold_tiles(Frame& f, const Segment& segment, const Tiling& tiles, int64_t first, int64_t last,
                        const int64_t* base, int64_t row, Acc* acc) const {
  for (size_t k = 0; k < segment.folds.size(); ++k) begin(segment.folds[k], acc[k]);
  if (plain(segment)) {
    // Where dimensions stay apart, tiles differ in size.
    const auto start = [&](int64_t tile) {
      return inner_.rank == 1 ? std::min(inner_.total, tile * tiles.points()) : inner_.total * tile / tiles.count();
    };
    const int64_t from = start(first), to = start(last);
    const int log_size = log_size_of(segment.folds[0].member_dtype[0]);
    int64_t index = 0, step = 0;
    plain_index(segment, base, from, &index, &step);
    const char* values = plain_values(segment, base) + (from << log_size);
    const int64_t row_stride = kept_.rank ? kept_.stride[kept_.rank - 1][plan_.ops[segment.plain_load].view] : 0;
    const bool fetch = to - from <= kPlainBlock && inner_.total * kept_.total >= kFarPoints;
    return accumulate_plain(*f.k, segment.folds[0], acc[0], values, to - from, index, step,
                            fetch ? values + row_stride * (int64_t{1} << log_size) : nullptr);
  }
  if (gathers(segment)) return fold_gathered(f, segment, tiles, first, last, base, acc[0]);
  Tile tile;
  f.folds_tile = true;
  for (int64_t i = first; i < last; ++i) {
    tiles.at(i, base, tile);
    tile.position = row;
    run_tile(f, segment.begin, segment.end, tile);
    for (size_t k = 0; k < segment.folds.size(); ++k) accumulate(f, segment.folds[k], &acc[k], 1, tile.n);
  }
  f.folds_tile = false;
}

bool Reduce::gathers(const Segment& segment) const {
  return segment.plain_load != kNone && inner_.rank == 1 && !job_.operands[plan_.ops[segment.plain_load].imm].immediate;
}

void Reduce::fold_gathered(Frame& f, const Segment& segment, const Tiling& tiles, int64_t first, int64_t last,
                           const int64_t* base, Acc& acc) const {
  const Op& load = plan_.ops[segment.plain_load];
  const Operand& operand = job_.operands[load.imm];
  const int log_size = log_size_of(operand.dtype);
  const int64_t stride = inner_.stride[0][load.view], end = std::min(inner_.total, last * tiles.points());
  char* values = f.slot(load.slot);
  char* raw = operand.dtype == load.dtype ? values : f.temp(0);
  for (int64_t i = first * tiles.points(); i < end; i += kBlock) {
    const int64_t m = std::min(kBlock, end - i);
    const char* from = operand.ptr + (base[load.view] + i * stride) * (int64_t{1} << log_size);
    if (stride != 1) f.k->gather[log_size](raw, from, stride, m);
    if (raw != values) f.k->convert[operand.dtype][load.dtype](values, stride == 1 ? from : raw, m);
    int64_t index = 0, step = 0;
    plain_index(segment, base, i, &index, &step);
    accumulate_plain(*f.k, segment.folds[0], acc, values, m, index, step);
  }
}

void Reduce::fold_pieces(Frame& f, const Segment& segment, const Tiling& tiles, const int64_t* base, int64_t row,
                         Acc* acc) const {
  const int64_t count = tiles.count(), pieces = std::min<int64_t>(kMostPieces, count);
  std::vector<Acc> parts(static_cast<size_t>(pieces) * NPU_MAX_FOLDS);
  std::vector<Ref> rows;
  for (int id : segment.row_values) rows.push_back(f.val[id]);
  parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    Frame& own = frame();
    for (size_t k = 0; k < rows.size(); ++k) own.val[segment.row_values[k]] = rows[k];
    for (int64_t p = begin; p < end; ++p)
      fold_tiles(own, segment, tiles, count * p / pieces, count * (p + 1) / pieces, base, row,
                 &parts[static_cast<size_t>(p) * NPU_MAX_FOLDS]);
    stream_fence();
  });
  for (size_t k = 0; k < segment.folds.size(); ++k) {
    acc[k] = parts[k];
    for (int64_t p = 1; p < pieces; ++p)
      merge(f, segment.folds[k], acc[k], parts[static_cast<size_t>(p) * NPU_MAX_FOLDS + k]);
  }
}

void Reduce::fold_memory(Frame& f, const Segment& segment, const Tile& rows, char* const* members) const {
  const FoldPlan& fold = segment.folds[0];
  const int dtype = fold.member_dtype[0], log_size = log_size_of(dtype);
  const char* values = plain_values(segment, rows.offset);
  const int64_t step = rows.col_stride[plan_.ops[segment.plain_load].view] * (int64_t{1} << log_size);
  const int64_t cols = inner_.size[inner_.rank - 1];
  if (cols <= kPlainBlock && fold.kind <= NPU_FOLD_XOR) {
    const Fold kernel = f.k->fold[fold.kind][type_class(dtype)];
    for (int64_t r = 0; r < rows.n; ++r) kernel(members[0] + (r << log_size), values + r * step, cols);
    return;
  }
  int64_t index = 0, index_step = 0, index_row = 0;
  plain_index(segment, rows.offset, 0, &index, &index_step);
  if (segment.plain_index != kNone) index_row = rows.col_stride[plan_.ops[segment.plain_index].view];
  Acc start;
  begin(fold, start);
  for (int64_t r = 0; r < rows.n; ++r) {
    Acc acc = start;
    accumulate_plain(*f.k, fold, acc, values + r * step, cols, index + r * index_row, index_step);
    finish(fold, acc, members, r);
  }
}

void Reduce::place_row_values(Frame& f, const Segment& segment, int64_t rows, std::vector<Ref>& saved) const {
  const int64_t m = inner_.total;
  saved.clear();
  for (size_t k = 0; k < segment.row_values.size(); ++k) {
    const int id = segment.row_values[k];
    Ref& value = f.val[id];
    saved.push_back(value);
    if (value.uniform || rows == 1) {
      value.uniform = true;
    } else if (segment.row_values_computed && m >= kSpreadRow) {
      value.axis = kRows;
      value.kept = true;
    } else {
      const int log_size = log_size_of(plan_.ops[id].dtype);
      char* to = f.temp(expanded_ + static_cast<int>(k));
      for (int64_t r = 0; r < rows; ++r)
        f.k->gather[log_size](to + ((r * m) << log_size), value.ptr + (r << log_size), 0, m);
      value.ptr = to;
    }
  }
}

void Reduce::run_batch(Frame& f, int64_t first, int64_t rows) {
  const int64_t m = inner_.total;
  const Tile row = rows_tile(first, rows);
  Tile each;
  copy_offsets(each.offset, row.offset);
  each.rows = rows;
  each.cols = m;
  each.n = rows * m;
  each.row_stride = row.col_stride;
  each.col_stride = inner_.stride[0];
  each.position = first;
  std::vector<Acc>& acc = accumulators();
  acc.resize(static_cast<size_t>(rows));
  std::vector<Ref> saved;
  each_segment(f, row, [&](size_t s, const Segment& segment) {
    Members members;
    find_results(f, s, members);
    if (plain(segment)) {
      fold_memory(f, segment, row, members[0]);
      return publish(f, segment.folds[0], members[0], rows == 1);
    }
    place_row_values(f, segment, rows, saved);
    run_tile(f, segment.begin, segment.end, each);
    for (size_t k = 0; k < segment.folds.size(); ++k) {
      const FoldPlan& fold = segment.folds[k];
      for (Acc& a : acc) begin(fold, a);
      accumulate(f, fold, acc.data(), rows, m);
      for (int64_t r = 0; r < rows; ++r) finish(fold, acc[static_cast<size_t>(r)], members[k], r);
      publish(f, fold, members[k], rows == 1);
    }
    for (size_t k = 0; k < segment.row_values.size(); ++k) f.val[segment.row_values[k]] = saved[k];
  });
}

}  // namespace cmodel
