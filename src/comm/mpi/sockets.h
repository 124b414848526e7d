/* Hands the control block of a host to its ranks, and connects the first rank to the other ranks:
 * see world.h. */
#pragma once
#include "src/comm/mpi/world.h"

/* The abstract name of a Unix socket, without its leading NUL. */
typedef struct fsdp_mpi_address {
    uint8_t length;
    char name[31];
} fsdp_mpi_address;

/* Listen for the other ranks of this host. */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_listen(int ranks, int *listener, fsdp_mpi_address *address);
/* Called on the first rank of the host: accept the connections of the other ranks, create the
 * control block and send it to them. */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_accept_ranks(int listener, const fsdp_mpi_world *world,
                                                  fsdp_shm *shm);
/* Called on the other ranks of the host: connect to the first rank and receive the control block.
 */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_connect_to(const fsdp_mpi_address *address,
                                                const fsdp_mpi_world *world, fsdp_shm *shm);
