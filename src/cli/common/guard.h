/* Kills a rank that MPI has started if a signal stops it for too long. */
#pragma once

/* Start a guard: a process that kills this process if a signal has stopped this process for
 * FSDP_STALL_S and one more second. A stopped process does not react when its peers end the job.
 * MPI does not end such a process in time, either: mpiexec of MPICH 4 waits without limit for a
 * stopped process, and mpirun of Open MPI 4 needs another 3 s after the process is dead. The
 * guard's message names the host, the rank, and what the rank did. `fsdp launch` watches its ranks
 * itself, so they need no guard.
 *
 * The guard ends when this process ends. Call this function before MPI_Init(), at most once. */
void fsdp_cli_guard_begin(void);
