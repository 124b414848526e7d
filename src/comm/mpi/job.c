/* Finds out whether a launcher of MPI has started this process; see library.h. */
#include <stdlib.h>

#include "src/comm/environment.h"
#include "src/comm/mpi/library.h"
#include "src/comm/rendezvous.h"

bool fsdp_mpi_find_job(fsdp_mpi_job *job)
{
    int64_t rank, size, world_size = 0;
    const char *key = getenv("FSDP_MPI");
    if (getenv(FSDP_RENDEZVOUS_ENV))
        return false;
    fsdp_environment_number("WORLD_SIZE", &world_size);
    for (size_t i = 0; i < FSDP_N_LAUNCHERS; i++) {
        const fsdp_launcher *l = &fsdp_launchers[i];
        size = 0;
        if (!fsdp_environment_number(l->rank_name, &rank) ||
            (l->size_name && !fsdp_environment_number(l->size_name, &size)))
            continue;
        if (size == 1 && l->size_name)
            return false;
        /* A launcher between MPI and this process may set the ranks again, in torchrun's variables.
         * If WORLD_SIZE differs from the size of the MPI job, this process belongs to a run of that
         * launcher. */
        if (world_size == 1 || (world_size && size && world_size != size))
            return false;
        *job = (fsdp_mpi_job){l->name, l->size_name ? l->size_name : l->rank_name,
                              key && *key ? key : l->mpi, size, rank};
        return true;
    }
    return false;
}
