/* Environment variables that ranks read when they join a job. Some are set by launchers other than
 * `fsdp launch` (mpirun, mpiexec, srun) and contain the rank of the process. Others say for how
 * long ranks wait. Variables for other purposes are read where they are used. */
#pragma once
#include <stdint.h>

#include <fsdp/base.h>

typedef struct fsdp_launcher {
    const char *name;      /* "mpirun" */
    const char *size_name; /* variable with the number of processes; NULL: the launcher sets no such
                              variable */
    const char *rank_name; /* variable with the rank of the process */
    const char *mpi;       /* fsdp_mpi_abi.key of the library that the launcher belongs to */
} fsdp_launcher;

enum {
    FSDP_N_LAUNCHERS = 5
};

/* The known launchers, in order: a process belongs to the first launcher whose variables are set.
 * The order matters: mpirun of Open MPI, for example, sets its own variables and also PMIX_RANK,
 * which srun sets, too. */
extern const fsdp_launcher fsdp_launchers[FSDP_N_LAUNCHERS];

/* Set *value to the number in the environment variable `name`. Return false if the variable is not
 * set or is not a non-negative integer, or if `name` is NULL. */
bool fsdp_environment_number(const char *name, int64_t *value);

/* Set *timeout_ns from FSDP_TIMEOUT_S: for how long a rank waits for a peer. Set *stall_s to
 * FSDP_STALL_S: for how long a peer's process may be silent (0: without limit).
 * @return FSDP_ERR_INVALID if a variable has another value than a number of seconds */
FSDP_MUST_CHECK fsdp_status fsdp_read_limits(int64_t *timeout_ns, double *stall_s);
/* Return for how long a rank of another host may be silent, if a rank of this host may be silent
 * for `stall_s` seconds. The result is larger than `stall_s`, because a network may fail for a
 * short time: if a cable is unplugged for 2 s, TCP sends the lost packets again 3 s after it first
 * sent them. */
static inline double fsdp_remote_stall_s(double stall_s)
{
    return 1.5 * stall_s;
}
