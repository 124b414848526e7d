/* Ends a rank that is stopped, if MPI has started it. */
#pragma once

/* Start a process that kills this one if it is stopped by a signal for as long as ranks of another
 * host wait for it (FSDP_STALL_S). The ranks of the other hosts end the job then, but a stopped
 * process does not react, and neither MPI ends it in time: mpirun of Open MPI 4 needs another 5 s,
 * and mpiexec of MPICH 4 waits for it without limit. `fsdp launch` watches its ranks itself.
 *
 * The process ends with this one. Call this function before MPI_Init(), at most once. */
void fsdp_cli_guard_begin(void);
