/* The units that run commands: one function for each kind. CHIP: put yours into the table, one row at a time. */
#ifndef COMMANDS_UNITS_H
#define COMMANDS_UNITS_H

#include "commands/job.h"

extern job_function* const units[NPU_COMMAND_COUNT]; /* units/ */

npu_status run_copy(job* job);
npu_status run_map(job* job);
npu_status run_reduce(job* job);
npu_status run_scan(job* job);
npu_status run_sort(job* job);
npu_status run_scatter(job* job);
npu_status run_matmul(job* job);
npu_status run_conv(job* job);

/* Whether the unit of this kind has the choice with this number, and how many result rows that takes at once. */
int matmul_rows(int choice);

npu_status supports(npu_device* device, const npu_command* command);
npu_status choices(npu_device* device, const npu_command* command, npu_choice* out, uint32_t capacity, uint32_t* count);

#endif
