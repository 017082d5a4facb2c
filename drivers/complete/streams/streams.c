/* Streams, and what concerns all streams of a device. */
#include "streams/streams.h"

#include <stdlib.h>

static void destroy(object* object) { stream_destroy((npu_stream*)object); }

npu_status stream_create(npu_device* device, int32_t priority, npu_stream** out) {
  (void)priority; /* CHIP: which hardware queue it becomes */
  queue* q = calloc(1, sizeof *q);
  if (!q) return fail(NPU_ERROR_MEMORY, "stream_create: expected host memory, got none");
  npu_stream* made = object_make(device, sizeof *made, destroy);
  q->refs = 1;
  q->device = device;
  const npu_status status = made ? queue_start(q) : NPU_ERROR_MEMORY;
  if (status != NPU_OK) {
    if (made) object_free(&made->object);
    free(q);
    return status;
  }
  made->queue = q;
  pthread_mutex_lock(&queue_lock);
  q->next = queues;
  queues = q;
  pthread_mutex_unlock(&queue_lock);
  *out = made;
  return NPU_OK;
}

/* A failure that nobody has asked for goes with its stream. */
void stream_destroy(npu_stream* stream) {
  queue* q = stream->queue;
  pthread_mutex_lock(&queue_lock);
  queue_stop(q);
  q->failure = NPU_OK;
  queue_forget(q);
  pthread_mutex_unlock(&queue_lock);
  object_free(&stream->object);
}

npu_status stream_query(npu_stream* stream) {
  queue* q = stream->queue;
  pthread_mutex_lock(&queue_lock);
  const npu_status status = q->done == q->given ? NPU_OK : NPU_NOT_READY;
  pthread_mutex_unlock(&queue_lock);
  return status;
}

npu_status stream_synchronize(npu_stream* stream) {
  queue* q = stream->queue;
  pthread_mutex_lock(&queue_lock);
  const uint64_t number = q->given;
  npu_status status = queue_wait(q, number);
  if (status == NPU_OK) status = queue_report(q, number);
  pthread_mutex_unlock(&queue_lock);
  return status;
}

/* A queue of the device with work that was there at the start. The lock is held. */
static queue* unfinished(npu_device* device) {
  queue* q = queues;
  while (q && (q->device != device || q->done >= q->goal)) q = q->next;
  return q;
}

static npu_status wait_for_all(npu_device* device) {
  npu_status status = NPU_OK;
  for (queue* q = queues; q; q = q->next)
    if (q->device == device) q->goal = q->given;
  for (queue* q; status == NPU_OK && (q = unfinished(device));) {
    q->refs++; /* its stream may be destroyed meanwhile */
    status = queue_wait(q, q->goal);
    queue_unref(q);
  }
  return status;
}

/* Reports the oldest failure of any stream. Another stream's stays: it is that stream's to report, or the next call's.
 */
npu_status device_synchronize(npu_device* device) {
  pthread_mutex_lock(&queue_lock);
  npu_status status = wait_for_all(device);
  queue* first = NULL;
  for (queue* q = queues; q; q = q->next)
    if (q->device == device && q->failure != NPU_OK && (!first || q->when < first->when)) first = q;
  if (status == NPU_OK && first) status = queue_report(first, UINT64_MAX);
  pthread_mutex_unlock(&queue_lock);
  return status;
}

npu_status device_reset(npu_device* device) {
  pthread_mutex_lock(&queue_lock);
  const npu_status status = queues_reset(device);
  for (queue* q = queues; q && status == NPU_OK; q = q->next)
    if (q->device == device) q->failure = NPU_OK;
  if (status == NPU_OK) atomic_store(&device->lost, 0);
  pthread_mutex_unlock(&queue_lock);
  return status;
}

void close_device(npu_device* device) {
  pthread_mutex_lock(&queue_lock);
  wait_for_all(device);
  pthread_mutex_unlock(&queue_lock);
  while (device->objects) device->objects->destroy(device->objects);
  device_close(device);
}
