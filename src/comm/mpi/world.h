/* The processes that MPI has started, and the hosts that they run on.
 *
 * World ranks are numbered host by host, so that ranks [h * ranks_per_host, (h + 1) *
 * ranks_per_host) are on host h, as torchrun numbers them. MPI may number the processes in another
 * order (srun --distribution=cyclic). Hosts are in the order of their first MPI rank. All hosts
 * must have the same number of ranks.
 *
 * The ranks of a host get the same descriptors that `fsdp launch` hands to its children
 * (rendezvous.h): the first rank creates the control block and listens on a socket, to which the
 * others connect. Each end checks that the other belongs to the same user. The socket has an
 * abstract name that the kernel chooses, so nothing remains in a file system. */
#pragma once
#include "src/comm/mpi/library.h"
#include "src/comm/shm.h"

typedef struct fsdp_mpi_host_name {
    char text[64];
} fsdp_mpi_host_name;

typedef struct fsdp_mpi_world {
    const fsdp_mpi_abi *abi;
    fsdp_mpi_handle comm; /* ordered by world rank; valid while has_comm */
    bool has_comm;
    int rank, world_size;
    int host, n_hosts, local_rank, ranks_per_host;
    fsdp_mpi_host_name *host_names; /* [n_hosts] */
    bool is_test;                   /* FSDP_TEST_HOSTS divides each host into imagined hosts */
} fsdp_mpi_world;

/* Initialize MPI if the program that embeds this one has not done so, and find out which rank is on
 * which host. Collective over the processes that MPI has started. The caller calls
 * fsdp_mpi_world_free().
 * @return FSDP_ERR_UNSUPPORTED if MPI has started fewer processes than the launcher says, if hosts
 * have different numbers of ranks, or if MPI cannot be called by several threads; FSDP_ERR_COMM if
 * the processes are of different versions of fsdp, or an MPI call fails */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_world_join(const fsdp_mpi_job *job, fsdp_mpi_world *world);
void fsdp_mpi_world_free(fsdp_mpi_world *world);
/* Connect the ranks of this host: fill in shm->sockets and shm->control_fd. The control block is
 * for all ranks of the world. Collective, like the next function. */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_world_connect(const fsdp_mpi_world *world, fsdp_shm *shm);
/* Return FSDP_OK if `mine` is FSDP_OK on all ranks. Otherwise return the error of the first rank
 * that has an error. */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_world_agree(const fsdp_mpi_world *world, fsdp_status mine);
/* Convert MPI's error code to an error. `call` is a name such as "MPI_Isend". */
FSDP_MUST_CHECK fsdp_status fsdp_mpi_error(const fsdp_mpi_abi *abi, const char *call, int code);
/* Set whether MPI_Finalize() is called when the process ends. It must not be called while the
 * thread of progress.h runs, or if some sent messages will never arrive, because MPI would wait for
 * them. */
void fsdp_mpi_finalize_at_exit(bool yes);
/* Called when this rank has left a world of several hosts without a failure; it may be called once.
 * See Note [Ending MPICH] in world.c. Return true if `control` must stay mapped. */
bool fsdp_mpi_world_left(const fsdp_mpi_abi *abi, fsdp_comm_control *control, int rank,
                         int ranks_per_host);
