/* The contract's functions for streams, events, copies and commands. */
#ifndef STREAMS_STREAMS_H
#define STREAMS_STREAMS_H

#include "streams/queue.h"

struct npu_stream {
  object object;
  queue* queue;
};

/* Closes the device behind its streams. */
void close_device(npu_device* device);
npu_status device_synchronize(npu_device* device);
npu_status device_reset(npu_device* device);

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

npu_status submit(npu_stream* stream, const npu_command* command);

#endif
