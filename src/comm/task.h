/* Detects tasks of other launchers. srun, mpirun, torchrun and similar launchers start a program
 * several times, but the processes cannot find each other with this library. Each would be a world
 * of one, and all would write the same files. task.c recognizes these tasks by their
 * environment. */
#pragma once
#include <fsdp/base.h>

/* Return FSDP_ERR_UNSUPPORTED, with a message that names the variables, if this process is one of
 * several tasks that another launcher started. Ranks of `fsdp launch` and processes with
 * WORLD_SIZE=1 never get this error. */
FSDP_MUST_CHECK fsdp_status fsdp_check_single_task(void);
/* If this process runs alone in the script or shell of a Slurm allocation, return the allocation's
 * number of tasks; else 0. */
int64_t fsdp_allocated_tasks(void);
/* Does fsdp_check_single_task() fail in this process and also in task 0, which will report the
 * error? */
bool fsdp_task_0_reports(void);
