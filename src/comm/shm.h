/* What the transports "shm" and "mpi" have in common: the memory that the ranks of one host share.
 *
 * Note [Memory on several hosts]. If the ranks of a group are on several hosts, each host has its
 * own memory for each buffer, with the layout of the whole buffer. In a gradient buffer with a part
 * for each rank, the ranks of a host write their own parts. From the other hosts, they get only the
 * rows that they sum, and only those in the first part of each term (Note [Sums of a host] in
 * src/fsdp/grad_terms.h). So with H hosts of L ranks and one term for each host, only L + (H - 1) /
 * H parts are ever written, out of L H parts. Pages that no rank writes take no memory, so these
 * buffers are sparse. On one host, all pages of a buffer that is written completely are allocated
 * at once, so that a lack of memory causes an error instead of a killed process. */
#pragma once
#include "src/comm/group.h"

/* The `impl` of a group. */
typedef struct fsdp_shm {
    /* [world_size] This rank's socket to each rank; -1: none. The first rank of the group on each
     * host has a socket to every other rank on the host, and each of these ranks has a socket to
     * the first rank. */
    int *sockets;
    int world_size;
    int control_fd; /* -1 after the control block has been mapped */
    uint64_t sent;  /* number of buffers whose memfd this rank has created and sent */
} fsdp_shm;

FSDP_MUST_CHECK fsdp_status fsdp_shm_create(int world_size, fsdp_shm **out);
void fsdp_shm_destroy(fsdp_shm *shm); /* closes the descriptors; accepts NULL */

/* Implementations of functions of fsdp_comm_ops. */
FSDP_MUST_CHECK fsdp_status fsdp_shm_memory_create(fsdp_group *group, size_t bytes, size_t least,
                                                   fsdp_comm_memory *memory,
                                                   fsdp_comm_offer *offer);
FSDP_MUST_CHECK fsdp_status fsdp_shm_memory_attach(fsdp_group *group, size_t bytes,
                                                   const fsdp_comm_offer *offer,
                                                   fsdp_comm_memory *memory);
void fsdp_shm_memory_release(fsdp_comm_memory *memory);
void fsdp_shm_memory_discard(void *pages, size_t bytes);
FSDP_MUST_CHECK fsdp_status fsdp_shm_connect(fsdp_group *parent, fsdp_group *group);
