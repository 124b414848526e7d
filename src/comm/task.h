/* Detects processes that another launcher started. srun, mpirun, torchrun and similar launchers
 * start a program several times. Processes that an MPI has started form one job
 * (mpi/transport_mpi.h). But plain srun and torchrun only start processes, which cannot find each
 * other. Each process would be a world of one, and all of them would write the same files. task.c
 * recognizes such processes by their environment. */
#pragma once
#include <fsdp/base.h>

/* If another launcher started this process as one of several, return FSDP_ERR_UNSUPPORTED with a
 * message that names the variables. Ranks of `fsdp launch` and processes with WORLD_SIZE=1 never
 * get this error. */
FSDP_MUST_CHECK fsdp_status fsdp_check_single_task(void);
/* How this process was started, as the report of `fsdp env` shows it. */
typedef struct fsdp_start {
    const char *launcher;        /* "mpirun"; NULL: no launcher started this process */
    const char *variable;        /* variable that shows the launcher: "OMPI_COMM_WORLD_RANK" */
    const char *rank_text;       /* value of the launcher's variable for the rank, or NULL */
    const char *world_size_text; /* value of its variable for the number of processes, or NULL */
} fsdp_start;
/* Find the launcher that started this process. It does not matter whether this launcher started one
 * process or several. If no launcher is found, all fields are NULL. The strings belong to the
 * environment or are static. */
fsdp_start fsdp_find_start(void);
/* If this process runs alone in the script or shell of a Slurm allocation, return the number of
 * tasks of the allocation. Otherwise return 0. */
int64_t fsdp_allocated_tasks(void);
/* Return true if this process is not task 0, and fsdp_check_single_task() certainly fails in task
 * 0, too. In this case, task 0 reports the error, and this process must not report it again. */
bool fsdp_task_0_reports(void);
