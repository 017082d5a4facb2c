// A one-instruction program row by row, where the whole is not contiguous: biases, broadcast columns, slices. The
// kernel reads and writes memory itself, so a row costs one call.
#include <algorithm>
#include <cstring>

#include "drivers/cmodel/engine/one_instruction.h"
#include "drivers/cmodel/engine/tuning.h"
#include "drivers/cmodel/interpreter/interpreter.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel {
namespace {

int view_of(const Plan& plan, int operand) {
  for (size_t v = 0; v < plan.views.size(); ++v)
    if (plan.views[v].kind == View::kOperand && plan.views[v].number == operand) return static_cast<int>(v);
  return kNone;
}

struct RowArgument {
  const char* ptr = nullptr;
  int view = kNone;           // kNone: the same value for all rows
  int log_size = 0;           // of its elements in memory
  int64_t step = 0;           // bytes from row to row of the last but one dimension
  Convert convert = nullptr;  // of one value per row
};

class Rows {
 public:
  Rows(const Job& job, const OneInstruction& one)
      : job_(job), one_(one), plan_(*job.program->plan), out_(job.operands[one.store_operand]) {}

  const char* run() {
    out_view_ = view_of(plan_, one_.store_operand);
    space_.set(job_, plan_, 0, job_.command.rank, out_view_);
    if (space_.total == 0) return nullptr;
    if (space_.rank < 2) return "there is one row";
    last_ = space_.rank - 1;
    n_ = space_.size[last_];
    if (n_ < kKernelRow) return "rows are short";
    if (space_.stride[last_][out_view_] != 1) return "rows of the result are not contiguous";
    for (int i = 0; i < one_.args; ++i)
      if (const char* reason = bind(i)) return reason;
    if (memory_dtype_ == NPU_DTYPE_NONE) return "every argument is one value for a row";
    bool same = out_.dtype == one_.value_dtype;
    for (int i = 0; i < one_.args; ++i)
      if (!(uniform_ >> i & 1)) same &= one_.arg[i].dtype == memory_dtype_;
    kernel_ = same ? one_.kernel : kernel_in_memory(one_, memory_dtype_, out_.dtype);
    if (!kernel_) return "no kernel converts these types";
    run_all();
    return nullptr;
  }

 private:
  // Null, or why the argument is not for a kernel.
  const char* bind(int i) {
    const OneInstruction::Argument& from = one_.arg[i];
    RowArgument& arg = args_[i];
    arg.ptr = reinterpret_cast<const char*>(&constant_[i]);
    const bool operand_of = from.kind == OneInstruction::Argument::kOperand;
    const Operand& operand = job_.operands[operand_of ? from.number : 0];
    if (!operand_of || operand.immediate) {
      if (operand_of)
        kernels().convert[operand.dtype][from.dtype](&constant_[i], &operand.bits, 1);
      else
        constant_[i] = argument_bits(job_, from);
      uniform_ |= 1u << i;
      return nullptr;
    }
    arg.view = view_of(plan_, from.number);
    arg.ptr = operand.ptr;
    arg.log_size = log_size_of(operand.dtype);
    arg.step = bytes(arg.view, arg.log_size);
    const int64_t stride = space_.stride[last_][arg.view];
    if (stride == 0) {
      if (operand.dtype != from.dtype || from.dtype == NPU_BOOL) {
        arg.convert = kernels().convert[operand.dtype][from.dtype];
        converted_[converts_++] = i;
      }
      uniform_ |= 1u << i;
      return nullptr;
    }
    if (stride != 1) return "rows of an argument are not contiguous";
    if (memory_dtype_ != NPU_DTYPE_NONE && memory_dtype_ != operand.dtype) return "arguments are of several types";
    memory_dtype_ = operand.dtype;
    return nullptr;
  }

  // Between neighbours of the last but one dimension.
  int64_t bytes(int view, int log_size) const { return space_.stride[last_ - 1][view] * (int64_t{1} << log_size); }

