/* What ranks read from their environment: the variables by which launchers of other programs
 * (mpirun, mpiexec, srun) set the rank of each process, and for how long ranks wait. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

typedef struct fsdp_launcher {
    const char *name;      /* "mpirun" */
    const char *size_name; /* variable with the number of processes; NULL: there is none */
    const char *rank_name; /* variable with the rank of the process */
    const char *mpi;       /* fsdp_mpi_abi.key of the library that the launcher belongs to */
} fsdp_launcher;

enum {
    FSDP_N_LAUNCHERS = 5
};

/* A process belongs to the first launcher whose variables are set: mpirun of Open MPI sets
 * PMIX_RANK, too. */
extern const fsdp_launcher fsdp_launchers[FSDP_N_LAUNCHERS];

/* Set *value to the number in the environment variable `name`. Return false if the variable is not
 * set or is not a non-negative integer, or if `name` is NULL. */
bool fsdp_environment_number(const char *name, int64_t *value);

/* Set *timeout_ns to FSDP_TIMEOUT_S, for how long a rank waits for one that does not arrive, and
 * *stall_s to FSDP_STALL_S, for how long one that has arrived may be silent (0: without limit).
 * @return FSDP_ERR_INVALID if a variable has another value than a number of seconds */
FSDP_MUST_CHECK fsdp_status fsdp_read_limits(int64_t *timeout_ns, double *stall_s);
/* Return for how long a rank of another host may be silent. A cable may be out for 2 s, and TCP
 * then sends lost packets again 3 s after it first sent them. */
static inline double fsdp_remote_stall_s(double stall_s)
{
    return 1.5 * stall_s;
}
