/* Ending a worker: with its work done, or though it hangs. */
#include <stdlib.h>

#include "queue/worker/worker.h"

enum { GRACE = 2000 }; /* milliseconds for a job to see its stop flag */

/* Drops what waits. The lock is held. */
static void drop_waiting(queue* q) {
  worker* w = q->worker;
  while (w->first) {
    job* j = w->first;
    w->first = j->next;
    drop_job(j);
  }
  w->last = &w->first;
}

/* Leaves a hung thread to itself. What it may still touch stays as long as it lives. The lock is held. */
static void abandon(queue* q) {
  worker* w = q->worker;
  w->is_abandoned = 1;
  q->refs++; /* the thread's */
  pthread_detach(w->thread);
  atomic_store(&q->device->abandoned, 1);
  q->worker = NULL;
}

void queue_stop(queue* q) {
  worker* w = q->worker;
  if (!w) return;
  if (queue_wait(q, q->given) != NPU_OK) drop_waiting(q);
  if (w->running) return abandon(q);
  w->is_closing = 1;
  pthread_cond_broadcast(&queue_moved);
  pthread_mutex_unlock(&queue_lock);
  pthread_join(w->thread, NULL);
  pthread_mutex_lock(&queue_lock);
  q->worker = NULL;
  free(w);
}

static queue* running_queue(npu_device* device) {
  queue* q = queues;
  while (q && (q->device != device || !q->worker || !q->worker->running)) q = q->next;
  return q;
}

/* Asks what runs to stop, and waits a moment for it. CHIP: stop the hardware here; if it stops at
 * once, whatever it does, nothing needs to be abandoned. */
npu_status queues_reset(npu_device* device) {
  for (queue* q = queues; q; q = q->next) {
    if (q->device != device || !q->worker) continue;
    drop_waiting(q);
    if (q->worker->running) atomic_store(&q->worker->running->stop, 1);
  }
  pthread_cond_broadcast(&queue_moved);
  atomic_store(&device->lost, 0); /* patience is for devices that are not lost */
  const uint64_t timeout = device->instance.timeout;
  patience p = {.most = timeout < GRACE ? timeout : GRACE};
  while (running_queue(device) && wait_for_progress(device, &p) == NPU_OK) continue;
  npu_status status = NPU_OK;
  for (queue* q = queues; q; q = q->next) {
    if (q->device != device || !q->worker) continue;
    if (q->worker->running) {
      abandon(q);
      status = queue_start(q);
    }
    q->done = q->given;
    if (status != NPU_OK) return status;
  }
  pthread_cond_broadcast(&queue_moved);
  return NPU_OK;
}
