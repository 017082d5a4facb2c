#include "drivers/cmodel/engine/one_instruction.h"

#include <algorithm>
#include <cstring>

#include "drivers/cmodel/engine/tuning.h"
#include "drivers/cmodel/interpreter/interpreter.h"
#include "drivers/cmodel/threads/pool.h"

namespace cmodel {

void copy_dense(char* out, const char* in, int64_t bytes) {
  if (out == in) return;
  parallel_for(bytes, kChunkCopyBytes, [&](int64_t begin, int64_t end) {
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
  if (n <= kChunkValues) return fill(out, &bits, 0, n);
  parallel_for(n, kChunkFill,
               [&](int64_t begin, int64_t end) { fill(out + (begin << log_size), &bits, 0, end - begin); });
}

Kernel kernel_in_memory(const OneInstruction& one, int memory, int stored) {
  const bool half = memory == NPU_BF16 || memory == NPU_F16;
  if (!half || stored != memory || one.arg_dtype != NPU_F32 || one.value_dtype != NPU_F32) return nullptr;
  return kernels().half_op[memory == NPU_BF16 ? 0 : 1][one.op];
}

namespace {

// The arguments over contiguous memory, or one value converted to the compute type.
struct Arguments {
  const char* ptr[3] = {nullptr, nullptr, nullptr};
  int log_size[3];
  uint64_t value[3];
  unsigned uniform = 0;
  int memory_dtype = NPU_DTYPE_NONE;  // of what lies in memory; NPU_DTYPE_COUNT: several
  bool mixed = false;                 // some of it has another type than the instruction's

  const char* at(int i, int64_t point) const {
    return !ptr[i] || (uniform >> i & 1) ? ptr[i] : ptr[i] + (point << log_size[i]);
  }
};

const char* bind(const Job& job, const OneInstruction& one, int64_t n, Arguments& args) {
  for (int i = 0; i < one.args; ++i) {
    const OneInstruction::Argument& arg = one.arg[i];
    args.log_size[i] = log_size_of(arg.dtype);
    if (arg.kind == OneInstruction::Argument::kOperand) {
      const Operand& operand = job.operands[arg.number];
      if (!is_one_value(job.command, operand) || n == 1) {
        if (!operand.immediate && is_contiguous(job.command, operand)) {
          args.ptr[i] = operand.ptr;
          args.mixed |= operand.dtype != arg.dtype;
          const bool several = args.memory_dtype != NPU_DTYPE_NONE && args.memory_dtype != operand.dtype;
          args.memory_dtype = several ? int{NPU_DTYPE_COUNT} : int{operand.dtype};
          continue;
        }
        if (n != 1) return "an argument is not contiguous";
      }
      args.value[i] = 0;
      const char* bits = operand.immediate ? reinterpret_cast<const char*>(&operand.bits) : operand.ptr;
      kernels().convert[operand.dtype][arg.dtype](&args.value[i], bits, 1);
    } else {
      args.value[i] = argument_bits(job, arg);
    }
    args.ptr[i] = reinterpret_cast<const char*>(&args.value[i]);
    args.uniform |= 1u << i;
  }
  return nullptr;
}

// A value, converted or not.
const char* move(const OneInstruction& one, const Operand& out, int64_t n, const Arguments& args) {
  const Convert convert = kernels().convert[one.value_dtype][out.dtype];
  const int out_log = log_size_of(out.dtype);
  if (args.uniform) {
    uint64_t bits = 0;
    convert(&bits, args.ptr[0], 1);
    fill_dense(out.ptr, bits, out_log, n);
    return nullptr;
  }
  if (args.mixed) return "what is moved is of another type in memory";
  if (out.dtype == one.value_dtype && out.dtype != NPU_BOOL) {
    copy_dense(out.ptr, args.ptr[0], n << out_log);
    return nullptr;
  }
  parallel_for(n, kChunkValues, [&](int64_t begin, int64_t end) {
    convert(out.ptr + (begin << out_log), args.at(0, begin), end - begin);
  });
  return nullptr;
}

void compute(Kernel kernel, char* out, int out_log, int64_t n, int64_t cost, int args_count, const Arguments& args) {
  const unsigned uniform = args.uniform;
  const int64_t grain = cost > kFunctionCost ? kChunkFunctionValues : kChunkValues;
  if (n <= grain) return kernel(out, args.ptr[0], args.ptr[1], args.ptr[2], n, uniform);
  bool streams = n << out_log >= (cost > kFunctionCost ? kFunctionStreams : 1) * kStreamBytes;
  for (int i = 0; i < args_count; ++i) streams &= args.ptr[i] != out;  // in place the line is in the cache already
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    const auto run = [&](char* to, int64_t from, int64_t m) {
      kernel(to, args.at(0, from), args.at(1, from), args.at(2, from), m, uniform);
    };
    if (!streams) return run(out + (begin << out_log), begin, end - begin);
    alignas(64) char block[kStreamBlock];
    const int64_t step = kStreamBlock >> out_log;
    for (int64_t i = begin; i < end; i += step) {
      const int64_t m = std::min(step, end - i);
      run(block, i, m);
      kernels().stream(out + (i << out_log), block, m << out_log);
    }
    stream_fence();
  });
}

}  // namespace

const char* run_contiguous(const Job& job, const OneInstruction& one) {
  const Operand& out = job.operands[one.store_operand];
  if (!is_contiguous(job.command, out)) return "the result is not contiguous";
  const int64_t n = points_of(job.command);
  if (n == 0) return nullptr;
  Arguments args;
  if (const char* reason = bind(job, one, n, args)) return reason;
  if (one.kind == OneInstruction::kMove) return move(one, out, n, args);
  if (args.uniform == (1u << one.args) - 1) return "every argument is one value";
  if (args.memory_dtype == NPU_DTYPE_COUNT) return "arguments are of several types";
  Kernel kernel = one.kernel;
  if (args.mixed || out.dtype != one.value_dtype) {
    kernel = kernel_in_memory(one, args.memory_dtype, out.dtype);
    if (!kernel) return "no kernel converts these types";
    for (int i = 0; i < one.args; ++i) args.log_size[i] = 1;
  }
  compute(kernel, out.ptr, log_size_of(out.dtype), n, job.program->plan->each_cost, one.args, args);
  return nullptr;
}

}  // namespace cmodel
