// COPY: strided copies with conversion, and fills.
#include <algorithm>
#include <cstring>

#include "drivers/cmodel/engine/one_instruction.h"
#include "drivers/cmodel/interpreter/interpreter.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel {
namespace {

// COPY as the program that it is: load, store. Only the views are used, to collapse dimensions.
const Plan& copy_plan() {
  static const Plan plan = [] {
    Plan p;
    p.views = {{View::kOperand, 0}, {View::kOperand, 1}};
    return p;
  }();
  return plan;
}

struct Side {
  char* ptr;
  int log_size;
  int64_t row, col;
  bool dense(int64_t rows, int64_t cols) const {
    return cols == 1 ? (rows == 1 || row == 1) : col == 1 && (rows == 1 || row == cols);
  }
};

// Dense results that will not stay in the caches, in pieces of a few rows.
void stream_rows(const Kernels& k, const Side& out, const Side& in, int64_t rows, int64_t cols) {
  alignas(64) char block[kStreamBlock];
  const int64_t bytes = cols << out.log_size, together = std::max<int64_t>(1, kStreamBlock / bytes);
  char* to = out.ptr;
  const char* from = in.ptr;
  for (int64_t r = 0; r < rows; r += together) {
    const int64_t m = std::min(together, rows - r), step = in.row << in.log_size;
    if (bytes >= kStreamBlock) {
      k.stream(to, from, bytes);
    } else {
      k.copy_rows(block, bytes, from, step, m, bytes);
      k.stream(to, block, m * bytes);
    }
    to += m * bytes;
    from += m * step;
  }
}

void copy_tile(const Kernels& k, const Side& out, const Side& in, int64_t rows, int64_t cols, Convert convert) {
  alignas(64) char gathered[kBlock * 8], converted[kBlock * 8];
  const int64_t n = rows * cols;
  const bool out_dense = out.dense(rows, cols), in_dense = in.dense(rows, cols);
  const char* source = in.ptr;
  if (!in_dense) {
    char* to = !convert && out_dense ? out.ptr : gathered;
    collect(k, to, in.ptr, in.log_size, rows, cols, in.row, in.col);
    if (to == out.ptr) return;
    source = gathered;
  }
  if (convert) {
    char* to = out_dense ? out.ptr : converted;
    convert(to, source, n);
    if (to == out.ptr) return;
    source = converted;
  }
  if (out_dense)
    std::memcpy(out.ptr, source, static_cast<size_t>(n) << out.log_size);
  else
    deposit(k, out.ptr, source, out.log_size, rows, cols, out.row, out.col);
}

}  // namespace

bool run_copy(const Job& job, Failure& failure) {
  const npu_command& command = job.command;
  const Operand &out = job.operands[0], &in = job.operands[1];
  if (std::count(command.size, command.size + command.rank, 0)) return true;
  if (std::any_of(out.stride, out.stride + command.rank, [](int64_t stride) { return stride < 0; })) {
    // A flipped dimension is walked the other way, so that results are written forwards.
    Operand sides[2] = {out, in};
    for (Operand& side : sides)
      for (int d = 0; d < command.rank; ++d) {
        if (out.stride[d] >= 0) continue;
        if (!side.immediate)
          side.ptr += (command.size[d] - 1) * side.stride[d] * (int64_t{1} << log_size_of(side.dtype));
        side.stride[d] = -side.stride[d];
      }
    Job forwards = job;
    forwards.operands = sides;
    return run_copy(forwards, failure);
  }
  const Kernels& k = kernels();
  const bool same = out.dtype == in.dtype;  // then the bits are copied as they are
  const int out_log = log_size_of(out.dtype), in_log = log_size_of(in.dtype);
  const char* source = in.immediate ? reinterpret_cast<const char*>(&in.bits) : in.ptr;
  Space space;
  space.set(job, copy_plan(), 0, command.rank, 0);
  const int64_t n = space.total;
  if (n == 0) return true;
  Convert convert = same ? nullptr : k.convert[in.dtype][out.dtype];
  const int64_t* out_stride = space.rank ? space.stride[space.rank - 1] : kZeroStrides;
  if (is_one_value(command, in)) {
    uint64_t bits = 0;
    if (same)
      std::memcpy(&bits, source, size_t{1} << in_log);
    else
      k.convert[in.dtype][out.dtype](&bits, source, 1);
    if (space.rank <= 1 && (n == 1 || out_stride[0] == 1)) {
      fill_dense(out.ptr, bits, out_log, n);
      return true;
    }
    // Strided fill: copy a block of the value again and again.
    const Tiling tiling(space, 2, kBlock, false);
    parallel_for(tiling.count(), std::max<int64_t>(1, 16384 / tiling.points()), [&](int64_t begin, int64_t end) {
      alignas(64) char block[kBlock * 8];
      k.gather[out_log](block, &bits, 0, kBlock);
      Tile t;
      for (int64_t i = begin; i < end; ++i) {
        tiling.at(i, nullptr, t);
        deposit(k, out.ptr + (t.offset[0] << out_log), block, out_log, t.rows, t.cols, t.row_stride[0],
                t.col_stride[0]);
      }
    });
    return true;
  }
  if (space.rank == 1 && out_stride[0] == 1 && out_stride[1] == 1) {
    if (same) {
      copy_dense(out.ptr, source, n << out_log);
    } else if (n <= 16384) {
      convert(out.ptr, source, n);
    } else {
      parallel_for(n, 16384, [&](int64_t begin, int64_t end) {
        convert(out.ptr + (begin << out_log), source + (begin << in_log), end - begin);
      });
    }
    return true;
  }
  const bool across = space.rank > 1 && space.stride[space.rank - 2][1] == 1 && out_stride[1] != 1;
  const Tiling tiling(space, 2, kBlock, across);
  const bool streams = same && n << out_log >= kStreamBytes && out_stride[1] == 1 && in.ptr != out.ptr;
  parallel_for(tiling.count(), std::max<int64_t>(1, 16384 / tiling.points()), [&](int64_t begin, int64_t end) {
    Tile t;
    for (int64_t i = begin; i < end; ++i) {
      tiling.at(i, nullptr, t);
      const Side to{out.ptr + (t.offset[0] << out_log), out_log, t.row_stride[0], t.col_stride[0]};
      const Side from{const_cast<char*>(source) + (t.offset[1] << in_log), in_log, t.row_stride[1], t.col_stride[1]};
      if (streams && to.dense(t.rows, t.cols))
        stream_rows(k, to, from, t.rows, t.cols);
      else
        copy_tile(k, to, from, t.rows, t.cols, convert);
    }
    if (streams) stream_fence();
  });
  return true;
}

}  // namespace cmodel
