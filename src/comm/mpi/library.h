/* Finds out whether a launcher of MPI has started this process, and loads that launcher's library:
 * see Note [MPI at run time] in abi.h. */
#pragma once
#include <fsdp/base.h>

#include "src/comm/mpi/abi.h"

/* How MPI's launcher started this process. */
typedef struct fsdp_mpi_job {
    const char *launcher; /* "mpirun" */
    const char
        *variable;   /* the variable by which the launcher was recognized: "OMPI_COMM_WORLD_SIZE" */
    const char *key; /* fsdp_mpi_abi.key of the library that the launcher belongs to */
    int64_t size;    /* number of processes that were started together; 0: unknown */
    int64_t rank;    /* number of this process, as the launcher counts */
} fsdp_mpi_job;

/* Return true if mpirun, mpiexec or srun with an MPI plug-in has started this process, and fill in
 * *job. Ranks of
 * `fsdp launch`, and processes with WORLD_SIZE=1, do not count, even if MPI has started `fsdp
 * launch` itself. The variable FSDP_MPI (openmpi or mpich) names the library of the launcher; it is
 * needed if the launcher works with both. */
bool fsdp_mpi_find_job(fsdp_mpi_job *job);

/* Load the library that belongs to the job's launcher. It stays loaded until the process ends.
 * @return FSDP_ERR_UNSUPPORTED if the library is not on this machine, or if this build is without
 * MPI; FSDP_ERR_INVALID if FSDP_MPI has another value */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_load(const fsdp_mpi_job *job, const fsdp_mpi_abi **abi);
