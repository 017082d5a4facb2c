/* The thread of a queue. */
#ifndef QUEUE_WORKER_WORKER_H
#define QUEUE_WORKER_WORKER_H

#include <time.h>

#include "streams/queue.h"

typedef struct worker {
  pthread_t thread;
  queue* queue;
  job *first, **last; /* that wait */
  job* running;
  int is_closing;   /* ends when nothing waits */
  int is_abandoned; /* ends when its job does, if ever: the queue has another by now */
} worker;

/* How long somebody waits: until nothing has moved for `most` milliseconds. The rest starts as zero. */
typedef struct patience {
  uint64_t most;
  unsigned long steps; /* of all jobs when it was last renewed */
  uint64_t until;      /* milliseconds */
} patience;

/* Waits for something to happen. NPU_ERROR_TIMEOUT: nothing did, and the device is lost. The lock is held. */
npu_status wait_for_progress(npu_device* device, patience* p);

/* A job that will not run: who waits for its mark must not wait for ever. The lock is held. */
void drop_job(job* job);

#endif
