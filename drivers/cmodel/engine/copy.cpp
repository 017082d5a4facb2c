// COPY: strided copies with conversion, and fills.
#include <algorithm>
#include <cstring>

#include "drivers/cmodel/choose/way.h"
#include "drivers/cmodel/engine/one_instruction.h"
#include "drivers/cmodel/engine/tuning.h"
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

struct CopyProblem {
  CopyProblem(const Job& job)
      : job(job),
        out(job.operands[0]),
        in(job.operands[1]),
        out_log(log_size_of(out.dtype)),
        in_log(log_size_of(in.dtype)),
        convert(out.dtype == in.dtype ? nullptr : kernels().convert[in.dtype][out.dtype]),
        source(in.immediate ? reinterpret_cast<const char*>(&in.bits) : in.ptr) {
    space.set(job, copy_plan(), 0, job.command.rank, 0);
    if (space.rank) stride = space.stride[space.rank - 1];
  }

  const Job& job;
  const Operand &out, &in;
  const int out_log, in_log;
  const Convert convert;  // null: the bits are copied as they are
  const char* source;
  Space space;
  const int64_t* stride = kZeroStrides;  // of the last dimension: of the result and of what is copied

  bool one_value() const { return is_one_value(job.command, in); }
  uint64_t value() const {
    uint64_t bits = 0;
    if (convert)
      convert(&bits, source, 1);
    else
      std::memcpy(&bits, source, size_t{1} << in_log);
    return bits;
  }
};

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
  const int64_t bytes = cols << out.log_size, together = grain_for(bytes, kStreamBlock);
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

const char* refuses_fill(CopyProblem& p) {
  if (!p.one_value()) return "there are several values";
  const bool dense = p.space.rank <= 1 && (p.space.total == 1 || p.stride[0] == 1);
  return dense ? nullptr : "the result does not lie dense";
}

void fill(CopyProblem& p) {
  fill_dense(p.out.ptr, p.value(), p.out_log, p.space.total);
}

const char* refuses_fill_tiles(CopyProblem& p) {
  return p.one_value() ? nullptr : "there are several values";
}

// Copies a block of the value again and again.
void fill_tiles(CopyProblem& p) {
  const Kernels& k = kernels();
  const uint64_t bits = p.value();
  const Tiling tiling(p.space, 2, kBlock, false);
  parallel_for(tiling.count(), grain_for(tiling.points(), kChunkValues), [&](int64_t begin, int64_t end) {
    alignas(64) char block[kBlock * 8];
    k.gather[p.out_log](block, &bits, 0, kBlock);
    Tile t;
    for (int64_t i = begin; i < end; ++i) {
      tiling.at(i, nullptr, t);
      deposit(k, p.out.ptr + (t.offset[0] << p.out_log), block, p.out_log, t.rows, t.cols, t.row_stride[0],
              t.col_stride[0]);
    }
  });
}

const char* refuses_dense(CopyProblem& p) {
  return p.space.rank == 1 && p.stride[0] == 1 && p.stride[1] == 1 ? nullptr : "one side does not lie dense";
}

void copy_whole(CopyProblem& p) {
  const int64_t n = p.space.total;
  if (!p.convert) return copy_dense(p.out.ptr, p.source, n << p.out_log);
  if (n <= kChunkValues) return p.convert(p.out.ptr, p.source, n);
  parallel_for(n, kChunkValues, [&](int64_t begin, int64_t end) {
    p.convert(p.out.ptr + (begin << p.out_log), p.source + (begin << p.in_log), end - begin);
  });
}

void copy_tiles(CopyProblem& p) {
  const Kernels& k = kernels();
  const Space& space = p.space;
  const bool across = space.rank > 1 && space.stride[space.rank - 2][1] == 1 && p.stride[1] != 1;
  const Tiling tiling(space, 2, kBlock, across);
  const bool streams =
      !p.convert && space.total << p.out_log >= kStreamBytes && p.stride[1] == 1 && p.in.ptr != p.out.ptr;
  parallel_for(tiling.count(), grain_for(tiling.points(), kChunkValues), [&](int64_t begin, int64_t end) {
    Tile t;
    for (int64_t i = begin; i < end; ++i) {
      tiling.at(i, nullptr, t);
      const Side to{p.out.ptr + (t.offset[0] << p.out_log), p.out_log, t.row_stride[0], t.col_stride[0]};
      const Side from{const_cast<char*>(p.source) + (t.offset[1] << p.in_log), p.in_log, t.row_stride[1],
                      t.col_stride[1]};
      if (streams && to.dense(t.rows, t.cols))
        stream_rows(k, to, from, t.rows, t.cols);
      else
        copy_tile(k, to, from, t.rows, t.cols, p.convert);
    }
    if (streams) stream_fence();
  });
}

constexpr Way<CopyProblem> kWays[] = {
    {"dense fill", refuses_fill, always<fill>},
    {"fill by tiles", refuses_fill_tiles, always<fill_tiles>},
    {"dense copy", refuses_dense, always<copy_whole>},
    {"tiles", nullptr, always<copy_tiles>},
};

// A dimension that the result walks backwards is walked the other way, so that results are written forwards.
void turn_forwards(const npu_command& command, const Operand& out, Operand (&sides)[2]) {
  for (Operand& side : sides)
    for (int d = 0; d < command.rank; ++d) {
      if (out.stride[d] >= 0) continue;
      if (!side.immediate) side.ptr += (command.size[d] - 1) * side.stride[d] * (int64_t{1} << log_size_of(side.dtype));
      side.stride[d] = -side.stride[d];
    }
}

}  // namespace

bool run_copy(const Job& job, Failure& failure) {
  const npu_command& command = job.command;
  const Operand& out = job.operands[0];
  if (std::count(command.size, command.size + command.rank, 0)) return true;
  if (std::any_of(out.stride, out.stride + command.rank, [](int64_t stride) { return stride < 0; })) {
    Operand sides[2] = {out, job.operands[1]};
    turn_forwards(command, out, sides);
    Job forwards = job;
    forwards.operands = sides;
    return run_copy(forwards, failure);
  }
  CopyProblem problem(job);
  return run_first(command, kWays, problem);
}

}  // namespace cmodel
