/* Work is done when its call returns: the simplest legal device. A failure is kept all the same, and reported by
 * whoever synchronises next, because a command whose call failed has not been accepted. */
#include <stdlib.h>

#include "streams/queue.h"

const option queue_options[] = {{0}};

struct worker {
  int is_busy; /* another thread's job runs: jobs of one stream run one after the other */
};

npu_status queue_start(queue* q) {
  q->worker = calloc(1, sizeof *q->worker);
  return q->worker ? NPU_OK : fail(NPU_ERROR_MEMORY, "stream_create: expected host memory, got none");
}

npu_status queue_give(queue* q, job* job) {
  pthread_mutex_lock(&queue_lock);
  while (q->worker->is_busy) pthread_cond_wait(&queue_moved, &queue_lock);
  q->worker->is_busy = 1;
  queue_place(q, job);
  pthread_mutex_unlock(&queue_lock);
  const npu_status status = job->run(job);
  pthread_mutex_lock(&queue_lock);
  q->worker->is_busy = 0;
  queue_done(q, job, status);
  pthread_mutex_unlock(&queue_lock);
  job_free(job);
  return NPU_OK;
}

npu_status queue_wait(queue* q, uint64_t number) {
  while (q->done < number) pthread_cond_wait(&queue_moved, &queue_lock);
  return NPU_OK;
}

npu_status mark_wait(mark* m, job* job) {
  (void)job;
  while (!m->is_reached) pthread_cond_wait(&queue_moved, &queue_lock); /* another thread records it just now */
  return NPU_OK;
}

void queue_stop(queue* q) {
  queue_wait(q, q->given);
  free(q->worker);
  q->worker = NULL;
}

/* What runs ends by itself; nothing waits to be dropped. */
npu_status queues_reset(npu_device* device) {
  for (queue* q = queues; q; q = q->next)
    if (q->device == device) q->goal = q->given;
  for (queue* q = queues; q;) {
    if (q->device == device && q->done < q->goal) {
      pthread_cond_wait(&queue_moved, &queue_lock);
      q = queues; /* the list may have changed */
    } else {
      q = q->next;
    }
  }
  return NPU_OK;
}
