/* Detects tasks of other launchers. srun, mpirun, torchrun and the like start a program several
 * times, but their processes do not find each other here. Each would be a world of one, and all
 * would write the same files. task.c describes how they are recognized. */
#pragma once
#include <fsdp/base.h>

/* FSDP_ERR_UNSUPPORTED, with a message that names the variables, if this process is one of several
 * tasks that another launcher started. Ranks of `fsdp launch` never are, nor is a process with
 * WORLD_SIZE=1. */
FSDP_MUST_CHECK fsdp_status fsdp_check_single_task(void);
/* The number of tasks of the Slurm allocation in whose script or shell this process runs alone;
 * else 0. */
int64_t fsdp_allocated_tasks(void);
/* Whether this process has that error and task 0 reports it too. */
bool fsdp_task_0_reports(void);
