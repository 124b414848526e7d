/* Joins a job: reads the environment and chooses the transport. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/assert.h"
#include "src/comm/group.h"
#include "src/comm/mpi/transport_mpi.h"
#include "src/comm/rendezvous.h"
#include "src/comm/task.h"

/* The transports among which fsdp_init_process_group() looks for the name `backend`. */
static const fsdp_comm_ops *const transports[] = {&fsdp_comm_local, &fsdp_comm_shm,
                                                  &fsdp_comm_threads};

/* Read an integer in [low, high] from the environment variable `name`. If the variable is not set,
 * `*value` keeps its value. */
static fsdp_status read_env_int(const char *name, int low, int high, bool *found, int *value)
{
    const char *text = getenv(name);
    *found = text && *text;
    if (!*found)
        return FSDP_OK;
    char *end;
    errno = 0;
    long read = strtol(text, &end, 10);
    if (*end || errno || read < low || read > high)
        return fsdp_error(FSDP_ERR_INVALID, "environment: %s is '%s', not an integer from %d to %d",
                          name, text, low, high);
    *value = (int)read;
    return FSDP_OK;
}

static fsdp_status read_world(fsdp_comm_world *world)
{
    bool found;
    *world = (fsdp_comm_world){.world_size = 1};
    FSDP_TRY(read_env_int("WORLD_SIZE", 1, FSDP_COMM_MAX_RANKS, &found, &world->world_size));
    world->rendezvous = getenv(FSDP_RENDEZVOUS_ENV);
    if (!found && world->rendezvous)
        return fsdp_error(FSDP_ERR_INVALID,
                          "environment: " FSDP_RENDEZVOUS_ENV " is set, but WORLD_SIZE is not");
    int last = world->world_size - 1;
    FSDP_TRY(read_env_int("RANK", 0, last, &found, &world->rank));
    if (!found && last > 0)
        return fsdp_error(FSDP_ERR_INVALID, "environment: WORLD_SIZE is %d, but RANK is not set",
                          world->world_size);
    world->local_rank = world->rank;
    world->local_world_size = world->world_size;
    FSDP_TRY(read_env_int("LOCAL_WORLD_SIZE", 1, last + 1, &found, &world->local_world_size));
    FSDP_TRY(
        read_env_int("LOCAL_RANK", 0, world->local_world_size - 1, &found, &world->local_rank));
    return FSDP_OK;
}

static const fsdp_comm_ops *find_transport(const char *name)
{
    for (size_t i = 0; i < FSDP_LENGTH(transports); i++)
        if (strcmp(transports[i]->name, name) == 0)
            return transports[i];
    return NULL;
}

/* The user may have named a backend of PyTorch, such as "nccl" or "gloo". */
static fsdp_status unknown_backend(const char *backend)
{
#ifdef FSDP_HAVE_MPI
    static const char known[] = "'shm' (ranks of `fsdp launch`), 'mpi' (of mpirun) and 'local' "
                                "(one rank)";
#else
    static const char known[] = "'shm' (ranks of `fsdp launch`) and 'local' (one rank), and is "
                                "without MPI";
#endif
    return fsdp_error(FSDP_ERR_UNSUPPORTED,
                      "init_process_group: there is no backend '%s'; this build has %s. Pass NULL, "
                      "which chooses by how the ranks were started, for CPUs and for cards: "
                      "FSDP_CARD_EXCHANGE says how several cards exchange data",
                      backend, known);
}

static fsdp_status wait_for_ranks(fsdp_group **group)
{
    fsdp_status status = fsdp_barrier(*group);
    if (status != FSDP_OK) {
        fsdp_error_context(status, "init_process_group: waiting for all %d ranks",
                           fsdp_group_world_size(*group));
        fsdp_destroy_process_group(*group);
        *group = NULL;
    }
    return status;
}

static fsdp_status join_mpi(const fsdp_mpi_job *job, fsdp_group **group)
{
    FSDP_TRY(fsdp_mpi_open(job, group));
    return wait_for_ranks(group);
}

fsdp_status fsdp_init_process_group(const char *backend, fsdp_group **group)
{
    fsdp_comm_world world;
    fsdp_mpi_job job;
    if (!group)
        return fsdp_error(FSDP_ERR_INVALID, "init_process_group: group is NULL");
    const fsdp_comm_ops *wanted = backend ? find_transport(backend) : NULL;
    if (backend && !wanted && strcmp(backend, "mpi") != 0)
        return unknown_backend(backend);
    if (wanted && !wanted->open)
        return fsdp_error(FSDP_ERR_INVALID,
                          "init_process_group: ranks as %s are run by fsdp_run_ranks", backend);
    /* If MPI has started this process, get the rank and the number of ranks from MPI. Do not use
     * WORLD_SIZE, because scripts for sbatch often set it for other launchers. */
    if ((!backend || strcmp(backend, "mpi") == 0) && fsdp_mpi_find_job(&job))
        return join_mpi(&job, group);
    if (backend && strcmp(backend, "mpi") == 0)
        return fsdp_error(FSDP_ERR_INVALID,
                          "init_process_group: backend 'mpi' is for processes that mpirun, mpiexec "
                          "or srun --mpi=pmix|pmi2 has started, and no variable of these is set");
    FSDP_TRY(read_world(&world));
    if (world.world_size == 1) {
        FSDP_TRY(fsdp_check_single_task());
        return fsdp_comm_local.open(&world, group);
    }
    if (wanted == &fsdp_comm_local)
        return fsdp_error(FSDP_ERR_INVALID,
                          "init_process_group: backend 'local' is a world of one, WORLD_SIZE is %d",
                          world.world_size);
    FSDP_TRY(fsdp_comm_shm.open(&world, group));
    return wait_for_ranks(group);
}
