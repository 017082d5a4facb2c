// Copies of bytes between host and device, and on the device.
#include <cstring>

#include "drivers/cmodel/runtime/device.h"
#include "drivers/cmodel/runtime/run_job.h"

namespace cmodel {
namespace {

constexpr uint64_t kStage = 16 << 10;  // so much of pageable host memory is kept in the queue instead of waiting
constexpr uint64_t kBytesPerNs = 10;   // of a copy that runs inline

npu_status locate(npu_stream* stream, const char* what, npu_addr addr, uint64_t size, char** out) {
  const Memory& memory = stream->device->memory;
  Span span;
  if (memory.find(addr, size, &span)) {
    *out = span.ptr;
    return NPU_OK;
  }
  return error(NPU_ERROR_ADDRESS, std::string(what) + " " + memory.why_not(addr, addr + size));
}

struct Transfer {
  char* dst;
  const char* src;
  uint64_t size;
  bool host_waits;  // pageable host memory: not needed any more on return
  bool stageable;
  const char* label;
  bool on_device = false;
};

npu_status give(npu_stream* stream, const Transfer& t) {
  uint64_t seq;
  {
    std::lock_guard<std::mutex> lock(stream->submit);
    if (Timing* timing = stream->device->instance->timing.get()) [[unlikely]] {
      npu::Work work;
      work.kind = t.on_device ? uint8_t{NPU_COPY} : npu::Work::kTransfer;
      work.bytes = static_cast<int64_t>(t.on_device ? 2 * t.size : t.size);
      stream->predicted_ns += timing->add(t.label, work);
    }
    const bool small = t.size / kBytesPerNs <= static_cast<uint64_t>(stream->device->options.inline_ns);
    if (stream->idle() && (small || t.host_waits)) {
      stream->begin_inline();
      copy_bytes(t.dst, t.src, t.size);
      stream->end_inline();
      return NPU_OK;
    }
    const bool staged = t.stageable && t.size <= kStage;
    auto* record = stream->make_record<TransferRecord>(Record::kTransfer, staged ? t.size : 0);
    if (!record) return NPU_ERROR_INTERNAL;
    record->dst = t.dst;
    record->src = t.src;
    record->size = t.size;
    if (staged) {
      char* kept = reinterpret_cast<char*>(record + 1);
      std::memcpy(kept, t.src, t.size);
      record->src = kept;
    }
    seq = record->seq;
    stream->enqueue(record);
    if (staged || !t.host_waits) return NPU_OK;
  }
  stream->wait(seq);
  return NPU_OK;
}

}  // namespace
}  // namespace cmodel

namespace npu::driver {
using namespace cmodel;

npu_status copy_to_device(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, uint32_t flags) {
  npu_status status = check_copy(stream, src, size, flags);
  if (status != NPU_OK || size == 0) return status;
  char* to;
  status = locate(stream, "copy to device writes", dst, size, &to);
  if (status != NPU_OK) return status;
  const bool pageable = !(flags & NPU_COPY_PINNED);
  return give(stream, {to, static_cast<const char*>(src), size, pageable, pageable, "host to device"});
}

npu_status copy_to_host(npu_stream* stream, void* dst, npu_addr src, uint64_t size, uint32_t flags) {
  npu_status status = check_copy(stream, dst, size, flags);
  if (status != NPU_OK || size == 0) return status;
  char* from;
  status = locate(stream, "copy to host reads", src, size, &from);
  if (status != NPU_OK) return status;
  return give(stream, {static_cast<char*>(dst), from, size, !(flags & NPU_COPY_PINNED), false, "device to host"});
}

npu_status copy_on_device(npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size) {
  if (!stream) return error(NPU_ERROR_INVALID, "expected a stream, got a null pointer");
  if (size == 0) return NPU_OK;
  char *to, *from;
  npu_status status = locate(stream, "copy on device writes", dst, size, &to);
  if (status == NPU_OK) status = locate(stream, "copy on device reads", src, size, &from);
  if (status != NPU_OK) return status;
  return give(stream, {to, from, size, false, false, "copy on device", true});
}

}  // namespace npu::driver
