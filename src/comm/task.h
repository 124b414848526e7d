/* Tasks of other launchers: srun, mpirun, torchrun and the like start a program several times, but
 * their processes do not find each other here. Each would be a world of one, and all would write
 * the same files. What they are recognised by is in task.c. */
#pragma once
#include <fsdp/base.h>

/* FSDP_ERR_UNSUPPORTED naming the variables if this process is one of several tasks that another
 * launcher started. Ranks of `fsdp launch` never are, nor is a process with WORLD_SIZE=1. */
FSDP_MUST_CHECK fsdp_status fsdp_check_single_task(void);
/* Tasks of the Slurm allocation in whose script or shell this process runs alone; else 0. */
int64_t fsdp_allocated_tasks(void);
/* Is that the error of this process, and does task 0 report it, too? */
bool fsdp_task_0_reports(void);
