// The program of MATMUL and CONV on a block of their results.
#include <algorithm>
#include <cstring>

#include "drivers/cmodel/interpreter/epilogue_rows.h"

namespace cmodel {
namespace {

// One instruction (a bias, a scale, relu) or none: row by row, the kernel writes the result. False: nothing was done.
bool run_one_instruction(const Job& job, const OneInstruction& one, const Block& block) {
  const int rank = job.command.rank;
  const Operand& out = job.operands[one.store_operand];
  if (block.cols < kShortEpilogueRow || out.stride[rank - 1] != 1) return false;
  const Kernels& k = kernels();
  const char* ptr[3] = {};
  int64_t step[3] = {};  // bytes from row to row
  uint64_t constant[3] = {};
  int log_size[3] = {};
  unsigned uniform = 0;
  for (int i = 0; i < one.args; ++i) {
    const OneInstruction::Argument& arg = one.arg[i];
    log_size[i] = log_size_of(arg.dtype);
    ptr[i] = reinterpret_cast<const char*>(&constant[i]);
    if (arg.kind == OneInstruction::Argument::kAcc) {
      if (block.acc_dtype != arg.dtype) return false;
      ptr[i] = block.acc;
      step[i] = block.ld * (int64_t{1} << log_size[i]);
    } else if (arg.kind == OneInstruction::Argument::kOperand) {
      const Operand& operand = job.operands[arg.number];
      const int64_t along = operand.stride[rank - 1];
      if (operand.immediate || operand.dtype != arg.dtype || (along != 0 && along != 1)) return false;
      ptr[i] = block.first_of(job, operand);
      step[i] = operand.stride[rank - 2] * (int64_t{1} << log_size[i]);
      if (along == 0) uniform |= 1u << i;
    } else {
      constant[i] = argument_bits(job, arg);
      uniform |= 1u << i;
    }
  }
  if (uniform == (1u << one.args) - 1) return false;
  const int out_log = log_size_of(out.dtype);
  const int64_t out_step = out.stride[rank - 2] * (int64_t{1} << out_log);
  char* to = block.first_of(job, out);
  const Convert convert = k.convert[one.value_dtype][out.dtype];
  const bool same = out.dtype == one.value_dtype && out.dtype != NPU_BOOL;
  alignas(64) char temp[kBlock * 8];
  for (int64_t r = 0; r < block.rows; ++r, to += out_step) {
    if (one.kind == OneInstruction::kMove) {
      convert(to, ptr[0], block.cols);
    } else if (same) {
      one.kernel(to, ptr[0], ptr[1], ptr[2], block.cols, uniform);
    } else {
      for (int64_t c = 0; c < block.cols; c += kBlock) {
        const char* at[3];
        for (int i = 0; i < 3; ++i) at[i] = uniform >> i & 1 || !ptr[i] ? ptr[i] : ptr[i] + (c << log_size[i]);
        const int64_t n = std::min(kBlock, block.cols - c);
        one.kernel(temp, at[0], at[1], at[2], n, uniform);
        convert(to + (c << out_log), temp, n);
      }
    }
    for (int i = 0; i < one.args; ++i) ptr[i] += step[i];
  }
  return true;
}

}  // namespace

void run_epilogue(const Job& job, const int64_t* outer, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                  const void* acc, int64_t ld, int acc_dtype) {
  const Plan& plan = *job.program->plan;
  const Block block{outer, row0, rows, col0, cols, static_cast<const char*>(acc), ld, acc_dtype};
  if (plan.one_instruction.kind != OneInstruction::kNot && run_one_instruction(job, plan.one_instruction, block))
    return;
  if (cols >= kWorthRows && cols <= kBlock && run_rows(job, block)) return;
  const int rank = job.command.rank, views = static_cast<int>(plan.views.size());
  // Rows wide enough are tiles of their own; narrow ones share a tile.
  const int64_t wide = std::min(cols, kBlock),
                tall =
                    cols >= kOwnTileRow ? 1 : std::max<int64_t>(1, std::min(rows, kBlock / std::max<int64_t>(cols, 1)));
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
