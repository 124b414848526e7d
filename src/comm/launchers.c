/* See launchers.h. */
#include "src/comm/launchers.h"

#include <errno.h>
#include <stdlib.h>

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
