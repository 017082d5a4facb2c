#include "drivers/cmodel/runtime/run_job.h"

#include <cstring>

#include "drivers/cmodel/choose/choice.h"
#include "drivers/cmodel/runtime/device.h"
#include "drivers/cmodel/runtime/stream.h"
#include "drivers/cmodel/threads/pool.h"
#include "support/reference/reference.h"

namespace cmodel {

bool run_kind(const Job& job, Failure& failure) {
  switch (job.command.kind) {
    case NPU_COPY:
      return run_copy(job, failure);
    case NPU_MAP:
    case NPU_SCATTER:
      return run_map(job, failure);
    case NPU_REDUCE:
      return run_reduce(job, failure);
    case NPU_SCAN:
      return run_scan(job, failure);
    case NPU_SORT:
      return run_sort(job, failure);
    case NPU_MATMUL:
      return run_matmul(job, failure);
    case NPU_CONV:
      return run_conv(job, failure);
    default:
      break;
  }
  failure = {NPU_ERROR_INTERNAL, "expected a known kind of command, got " + std::to_string(job.command.kind)};
  return false;
}

namespace {

constexpr int64_t kCopyGrain = 256 << 10;

bool run_fast(const Job& job, Failure& failure) {
  if (job.command.choice == 0) [[likely]] {
    return run_kind(job, failure);
  }
  const ThreadLimit limit(choice_of(job.command).threads);
  return run_kind(job, failure);
}

// docs/isa.md to the letter. In this mode the job's command still has the host's operands.
bool run_exact(const npu_device& device, const Job& job, Failure& failure) {
  npu_program_desc desc{};
  if (job.program) desc = job.program->source.desc();
  const auto translate = [&](npu_addr addr, uint64_t size, bool) -> void* {
    Span span;
    return size > 0 && device.memory.find(addr, size, &span) ? span.ptr : nullptr;
  };
  failure.status = npu::run_reference(job.command, job.program ? &desc : nullptr, translate, &failure.text);
  return failure.status == NPU_OK;
}

}  // namespace

void run_job(npu_stream& stream, const Job& job) {
  Failure failure;
  const bool good = stream.device->options.exact ? run_exact(*stream.device, job, failure) : run_fast(job, failure);
  if (!good) stream.fail(failure.status, describe(job.command) + ": " + failure.text);
}

void copy_bytes(char* dst, const char* src, uint64_t size) {
  const bool overlap = dst < src + size && src < dst + size;
  if (overlap) {
    std::memmove(dst, src, size);
    return;
  }
  parallel_for(static_cast<int64_t>(size), kCopyGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(dst + begin, src + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace cmodel
