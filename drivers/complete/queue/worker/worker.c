/* One thread per queue takes jobs off in order. It stands for your doorbell and your interrupt. A chip that does not
 * answer is found by its lack of progress: the wait ends, the device counts as lost, and device_reset makes it usable
 * again. */
#include "queue/worker/worker.h"

#include <stdlib.h>
#include <unistd.h>

const option queue_options[] = {
    {"timeout", 1, 1ull << 40, 60000, offsetof(npu_instance, timeout), 0}, /* milliseconds */
    {"hang", 0, UINT64_MAX, 0, offsetof(npu_instance, hang), 0},
    {0},
};

/* For tests of the rest: the job with this number never ends, and does not look at its stop flag. */
static npu_status run_hang(job* job) {
  (void)job;
  while (pause()) continue; /* it returns -1 after a signal, and never else */
  return NPU_ERROR_TIMEOUT;
}

/* The next job, or NULL if the worker has to end. The lock is held. */
static job* take(worker* w) {
  queue* q = w->queue;
  while (!w->is_abandoned && (w->first ? atomic_load(&q->device->lost) : !w->is_closing))
    pthread_cond_wait(&queue_moved, &queue_lock);
  if (w->is_abandoned || !w->first) return NULL;
  job* j = w->first;
  w->first = j->next;
  if (!w->first) w->last = &w->first;
  w->running = j;
  return j;
}

static void* work(void* argument) {
  worker* w = argument;
  queue* q = w->queue;
  pthread_mutex_lock(&queue_lock);
  for (job* j; (j = take(w));) {
    pthread_mutex_unlock(&queue_lock);
    const npu_status status = j->run(j); /* CHIP: ring the doorbell, wait for the interrupt */
    pthread_mutex_lock(&queue_lock);
    w->running = NULL;
    if (!w->is_abandoned) queue_done(q, j, status);
    job_free(j);
  }
  if (w->is_abandoned) { /* nobody waits for this thread */
    queue_unref(q);
    free(w);
  }
  pthread_mutex_unlock(&queue_lock);
  return NULL;
}

npu_status queue_start(queue* q) {
  worker* w = calloc(1, sizeof *w);
  if (!w) return fail(NPU_ERROR_MEMORY, "stream_create: expected host memory, got none");
  w->queue = q;
  w->last = &w->first;
  if (pthread_create(&w->thread, NULL, work, w) != 0) {
    free(w);
    return fail(NPU_ERROR_MEMORY, "stream_create: expected a worker thread, got none");
  }
  q->worker = w;
  return NPU_OK;
}

static npu_status lost(void) {
  return fail(NPU_ERROR_DEVICE_LOST, "the device is lost since a job did not end: expected device_reset");
}

void drop_job(job* j) {
  if (j->record) mark_reach(j->mark);
  mark_unref(j->mark);
  job_free(j);
}

npu_status queue_give(queue* q, job* job) {
  npu_status status = NPU_OK;
  pthread_mutex_lock(&queue_lock);
  if (atomic_load(&q->device->lost) || !q->worker) {
    drop_job(job);
    status = lost();
  } else {
    queue_place(q, job);
    if (++q->device->jobs == q->device->instance.hang) job->run = run_hang;
    *q->worker->last = job;
    q->worker->last = &job->next;
    pthread_cond_broadcast(&queue_moved);
  }
  pthread_mutex_unlock(&queue_lock);
  return status;
}

npu_status wait_for_progress(npu_device* device, patience* p) {
  if (atomic_load(&device->lost)) return lost();
  const unsigned long steps = atomic_load(&job_progress);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
  if (!p->until || steps != p->steps) *p = (patience){.steps = steps, .until = ms + p->most, .most = p->most};
  if (ms >= p->until) {
    atomic_store(&device->lost, 1);
    pthread_cond_broadcast(&queue_moved);
    return fail(NPU_ERROR_TIMEOUT, "expected progress within %" PRIu64 " ms, got none: the device needs device_reset",
                p->most);
  }
  const struct timespec until = {.tv_sec = (time_t)(p->until / 1000), .tv_nsec = (long)(p->until % 1000) * 1000000};
  pthread_cond_timedwait(&queue_moved, &queue_lock, &until);
  return NPU_OK;
}

npu_status queue_wait(queue* q, uint64_t number) {
  patience p = {.most = q->device->instance.timeout};
  npu_status status = NPU_OK;
  while (status == NPU_OK && q->done < number) status = wait_for_progress(q->device, &p);
  return status;
}

/* A job that waits is no progress; only who waits for it may lose patience. */
npu_status mark_wait(mark* m, job* job) {
  if (m->is_reached) return NPU_OK; /* its device may be closed by now */
  patience p = {.most = m->queue->device->instance.timeout};
  npu_status status = NPU_OK;
  while (status == NPU_OK && !m->is_reached) {
    if (!job)
      status = wait_for_progress(m->queue->device, &p);
    else if (atomic_load(&job->stop))
      status = job_fail(job, NPU_ERROR_DEVICE_LOST, "expected an event, got device_reset");
    else
      pthread_cond_wait(&queue_moved, &queue_lock);
  }
  return status;
}
