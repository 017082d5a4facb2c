// The index space of a command, or a part of it, with dimensions merged where every view allows it.
#pragma once
#include <cstdint>

#include "drivers/cmodel/job/job.h"
#include "drivers/cmodel/plan/plan.h"

namespace cmodel {

constexpr int kMaxViews = NPU_MAX_OPERANDS + NPU_MAX_RANK + 1;

struct Space {
  int rank = 0;
  int64_t total = 1;
  int64_t size[NPU_MAX_RANK];
  int64_t stride[NPU_MAX_RANK][kMaxViews];  // in elements, by dimension and view
  // Not 0: the last dimension is two in one, of which the inner has so many points. Views whose strides do not merge
  // are `apart`: their stride is that of the outer one.
  int64_t inner = 0;
  bool apart[kMaxViews];
  int64_t inner_stride[kMaxViews];

  // Dimensions first .. last of the command. `order_by`: a view whose strides decide the order (outermost first), where
  // the order of points cannot be seen; kNone keeps the command's order.
  void set(const Job& job, const Plan& plan, int first, int last, int order_by = kNone);
  // Where the order of points cannot be seen: if tiles (of the last two dimensions) had fewer than `points` points, the
  // longest of the other dimensions takes the place of the last but one.
  void widen_tiles(int64_t points);
  // Makes one of the last two dimensions, if that are fewer than `points` points: so that tiles hold several of them.
  void fold_columns(int views, int64_t points);
  // Adds the offsets of point `index` (in row-major order) to out[0 .. views).
  void add_offsets(int64_t index, int views, int64_t* out) const;
};

// A block of points: rows x cols of two dimensions. offset[v] is the element of view v at its first point.
struct Tile {
  int64_t rows = 1, cols = 1, n = 1;
  const int64_t* row_stride = nullptr;
  const int64_t* col_stride = nullptr;
  const Space* folded = nullptr;  // the space, if its last dimension is two in one
  int64_t position = 0;           // in the order of the command: the failure that comes first is reported
  int64_t offset[kMaxViews];
};

extern const int64_t kZeroStrides[kMaxViews];

// Cuts a space into tiles of at most `block` points over its last two dimensions; the others are walked. Rows of
// `long_row` points and more are tiles of their own.
class Tiling {
 public:
  Tiling(const Space& space, int views, int64_t block, bool square, int64_t long_row = 128);
  int64_t count() const { return count_; }
  int64_t points() const { return rows_ * cols_; }
  // Tile number `index`, its offsets added to `base`.
  void at(int64_t index, const int64_t* base, Tile& tile) const;

 private:
  const Space& space_;
  int views_, outer_;  // dimensions walked
  int64_t rows_ = 1, cols_ = 1;
  int64_t row_tiles_ = 1, col_tiles_ = 1, count_ = 1;
};

// The points of a space's first `dims` dimensions, one after the other.
class RowWalk {
 public:
  RowWalk(const Space& space, int dims, int views) : space_(space), dims_(dims), views_(views) {}
  // Point `index` of them; `base`: what is added to the offsets, or null.
  void start(int64_t index, const int64_t* base);
  void next() {
    for (int d = dims_ - 1; d >= 0; --d) {
      const bool more = ++point_[d] < space_.size[d];
      const int64_t moved = more ? 1 : 1 - space_.size[d];
      for (int v = 0; v < views_; ++v) offset[v] += moved * space_.stride[d][v];
      if (more) return;
      point_[d] = 0;
    }
  }
  int64_t offset[kMaxViews];  // in elements, by view

 private:
  const Space& space_;
  int dims_, views_;
  int64_t point_[NPU_MAX_RANK];
};

}  // namespace cmodel
