// A one-instruction program row by row, where the whole is not contiguous: biases, broadcast columns, slices. The
// kernel reads and writes memory itself, so a row costs one call.
#include <algorithm>
#include <cstring>

#include "drivers/cmodel/engine/one_instruction.h"
#include "drivers/cmodel/interpreter/interpreter.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel {
namespace {

constexpr int64_t kShortestRow = 32;  // shorter ones share tiles in the interpreter
constexpr int64_t kGrain = 16384;

int view_of(const Plan& plan, int operand) {
  for (size_t v = 0; v < plan.views.size(); ++v)
    if (plan.views[v].kind == View::kOperand && plan.views[v].number == operand) return static_cast<int>(v);
  return kNone;
}

struct RowArg {
  const char* ptr = nullptr;
  int view = kNone;           // kNone: the same value for all rows
  int log_size = 0;           // of its elements in memory
  Convert convert = nullptr;  // of one value per row
};

// A row whose result bypasses the caches: computed in the first one, a few values at a time.
void stream_row(const Kernels& k, Kernel kernel, char* out, int out_log, const void* const* ptr, const RowArg* args,
                int64_t n, unsigned uniform) {
  alignas(64) char block[kStreamBlock];
  const int64_t step = kStreamBlock >> out_log;
  const char* at[3];
  for (int i = 0; i < 3; ++i) at[i] = static_cast<const char*>(ptr[i]);
  for (int64_t c = 0; c < n; c += step) {
    const int64_t m = std::min(step, n - c);
    kernel(block, at[0], at[1], at[2], m, uniform);
    k.stream(out + (c << out_log), block, m << out_log);
    for (int i = 0; i < 3; ++i)
      if (at[i] && !(uniform >> i & 1)) at[i] += step << args[i].log_size;
  }
}

}  // namespace

bool run_direct_rows(const Job& job, const Direct& direct) {
  const Plan& plan = *job.program->plan;
  const Operand& out = job.operands[direct.store_operand];
  if (direct.kind != Direct::kCompute || job.command.rank < 2) return false;
  const int out_view = view_of(plan, direct.store_operand), views = static_cast<int>(plan.views.size());
  Space space;
  space.set(job, plan, 0, job.command.rank, out_view);
  if (space.total == 0) return true;
  if (space.rank < 2) return false;
  const int last = space.rank - 1;
  const int64_t n = space.size[last], rows = space.total / n;
  if (n < kShortestRow || space.stride[last][out_view] != 1) return false;

  const Kernels& k = kernels();
  RowArg args[3];
  uint64_t constant[3] = {};
  int converted[3], converts = 0;  // arguments that are one value per row, of another type
  unsigned uniform = 0;
  int memory_dtype = NPU_DTYPE_NONE;
  for (int i = 0; i < direct.args; ++i) {
    const Direct::Arg& arg = direct.arg[i];
    args[i].ptr = reinterpret_cast<const char*>(&constant[i]);
    if (arg.kind == Direct::Arg::kConst) {
      constant[i] = scalar_bits(plan.consts[arg.number], arg.dtype);
      uniform |= 1u << i;
      continue;
    }
    if (arg.kind == Direct::Arg::kParam) {
      constant[i] = scalar_bits(job.params[arg.number].u, arg.dtype);
      uniform |= 1u << i;
      continue;
    }
    const Operand& operand = job.operands[arg.number];
    if (operand.immediate) {
      k.convert[operand.dtype][arg.dtype](&constant[i], &operand.bits, 1);
      uniform |= 1u << i;
      continue;
    }
    args[i].view = view_of(plan, arg.number);
    args[i].ptr = operand.ptr;
    args[i].log_size = log_size_of(operand.dtype);
    const int64_t stride = space.stride[last][args[i].view];
    if (stride == 0) {
      if (operand.dtype != arg.dtype || arg.dtype == NPU_BOOL) {
        args[i].convert = k.convert[operand.dtype][arg.dtype];
        converted[converts++] = i;
      }
      uniform |= 1u << i;
    } else if (stride == 1 && (memory_dtype == NPU_DTYPE_NONE || memory_dtype == operand.dtype)) {
      memory_dtype = operand.dtype;
    } else {
      return false;
    }
  }
  if (memory_dtype == NPU_DTYPE_NONE) return false;
  Kernel kernel = direct.kernel;
  bool same = out.dtype == direct.value_dtype;
  for (int i = 0; i < direct.args; ++i)
    if (!(uniform >> i & 1)) same &= direct.arg[i].dtype == memory_dtype;
  if (!same) {
    // All of it bf16 or f16 in memory, F32 inside: a fused kernel if there is one.
    const bool half = memory_dtype == NPU_BF16 || memory_dtype == NPU_F16;
    if (!half || out.dtype != memory_dtype || direct.arg_dtype != NPU_F32 || direct.value_dtype != NPU_F32)
      return false;
    kernel = k.half_op[memory_dtype == NPU_BF16 ? 0 : 1][direct.op];
    if (!kernel) return false;
  }

  const int out_log = log_size_of(out.dtype);
  const int64_t grain = plan.each_cost > 1200 ? 4096 : kGrain;
  bool streams = (rows * n) << out_log >= kStreamBytes;
  for (int i = 0; i < direct.args; ++i) streams &= args[i].view == kNone || args[i].ptr != out.ptr;
  // Rows of the last but one dimension are a fixed step apart.
  const int near = last - 1;
  const int64_t together = space.size[near];
  const auto bytes = [&](int view, int log_size) { return space.stride[near][view] * (int64_t{1} << log_size); };
  int64_t step[3] = {};
  for (int i = 0; i < direct.args; ++i)
    if (args[i].view != kNone) step[i] = bytes(args[i].view, args[i].log_size);
  parallel_for(rows, std::max<int64_t>(1, grain / n), [&](int64_t begin, int64_t end) {
    RowWalk walk(space, near, views);
    walk.start(begin / together, nullptr);
    for (int64_t row = begin, first = begin % together; row < end; first = 0, walk.next()) {
      const int64_t count = std::min(together - first, end - row);
      const char* at[3] = {};
      for (int i = 0; i < direct.args; ++i) {
        at[i] = args[i].ptr;
        if (args[i].view != kNone)
          at[i] += walk.offset[args[i].view] * (int64_t{1} << args[i].log_size) + first * step[i];
      }
      const int64_t out_step = bytes(out_view, out_log);
      char* to = out.ptr + walk.offset[out_view] * (int64_t{1} << out_log) + first * out_step;
      for (int64_t r = 0; r < count; ++r, to += out_step) {
        uint64_t value[3];
        const void* ptr[3] = {at[0], at[1], at[2]};
        for (int i = 0; i < converts; ++i) {
          const int arg = converted[i];
          args[arg].convert(&value[arg], at[arg], 1);
          ptr[arg] = &value[arg];
        }
        if (streams)
          stream_row(k, kernel, to, out_log, ptr, args, n, uniform);
        else
          kernel(to, ptr[0], ptr[1], ptr[2], n, uniform);
        for (int i = 0; i < 3; ++i) at[i] += step[i];
      }
      row += count;
    }
    if (streams) stream_fence();
  });
  return true;
}

}  // namespace cmodel
