/* A job: one piece of work in a queue, with copies of all that it needs. The command, its operands and its parameters
 * belong to the caller again when `submit` returns. */
#ifndef COMMANDS_JOB_H
#define COMMANDS_JOB_H

#include "program/program.h"

typedef struct job job;
typedef npu_status job_function(job* job);

struct job {
  job* next;
  npu_device* device;
  job_function* run;
  /* CHIP: what the hardware would ask for */
  npu_command command; /* with operands and params behind this struct */
  code* code;          /* of its program; NULL: none */
  char *to, *from;     /* of a copy of bytes */
  uint64_t size;
  struct mark* mark;    /* that it reaches or waits for */
  struct mark** record; /* where the event keeps it; NULL: it is not recorded here */
  uint64_t number;      /* in its queue */
  /* while it runs */
  atomic_int stop; /* device_reset: give up */
  npu_status failure;
  char text[256];
};

/* NULL: the error is set. */
job* job_of_command(npu_device* device, const npu_command* command);
job* job_make(npu_device* device, job_function* run);
void job_free(job* job);

/* Ends a job: keeps the sentence, with the command and the op that asked for it in front. Returns `status`. */
__attribute__((format(printf, 3, 4))) npu_status job_fail(job* job, npu_status status, const char* format, ...);

/* Called between steps of the work: says that there is progress. Not NPU_OK: end now. */
npu_status job_step(job* job);
extern atomic_ulong job_progress; /* steps of all jobs */

#endif
