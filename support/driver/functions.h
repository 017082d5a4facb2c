// A driver in C++. It defines the functions below, named as in npu_driver, and links npu_driver_base, which makes the
// table of them: no exception crosses the contract, and what is weak may be left out.
#pragma once
#include "npu/runtime.h"

namespace npu::driver {

extern const char* const name;
extern const char* const version;

npu_status open(const char* options, npu_instance** out);
void close(npu_instance* instance);
npu_status device_count(npu_instance* instance, uint32_t* out);
npu_status device_open(npu_instance* instance, uint32_t index, npu_device** out);
void device_close(npu_device* device);
npu_status device_properties(npu_device* device, npu_properties* out);
npu_status device_synchronize(npu_device* device);
npu_status device_reset(npu_device* device);

npu_status memory_info(npu_device* device, uint64_t* free_bytes, uint64_t* total_bytes);
npu_status memory_alloc(npu_device* device, uint64_t size, npu_addr* out);
npu_status memory_free(npu_device* device, npu_addr addr);
npu_status host_alloc(npu_device* device, uint64_t size, void** out);
npu_status host_free(npu_device* device, void* memory);
[[gnu::weak]] npu_status range_reserve(npu_device* device, uint64_t size, npu_addr* out);
[[gnu::weak]] npu_status range_map(npu_device* device, npu_addr addr, uint64_t size);
[[gnu::weak]] npu_status range_unmap(npu_device* device, npu_addr addr, uint64_t size);
[[gnu::weak]] npu_status range_release(npu_device* device, npu_addr addr);

npu_status copy_to_device(npu_stream* stream, npu_addr dst, const void* src, uint64_t size, uint32_t flags);
npu_status copy_to_host(npu_stream* stream, void* dst, npu_addr src, uint64_t size, uint32_t flags);
npu_status copy_on_device(npu_stream* stream, npu_addr dst, npu_addr src, uint64_t size);

npu_status stream_create(npu_device* device, int32_t priority, npu_stream** out);
void stream_destroy(npu_stream* stream);
npu_status stream_query(npu_stream* stream);
npu_status stream_synchronize(npu_stream* stream);
npu_status stream_wait_event(npu_stream* stream, npu_event* event);
npu_status event_create(npu_device* device, uint32_t flags, npu_event** out);
void event_destroy(npu_event* event);
npu_status event_record(npu_event* event, npu_stream* stream);
npu_status event_query(npu_event* event);
npu_status event_synchronize(npu_event* event);
npu_status event_elapsed(npu_event* start, npu_event* end, double* out);

npu_status program_create(npu_device* device, const npu_program_desc* desc, npu_program** out);
void program_destroy(npu_program* program);
npu_status supports(npu_device* device, const npu_command* command);
npu_status submit(npu_stream* stream, const npu_command* command);
[[gnu::weak]] npu_status choices(npu_device* device, const npu_command* command, npu_choice* out, uint32_t capacity,
                                 uint32_t* count);

}  // namespace npu::driver
