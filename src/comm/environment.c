/* See environment.h. */
#include "src/comm/environment.h"

#include <errno.h>
#include <stdlib.h>

static const double default_timeout_s = 600;
/* With this limit, all ranks get the error within 5 s after a process is stopped. */
static const double default_stall_s = 4;

const fsdp_launcher fsdp_launchers[FSDP_N_LAUNCHERS] = {
    {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "openmpi"},
    {"mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "mpich"},
    {"mpiexec", "PMI_SIZE", "PMI_RANK", "mpich"},
    {"srun", "SLURM_STEP_NUM_TASKS", "PMIX_RANK", "openmpi"},
    {"a PMIx launcher", NULL, "PMIX_RANK", "openmpi"},
};

bool fsdp_environment_number(const char *name, int64_t *value)
{
    const char *text = name ? getenv(name) : NULL;
    char *end;
    if (!text || !*text)
        return false;
    errno = 0;
    const long long read = strtoll(text, &end, 10);
    if (*end || errno || read < 0)
        return false;
    *value = read;
    return true;
}

/* Read a number of seconds from the environment variable `name`. It must be at least `least`. If
 * the variable is not set, `*seconds` keeps its value. */
static fsdp_status read_seconds(const char *name, double least, double *seconds)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text)
        return FSDP_OK;
    double read = strtod(text, &end);
    if (*end || !(read >= least) || read > 1e9)
        return fsdp_error(FSDP_ERR_INVALID,
                          "environment: %s is '%s', not a number of seconds from %g to 1e9", name,
                          text, least);
    *seconds = read;
    return FSDP_OK;
}

fsdp_status fsdp_read_limits(int64_t *timeout_ns, double *stall_s)
{
    double timeout_s = default_timeout_s;
    *stall_s = default_stall_s;
    FSDP_TRY(read_seconds("FSDP_TIMEOUT_S", 1e-3, &timeout_s));
    FSDP_TRY(read_seconds("FSDP_STALL_S", 0, stall_s));
    *timeout_ns = (int64_t)(timeout_s * 1e9);
    return FSDP_OK;
}
