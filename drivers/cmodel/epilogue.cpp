// The program of MATMUL and CONV on a block of their results.
#include <algorithm>
#include <cstring>

#include "drivers/cmodel/exec.h"

namespace cmodel {

void run_epilogue(const Job& job, const int64_t* outer, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                  const void* acc, int64_t ld, int acc_dtype) {
  const Plan& plan = *job.program->plan;
  const int rank = job.command.rank, views = static_cast<int>(plan.views.size());
  // Rows wide enough are tiles of their own; narrow ones share a tile.
  const int64_t wide = std::min(cols, kBlock),
                tall = cols >= 128 ? 1 : std::max<int64_t>(1, std::min(rows, kBlock / std::max<int64_t>(cols, 1)));
  int64_t row_stride[kMaxViews], col_stride[kMaxViews], base[kMaxViews];
  for (int v = 0; v < views; ++v) {
    const View& view = plan.views[v];
    auto stride = [&](int d) -> int64_t {
      if (view.kind == View::kOperand) return job.operands[view.number].stride[d];
      return view.kind == View::kIndex && view.number == d;
    };
    if (view.kind == View::kAcc) {
      row_stride[v] = ld;
      col_stride[v] = 1;
      base[v] = 0;
      continue;
    }
    row_stride[v] = stride(rank - 2);
    col_stride[v] = stride(rank - 1);
    base[v] = row0 * row_stride[v] + col0 * col_stride[v];
    for (int d = 0; d < rank - 2; ++d) base[v] += outer[d] * stride(d);
  }
  FailureSink sink;
  Frame& f = prepare(job, sink);
  f.acc = static_cast<const char*>(acc);
  f.acc_dtype = acc_dtype;
  Tile tile;
  tile.row_stride = row_stride;
  tile.col_stride = col_stride;
  for (int64_t r = 0; r < rows; r += tall)
    for (int64_t c = 0; c < cols; c += wide) {
      tile.rows = std::min(tall, rows - r);
      tile.cols = std::min(wide, cols - c);
      tile.n = tile.rows * tile.cols;
      for (int v = 0; v < views; ++v) tile.offset[v] = base[v] + r * row_stride[v] + c * col_stride[v];
      for (const Segment& segment : plan.segments) run_tile(f, segment.begin, segment.end, tile);
    }
}

}  // namespace cmodel
