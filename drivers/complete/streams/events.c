/* Events: places in a queue. */
#include <stdlib.h>

#include "streams/streams.h"

struct npu_event {
  object object;
  uint32_t flags;
  mark* mark; /* of the last record; NULL: never recorded */
};

static void destroy(object* object) { event_destroy((npu_event*)object); }

npu_status event_create(npu_device* device, uint32_t flags, npu_event** out) {
  npu_event* made = object_make(device, sizeof *made, destroy);
  if (!made) return NPU_ERROR_MEMORY;
  made->flags = flags;
  made->mark = NULL;
  *out = made;
  return NPU_OK;
}

void event_destroy(npu_event* event) {
  pthread_mutex_lock(&queue_lock);
  mark_unref(event->mark);
  pthread_mutex_unlock(&queue_lock);
  object_free(&event->object);
}

/* CHIP: the chip writes its clock to memory and raises an interrupt. */
static npu_status run_record(job* job) {
  pthread_mutex_lock(&queue_lock);
  mark_reach(job->mark);
  mark_unref(job->mark);
  pthread_cond_broadcast(&queue_moved);
  pthread_mutex_unlock(&queue_lock);
  return NPU_OK;
}

/* CHIP: a semaphore between queues. */
static npu_status run_wait(job* job) {
  pthread_mutex_lock(&queue_lock);
  const npu_status status = mark_wait(job->mark, job);
  mark_unref(job->mark); /* the event itself may be gone by now */
  pthread_mutex_unlock(&queue_lock);
  return status;
}

npu_status event_record(npu_event* event, npu_stream* stream) {
  queue* q = stream->queue;
  mark* made = calloc(1, sizeof *made);
  job* j = made ? job_make(q->device, run_record) : NULL;
  if (!j) {
    free(made);
    return fail(NPU_ERROR_MEMORY, "event_record: expected host memory, got none");
  }
  made->refs = 1; /* the job's */
  made->queue = q;
  j->mark = made;
  j->record = &event->mark;
  pthread_mutex_lock(&queue_lock);
  q->refs++;
  pthread_mutex_unlock(&queue_lock);
  return queue_give(q, j);
}

/* The mark of the last record, counted once more. NULL: none. */
static mark* last_record(npu_event* event) {
  pthread_mutex_lock(&queue_lock);
  mark* m = event->mark;
  if (m) m->refs++;
  pthread_mutex_unlock(&queue_lock);
  return m;
}

npu_status stream_wait_event(npu_stream* stream, npu_event* event) {
  mark* m = last_record(event);
  if (!m) return NPU_OK;
  job* j = job_make(stream->queue->device, run_wait);
  if (!j) {
    pthread_mutex_lock(&queue_lock);
    mark_unref(m);
    pthread_mutex_unlock(&queue_lock);
    return NPU_ERROR_MEMORY;
  }
  j->mark = m;
  return queue_give(stream->queue, j);
}

npu_status event_query(npu_event* event) {
  pthread_mutex_lock(&queue_lock);
  const npu_status status = !event->mark || event->mark->is_reached ? NPU_OK : NPU_NOT_READY;
  pthread_mutex_unlock(&queue_lock);
  return status;
}

npu_status event_synchronize(npu_event* event) {
  mark* m = last_record(event);
  if (!m) return NPU_OK;
  pthread_mutex_lock(&queue_lock);
  npu_status status = mark_wait(m, NULL);
  if (status == NPU_OK) status = queue_report(m->queue, m->number);
  mark_unref(m);
  pthread_mutex_unlock(&queue_lock);
  return status;
}

npu_status event_elapsed(npu_event* start, npu_event* end, double* out) {
  pthread_mutex_lock(&queue_lock);
  const mark *a = start->mark, *b = end->mark;
  const int known = (start->flags & end->flags & NPU_EVENT_TIMING) && a && b && a->is_reached && b->is_reached;
  if (known) *out = b->time - a->time;
  pthread_mutex_unlock(&queue_lock);
  if (known) return NPU_OK;
  return fail(NPU_ERROR_INVALID, "event_elapsed: expected two reached events made with NPU_EVENT_TIMING");
}
