#include "commands/job.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

atomic_ulong job_progress;

static job* make(npu_device* device, job_function* run, size_t extra) {
  job* made = calloc(1, sizeof *made + extra);
  if (!made) {
    fail(NPU_ERROR_MEMORY, "expected host memory for a job, got none");
    return NULL;
  }
  made->device = device;
  made->run = run;
  return made;
}

job* job_make(npu_device* device, job_function* run) { return make(device, run, 0); }

job* job_of_command(npu_device* device, const npu_command* command) {
  const size_t operands = command->operand_count * sizeof(npu_operand);
  const size_t params = command->params ? command->param_count * sizeof(npu_scalar) : 0;
  job* made = make(device, NULL, operands + params);
  if (!made) return NULL;
  char* behind = (char*)(made + 1);
  made->command = *command;
  made->command.operands = operands ? memcpy(behind, command->operands, operands) : NULL;
  made->command.params = params ? memcpy(behind + operands, command->params, params) : NULL;
  made->command.program = NULL; /* it may go before the job runs; its code stays */
  if (command->program) {
    made->code = command->program->code;
    code_ref(made->code);
  }
  return made;
}

void job_free(job* job) {
  code_unref(job->code);
  free(job);
}

npu_status job_fail(job* job, npu_status status, const char* format, ...) {
  char text[192];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const char* label = job->command.label;
  snprintf(job->text, sizeof job->text, "%s (%s): %s", command_name(job->command.kind), label ? label : "no label",
           text);
  return job->failure = status;
}

npu_status job_step(job* job) {
  atomic_fetch_add_explicit(&job_progress, 1, memory_order_relaxed);
  if (!atomic_load_explicit(&job->stop, memory_order_relaxed)) return NPU_OK;
  return job_fail(job, NPU_ERROR_DEVICE_LOST, "expected to finish, got device_reset");
}
