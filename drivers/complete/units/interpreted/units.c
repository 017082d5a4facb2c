/* Who runs which command. CHIP: your unit in the row of its command; what it declines may still go to the one here. */
#include "commands/units.h"

const option unit_options[] = {{0}};

job_function* const units[NPU_COMMAND_COUNT] = {
    [NPU_COPY] = run_copy, [NPU_MAP] = run_map,         [NPU_REDUCE] = run_reduce, [NPU_SCAN] = run_scan,
    [NPU_SORT] = run_sort, [NPU_SCATTER] = run_scatter, [NPU_MATMUL] = run_matmul, [NPU_CONV] = run_conv,
};
