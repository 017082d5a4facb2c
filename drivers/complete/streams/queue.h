/* Queues of jobs, marks in them, and the failures that wait for somebody who asks. What a queue does with a job is in
 * the room queue/: run it in the call, or give it to a worker. */
#ifndef STREAMS_QUEUE_H
#define STREAMS_QUEUE_H

#include "commands/job.h"

typedef struct queue queue;

/* A place in a queue: what an event recorded. Counted, because a destroyed event still orders the work that waits for
 * it, and because an event may be recorded again while somebody waits for the record before. */
typedef struct mark {
  int refs, is_reached;
  uint64_t number; /* of the job */
  double time;     /* milliseconds */
  queue* queue;
} mark;

struct queue {
  int refs; /* the stream's, its marks', its worker's */
  npu_device* device;
  queue* next;           /* in `queues` */
  uint64_t given, done;  /* jobs */
  uint64_t goal;         /* what device_synchronize waits for */
  npu_status failure;    /* the first that was not reported yet */
  uint64_t failed, when; /* the number of that job; the order of failures of all queues */
  char text[256];
  struct worker* worker; /* see queue/ */
};

/* Guards all queues and marks. Nothing is run while it is held. */
extern pthread_mutex_t queue_lock;
extern pthread_cond_t queue_moved; /* a job came, or was done */
extern queue* queues;

/* -- the lock is held in these -- */

void queue_unref(queue* q);
void mark_unref(mark* m);
void mark_reach(mark* m);
/* A job gets its place. An event that it records knows the mark from now on, and no sooner: who waits for the mark
 * comes behind it. */
void queue_place(queue* q, job* job);
/* A job is done. */
void queue_done(queue* q, const job* job, npu_status status);
/* Gives away the failure of a job up to `number`: it is reported once. */
npu_status queue_report(queue* q, uint64_t number);
/* Takes a queue off the list; it lives as long as somebody counts it. */
void queue_forget(queue* q);

/* -- the room queue/ -- */

npu_status queue_start(queue* q);
/* Takes the job, also where it fails. The lock is not held. */
npu_status queue_give(queue* q, job* job);
/* Waits until so many jobs are done. The lock is held. */
npu_status queue_wait(queue* q, uint64_t number);
/* Waits until the mark is reached. The lock is held. `job`: the one that waits, which device_reset may stop. */
npu_status mark_wait(mark* m, job* job);
/* Waits for the queue's work, and ends what runs it. The lock is held. */
void queue_stop(queue* q);
/* Drops the work of the device's queues. The lock is held. */
npu_status queues_reset(npu_device* device);

#endif
