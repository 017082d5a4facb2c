#include "streams/queue.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t queue_moved = PTHREAD_COND_INITIALIZER;
queue* queues;

static uint64_t failures; /* of all queues so far */

void queue_unref(queue* q) {
  if (--q->refs == 0) free(q);
}

void mark_unref(mark* m) {
  if (!m || --m->refs > 0) return;
  queue_unref(m->queue);
  free(m);
}

void mark_reach(mark* m) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now); /* CHIP: the chip's own clock, read when it gets there */
  m->time = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
  m->is_reached = 1;
}

void queue_place(queue* q, job* job) {
  job->number = ++q->given;
  if (!job->record) return;
  mark* before = *job->record;
  job->mark->number = job->number;
  job->mark->refs++;
  *job->record = job->mark;
  mark_unref(before);
}

void queue_done(queue* q, const job* job, npu_status status) {
  q->done++;
  if (status != NPU_OK && q->failure == NPU_OK) {
    q->failure = status;
    q->failed = job->number;
    q->when = ++failures;
    memcpy(q->text, job->text, sizeof q->text);
  }
  pthread_cond_broadcast(&queue_moved);
}

npu_status queue_report(queue* q, uint64_t number) {
  const npu_status status = q->failure;
  if (status == NPU_OK || q->failed > number) return NPU_OK;
  q->failure = NPU_OK;
  return fail(status, "%s", q->text);
}

void queue_forget(queue* q) {
  queue** at = &queues;
  while (*at != q) at = &(*at)->next;
  *at = q->next;
  queue_unref(q);
}
