// The halves of a wrapping driver (wrapper.h), which share how a call on every side is answered.
#pragma once
#include <mutex>
#include <string>

#include "support/verify/wrapper.h"

namespace npu::wrapping {

using Guard = std::lock_guard<std::recursive_mutex>;

inline const npu_driver& api(const npu_device& device, size_t side) {
  return *device.instance->sides[side].api;
}
inline Watcher& watcher(const npu_device& device) {
  return *device.instance->watcher;
}

const char* error_text();
// Keep the text for error_text and answer the status.
npu_status fail(npu_status status, std::string text);
npu_status give(Outcome outcome);
// Of a driver that has just failed on this thread.
Outcome failed(const npu_device& device, size_t side, npu_status status);
// The answer to a call that one side alone was asked.
npu_status answer(const npu_device& device, size_t side, npu_status status);
// What became of a call on a stream of one side, and of all work before it.
Outcome waited(const npu_stream& stream, size_t side, npu_status status);

// -- wrapper_memory.cpp --

// Fresh memory is undefined; here it is zero on every side from its first use, so that all sides stay equal byte for
// byte.
Outcome prepare(npu_device& device, npu_addr addr, uint64_t size);

npu_status memory_info(npu_device* device, uint64_t* free_bytes, uint64_t* total_bytes);
npu_status memory_alloc(npu_device* device, uint64_t size, npu_addr* out);
npu_status memory_free(npu_device* device, npu_addr addr);
npu_status host_alloc(npu_device* device, uint64_t size, void** out);
npu_status host_free(npu_device* device, void* ptr);
npu_status copy_to_device(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, uint32_t flags);
npu_status copy_to_host(npu_stream* stream, void* dst, npu_addr src, uint64_t size, uint32_t flags);
npu_status copy_on_device(npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size);

}  // namespace npu::wrapping
