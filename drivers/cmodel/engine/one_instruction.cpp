#include "drivers/cmodel/engine/one_instruction.h"

#include <algorithm>
#include <cstring>

#include "drivers/cmodel/interpreter/interpreter.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel {
namespace {

constexpr int64_t kGrain = 16384;

int64_t points_of(const npu_command& command) {
  int64_t n = 1;
  for (int d = 0; d < command.rank; ++d) n *= command.size[d];
  return n;
}

}  // namespace

bool is_contiguous(const npu_command& command, const Operand& operand) {
  int64_t expected = 1;
  for (int d = command.rank - 1; d >= 0; --d) {
    if (command.size[d] == 1) continue;
    if (operand.stride[d] != expected) return false;
    expected *= command.size[d];
  }
  return true;
}

bool is_one_value(const npu_command& command, const Operand& operand) {
  if (operand.immediate) return true;
  for (int d = 0; d < command.rank; ++d)
    if (command.size[d] > 1 && operand.stride[d] != 0) return false;
  return true;
}

void copy_dense(char* out, const char* in, int64_t bytes) {
  if (out == in) return;
  parallel_for(bytes, 256 << 10, [&](int64_t begin, int64_t end) {
    if (bytes < kStreamBytes) {
      std::memcpy(out + begin, in + begin, static_cast<size_t>(end - begin));
    } else {
      kernels().stream(out + begin, in + begin, end - begin);
      stream_fence();
    }
  });
}

void fill_dense(char* out, uint64_t bits, int log_size, int64_t n) {
  Gather fill = kernels().gather[log_size];
  if (n <= kGrain) return fill(out, &bits, 0, n);
  parallel_for(n, kGrain * 4,
               [&](int64_t begin, int64_t end) { fill(out + (begin << log_size), &bits, 0, end - begin); });
}

bool run_direct(const Job& job, const Direct& direct) {
  const npu_command& command = job.command;
  const Operand& out = job.operands[direct.store_operand];
  if (!is_contiguous(command, out)) return false;
  const int64_t n = points_of(command);
  if (n == 0) return true;
  const Kernels& k = kernels();

  // Arguments: contiguous memory, or one value converted to the compute type.
  const char* ptr[3] = {nullptr, nullptr, nullptr};
  uint64_t value[3];
  unsigned uniform = 0;
  int memory_dtype = NPU_DTYPE_NONE;
  bool mixed = false;
  for (int i = 0; i < direct.args; ++i) {
    const Direct::Arg& arg = direct.arg[i];
    if (arg.kind == Direct::Arg::kOperand) {
      const Operand& operand = job.operands[arg.number];
      if (!is_one_value(command, operand) || n == 1) {
        if (!operand.immediate && is_contiguous(command, operand)) {
          ptr[i] = operand.ptr;
          mixed |= operand.dtype != arg.dtype;
          if (memory_dtype != NPU_DTYPE_NONE && memory_dtype != operand.dtype)
            memory_dtype = NPU_DTYPE_COUNT;
          else
            memory_dtype = operand.dtype;
          continue;
        }
        if (n != 1) return false;
      }
      value[i] = 0;
      k.convert[operand.dtype][arg.dtype](
          &value[i], operand.immediate ? reinterpret_cast<const char*>(&operand.bits) : operand.ptr, 1);
    } else if (arg.kind == Direct::Arg::kConst) {
      value[i] = scalar_bits(job.program->plan->consts[arg.number], arg.dtype);
    } else {
      value[i] = scalar_bits(job.params[arg.number].u, arg.dtype);
    }
    ptr[i] = reinterpret_cast<const char*>(&value[i]);
    uniform |= 1u << i;
  }
  const int out_log = log_size_of(out.dtype);
  if (direct.kind == Direct::kMove) {
    if (uniform) {
      uint64_t bits = 0;
      k.convert[direct.value_dtype][out.dtype](&bits, ptr[0], 1);
      fill_dense(out.ptr, bits, out_log, n);
      return true;
    }
    if (mixed) return false;
    if (out.dtype == direct.value_dtype && out.dtype != NPU_BOOL) {
      copy_dense(out.ptr, ptr[0], n << out_log);
    } else {
      const int in_log = log_size_of(direct.value_dtype);
      Convert convert = k.convert[direct.value_dtype][out.dtype];
      parallel_for(n, kGrain, [&](int64_t begin, int64_t end) {
        convert(out.ptr + (begin << out_log), ptr[0] + (begin << in_log), end - begin);
      });
    }
    return true;
  }
  if (uniform == (1u << direct.args) - 1 || memory_dtype == NPU_DTYPE_COUNT) return false;
  Kernel kernel = direct.kernel;
  int logs[3];
  if (mixed || out.dtype != direct.value_dtype) {
    // All of it bf16 or f16 in memory, F32 inside: a fused kernel if there is one.
    const bool half = memory_dtype == NPU_BF16 || memory_dtype == NPU_F16;
    if (!half || out.dtype != memory_dtype || direct.arg_dtype != NPU_F32 || direct.value_dtype != NPU_F32)
      return false;
    kernel = k.half_op[memory_dtype == NPU_BF16 ? 0 : 1][direct.op];
    if (!kernel) return false;
    for (int i = 0; i < direct.args; ++i) logs[i] = 1;
  } else {
    for (int i = 0; i < direct.args; ++i) logs[i] = log_size_of(direct.arg[i].dtype);
  }
  const int64_t cost = job.program->plan->each_cost;
  const int64_t grain = cost > 1200 ? 4096 : kGrain;
  if (n <= grain) {
    kernel(out.ptr, ptr[0], ptr[1], ptr[2], n, uniform);
    return true;
  }
  // A function takes longer than its memory: a copy past the caches would come on top.
  bool streams = n << out_log >= (cost > 1200 ? 8 : 1) * kStreamBytes;
  for (int i = 0; i < direct.args; ++i) streams &= ptr[i] != out.ptr;  // in place the line is in the cache already
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    auto at = [&](int i, int64_t from) { return !ptr[i] || (uniform >> i & 1) ? ptr[i] : ptr[i] + (from << logs[i]); };
    if (!streams)
      return kernel(out.ptr + (begin << out_log), at(0, begin), at(1, begin), at(2, begin), end - begin, uniform);
    alignas(64) char block[kStreamBlock];
    const int64_t step = kStreamBlock >> out_log;
    for (int64_t i = begin; i < end; i += step) {
      const int64_t m = std::min(step, end - i);
      kernel(block, at(0, i), at(1, i), at(2, i), m, uniform);
      k.stream(out.ptr + (i << out_log), block, m << out_log);
    }
    stream_fence();
  });
  return true;
}

}  // namespace cmodel
