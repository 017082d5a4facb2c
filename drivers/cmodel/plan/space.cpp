#include "drivers/cmodel/plan/space.h"

#include <algorithm>
#include <cstdlib>

namespace cmodel {

const int64_t kZeroStrides[kMaxViews] = {};

void Space::set(const Job& job, const Plan& plan, int first, int last, int order_by) {
  const int views = static_cast<int>(plan.views.size());
  const int64_t* sizes = job.command.size;
  rank = 0;
  total = 1;
  inner = 0;
  int order[NPU_MAX_RANK], count = 0;
  for (int d = first; d < last; ++d) {
    total *= sizes[d];
    if (sizes[d] != 1) order[count++] = d;
  }
  auto stride_of = [&](int d, int v) -> int64_t {
    const View& view = plan.views[v];
    if (view.kind == View::kOperand) return job.operands[view.number].stride[d];
    return view.kind == View::kIndex ? view.number == d : 0;
  };
  if (order_by != kNone && count > 1) {
    // Insertion sort: stable, and the dimensions are nearly always in order already.
    for (int i = 1; i < count; ++i)
      for (int k = i; k > 0; --k) {
        const int64_t outer = std::llabs(stride_of(order[k - 1], order_by)),
                      inner = std::llabs(stride_of(order[k], order_by));
        if (inner <= outer) break;
        std::swap(order[k - 1], order[k]);
      }
  }
  for (int i = 0; i < count; ++i) {
    const int d = order[i];
    bool merge = rank > 0;
    for (int v = 0; v < views && merge; ++v) merge = stride[rank - 1][v] == stride_of(d, v) * sizes[d];
    if (merge) {
      size[rank - 1] *= sizes[d];
    } else {
      size[rank++] = sizes[d];
    }
    for (int v = 0; v < views; ++v) stride[rank - 1][v] = stride_of(d, v);
  }
}

void Space::widen_tiles(int64_t points) {
  if (rank < 3 || size[rank - 1] * size[rank - 2] >= points) return;
  const int longest = static_cast<int>(std::max_element(size, size + rank - 1) - size);
  if (longest == rank - 2) return;
  std::swap(size[longest], size[rank - 2]);
  std::swap(stride[longest], stride[rank - 2]);
}

void Space::fold_columns(int views, int64_t points) {
  if (rank < 3 || size[rank - 1] * size[rank - 2] >= points) return;
  inner = size[rank - 1];
  for (int v = 0; v < views; ++v) {
    inner_stride[v] = stride[rank - 1][v];
    apart[v] = stride[rank - 2][v] != inner_stride[v] * inner;
    if (!apart[v]) stride[rank - 2][v] = inner_stride[v];
  }
  --rank;
  size[rank - 1] *= inner;
}

void Space::add_offsets(int64_t index, int views, int64_t* out) const {
  for (int d = rank - 1; d >= 0 && index; --d) {
    const int64_t coordinate = index % size[d];
    index /= size[d];
    if (coordinate)
      for (int v = 0; v < views; ++v) out[v] += coordinate * stride[d][v];
  }
}

void RowWalk::start(int64_t index, const int64_t* base) {
  for (int v = 0; v < views_; ++v) offset[v] = base ? base[v] : 0;
  for (int d = dims_ - 1; d >= 0; --d) {
    point_[d] = index % space_.size[d];
    index /= space_.size[d];
    for (int v = 0; v < views_; ++v) offset[v] += point_[d] * space_.stride[d][v];
  }
}

Tiling::Tiling(const Space& space, int views, int64_t block, bool square, int64_t long_row)
    : space_(space), views_(views) {
  const int rank = space.rank;
  if (space.total == 0) {
    count_ = 0;
    outer_ = 0;
    return;
  }
  outer_ = std::max(0, rank - 2);
  const int64_t cols = rank > 0 ? space.size[rank - 1] : 1, rows = rank > 1 ? space.size[rank - 2] : 1;
  if (square && cols > 16 && rows > 4) {
    // Some view runs along the rows: a tile that is short in both directions touches few cache lines twice.
    cols_ = std::min<int64_t>(cols, 16);
    rows_ = std::min<int64_t>(rows, block / 16);
  } else if (cols >= std::min(long_row, block)) {
    cols_ = std::min(cols, block);
  } else {
    cols_ = cols;
    rows_ = std::min(rows, std::max<int64_t>(1, block / cols));
  }
  col_tiles_ = (cols + cols_ - 1) / cols_;
  row_tiles_ = (rows + rows_ - 1) / rows_;
  count_ = col_tiles_ * row_tiles_;
  for (int d = 0; d < outer_; ++d) count_ *= space.size[d];
}

void Tiling::at(int64_t index, const int64_t* base, Tile& tile) const {
  const int rank = space_.rank;
  for (int v = 0; v < views_; ++v) tile.offset[v] = base ? base[v] : 0;
  tile.position = index;
  tile.folded = space_.inner != 0 ? &space_ : nullptr;
  auto step = [&](int d, int64_t coordinate) {
    if (coordinate == 0) return;
    for (int v = 0; v < views_; ++v) tile.offset[v] += coordinate * space_.stride[d][v];
  };
  if (rank == 0) {
    tile.rows = tile.cols = tile.n = 1;
    tile.row_stride = tile.col_stride = kZeroStrides;
    return;
  }
  const int64_t cols = space_.size[rank - 1], rows = rank > 1 ? space_.size[rank - 2] : 1;
  // Divisions cost more than the rest of this function; most spaces need none.
  int64_t ct = 0, rt = index;
  if (col_tiles_ > 1) {
    ct = index % col_tiles_;
    rt = index / col_tiles_;
  }
  if (outer_ > 0) rt %= row_tiles_;
  step(rank - 1, ct * cols_);
  if (rank > 1) step(rank - 2, rt * rows_);
  if (outer_ > 0) {
    int64_t rest = index / (col_tiles_ * row_tiles_);
    for (int d = outer_ - 1; d >= 0; --d) {
      step(d, rest % space_.size[d]);
      rest /= space_.size[d];
    }
  }
  tile.cols = std::min(cols_, cols - ct * cols_);
  tile.rows = std::min(rows_, rows - rt * rows_);
  tile.n = tile.rows * tile.cols;
  tile.col_stride = space_.stride[rank - 1];
  tile.row_stride = rank > 1 ? space_.stride[rank - 2] : kZeroStrides;
}

}  // namespace cmodel
