/* Finds out whether a launcher of MPI has started this process; see library.h. */
#include <errno.h>
#include <stdlib.h>

#include "src/base/assert.h"
#include "src/comm/mpi/library.h"
#include "src/comm/rendezvous.h"

/* Variables of a launcher. If size_name is NULL, it has no variable for the number of processes. */
typedef struct launcher {
    const char *name, *size_name, *rank_name, *key;
} launcher;

/* mpirun of Open MPI sets PMIX_RANK, too, so it is looked for first. */
static const launcher launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "openmpi"},
    {"mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", "mpich"},
    {"mpiexec", "PMI_SIZE", "PMI_RANK", "mpich"},
    {"srun", "SLURM_STEP_NUM_TASKS", "PMIX_RANK", "openmpi"},
    {"a PMIx launcher", NULL, "PMIX_RANK", "openmpi"},
};

static bool read_number(const char *name, int64_t *value)
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

bool fsdp_mpi_find_job(fsdp_mpi_job *job)
{
    int64_t rank, size, world_size = 0;
    const char *key = getenv("FSDP_MPI");
    if (getenv(FSDP_RENDEZVOUS_ENV))
        return false;
    read_number("WORLD_SIZE", &world_size);
    for (size_t i = 0; i < FSDP_LENGTH(launchers); i++) {
        const launcher *l = &launchers[i];
        size = 0;
        if (!read_number(l->rank_name, &rank) ||
            (l->size_name && !read_number(l->size_name, &size)))
            continue;
        if (size == 1 && l->size_name)
            return false;
        /* A launcher between MPI and this process may state the ranks again, as torchrun's
         * variables. Another world size is a run of its own, if the size of the job is known. */
        if (world_size == 1 || (world_size && size && world_size != size))
            return false;
        *job = (fsdp_mpi_job){l->name, l->size_name ? l->size_name : l->rank_name,
                              key && *key ? key : l->key, size, rank};
        return true;
    }
    return false;
}