  void run_all() {
    const int out_log = log_size_of(out_.dtype);
    const int64_t rows = space_.total / n_;
    const int64_t chunk = plan_.each_cost > kFunctionCost ? kChunkFunctionValues : kChunkValues;
    streams_ = space_.total << out_log >= kStreamBytes;
    for (int i = 0; i < one_.args; ++i) streams_ &= args_[i].view == kNone || args_[i].ptr != out_.ptr;
    parallel_for(rows, grain_for(n_, chunk), [&](int64_t begin, int64_t end) {
      // Rows of the last but one dimension are a fixed step apart.
      const int64_t together = space_.size[last_ - 1];
      RowWalk walk(space_, last_ - 1, static_cast<int>(plan_.views.size()));
      walk.start(begin / together, nullptr);
      for (int64_t row = begin, first = begin % together; row < end; first = 0, walk.next()) {
        const int64_t count = std::min(together - first, end - row);
        run_neighbours(walk, first, count, out_log);
        row += count;
      }
      if (streams_) stream_fence();
    });
  }

  // Rows first .. first + count of the last but one dimension.
  void run_neighbours(const RowWalk& walk, int64_t first, int64_t count, int out_log) const {
    const char* at[3] = {};
    for (int i = 0; i < one_.args; ++i) {
      at[i] = args_[i].ptr;
      if (args_[i].view != kNone)
        at[i] += walk.offset[args_[i].view] * (int64_t{1} << args_[i].log_size) + first * args_[i].step;
    }
    const int64_t out_step = bytes(out_view_, out_log);
    char* to = out_.ptr + walk.offset[out_view_] * (int64_t{1} << out_log) + first * out_step;
    for (int64_t r = 0; r < count; ++r, to += out_step) {
      uint64_t value[3];
      const char* ptr[3] = {at[0], at[1], at[2]};
      for (int i = 0; i < converts_; ++i) {
        const int arg = converted_[i];
        args_[arg].convert(&value[arg], at[arg], 1);
        ptr[arg] = reinterpret_cast<const char*>(&value[arg]);
      }
      if (streams_)
        stream_row(to, out_log, ptr);
      else
        kernel_(to, ptr[0], ptr[1], ptr[2], n_, uniform_);
      for (int i = 0; i < 3; ++i) at[i] += args_[i].step;
    }
  }

  // A row whose result bypasses the caches: computed in the first one, a few values at a time.
  void stream_row(char* out, int out_log, const char* (&at)[3]) const {
    alignas(64) char block[kStreamBlock];
    const int64_t step = kStreamBlock >> out_log;
    for (int64_t c = 0; c < n_; c += step) {
      const int64_t m = std::min(step, n_ - c);
      kernel_(block, at[0], at[1], at[2], m, uniform_);
      kernels().stream(out + (c << out_log), block, m << out_log);
      for (int i = 0; i < 3; ++i)
        if (at[i] && !(uniform_ >> i & 1)) at[i] += step << args_[i].log_size;
    }
  }

  const Job& job_;
  const OneInstruction& one_;
  const Plan& plan_;
  const Operand& out_;
  Space space_;
  int out_view_ = kNone, last_ = 0;
  int64_t n_ = 0;  // points of a row
  RowArgument args_[3];
  uint64_t constant_[3] = {};
  int converted_[3], converts_ = 0;  // arguments that are one value per row, of another type
  unsigned uniform_ = 0;
  int memory_dtype_ = NPU_DTYPE_NONE;
  Kernel kernel_ = nullptr;
  bool streams_ = false;
};

}  // namespace

const char* run_contiguous_rows(const Job& job, const OneInstruction& one) {
  if (one.kind != OneInstruction::kCompute) return "nothing is computed";
  if (job.command.rank < 2) return "there is one row";
  return Rows(job, one).run();
}

}  // namespace cmodel
