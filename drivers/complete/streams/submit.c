/* Work that the caller gives: commands and copies. What can be checked is checked in the call. */
#include <string.h>

#include "commands/check_command.h"
#include "commands/units.h"
#include "streams/streams.h"

npu_status supports(npu_device* device, const npu_command* command) {
  (void)device;
  return command_check(command); /* CHIP: and NPU_UNSUPPORTED for what it has not got; the text says what */
}

npu_status submit(npu_stream* stream, const npu_command* command) {
  npu_device* device = stream->object.device;
  const npu_status status = supports(device, command);
  if (status != NPU_OK) return status;
  if (command->choice && (command->kind != NPU_MATMUL || !matmul_rows(command->choice)))
    return refuse(command, "expected choice 0 or one that `choices` announced, got %d", command->choice);
  if (command->program && command->program->code->desc.param_count && !command->params)
    return refuse(command, "expected %u parameters, got none", command->program->code->desc.param_count);
  job* j = job_of_command(device, command);
  if (!j) return NPU_ERROR_MEMORY;
  j->run = units[command->kind];
  return queue_give(stream->queue, j);
}

static npu_status run_move(job* job) {
  memmove(job->to, job->from, job->size); /* CHIP: the DMA engine */
  return job_step(job);
}

/* Each side is a host pointer or else a device address. */
static npu_status copy(const char* what, npu_stream* stream, void* to, npu_addr dst, const void* from, npu_addr src,
                       uint64_t size, int waits) {
  npu_device* device = stream->object.device;
  extent found;
  if (size == 0) return NPU_OK;
  if (!to && memory_find(device, dst, size, &found)) to = found.host + (dst - found.addr);
  if (!from && memory_find(device, src, size, &found)) from = found.host + (src - found.addr);
  if (!to || !from)
    return fail(NPU_ERROR_ADDRESS, "%s: expected %" PRIu64 " bytes in one live allocation, got 0x%" PRIx64, what, size,
                to ? src : dst);
  job* j = job_make(device, run_move);
  if (!j) return NPU_ERROR_MEMORY;
  j->to = to;
  j->from = (char*)from;
  j->size = size;
  npu_status status = queue_give(stream->queue, j);
  if (status != NPU_OK || !waits) return status;
  /* The host's memory is the caller's again when this returns. CHIP: a staging buffer waits less. */
  pthread_mutex_lock(&queue_lock);
  status = queue_wait(stream->queue, stream->queue->given);
  pthread_mutex_unlock(&queue_lock);
  return status;
}

npu_status copy_to_device(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, uint32_t flags) {
  return copy("copy_to_device", stream, NULL, dst, src, 0, size, !(flags & NPU_COPY_PINNED));
}
npu_status copy_to_host(npu_stream* stream, void* dst, npu_addr src, uint64_t size, uint32_t flags) {
  return copy("copy_to_host", stream, dst, 0, NULL, src, size, !(flags & NPU_COPY_PINNED));
}
npu_status copy_on_device(npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size) {
  return copy("copy_on_device", stream, NULL, dst, NULL, src, size, 0);
}
