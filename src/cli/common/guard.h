/* Ends a rank that is stopped, if MPI has started it. */
#pragma once

/* Start a process that kills this one if a signal stops it for a second longer than FSDP_STALL_S.
 * A stopped process does not react when its peers end the job, and neither MPI ends it in time:
 * mpirun of Open MPI 4 needs another 3 s after the process is dead, and mpiexec of MPICH 4 waits
 * for it without limit. The message names the host, the rank, and what it did. `fsdp launch`
 * watches its ranks itself.
 *
 * The process ends with this one. Call this function before MPI_Init(), at most once. */
void fsdp_cli_guard_begin(void);
