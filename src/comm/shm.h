/* What the transports "shm" and "mpi" have in common: the memory that the ranks of one host share.
 *
 * Note [Memory on several hosts]. If the ranks of a group are on several hosts, each host has a
 * buffer with the layout of the whole. In a gradient buffer with a part for each rank, the ranks of
 * a host write their own parts. They get, from the other hosts, only the rows that they sum, and
 * only of the first part of each term (Note [Sums of a host] in src/fsdp/grad_terms.h). So with H
 * hosts of L ranks and one term for each host, L + (H - 1) / H parts are ever written, and not L H. Pages that no
 * rank writes take no memory, so these buffers are sparse. On one host, all pages are allocated at
 * once, so that a lack of memory is an error and not the end of a process. */
#pragma once
#include "src/comm/group.h"

/* The `impl` of a group. */
typedef struct fsdp_shm {
    /* [world_size] The socket to each rank of this host; -1: none. The first rank of the group on
     * the host has a socket to each of the others, and they have one to it. */
    int *sockets;
    int world_size;
    int control_fd; /* -1 after the control block has been mapped */
    uint64_t sent;  /* number of buffers that this rank has created */
} fsdp_shm;

FSDP_MUST_CHECK fsdp_status fsdp_shm_create(int world_size, fsdp_shm **out);
void fsdp_shm_destroy(fsdp_shm *shm); /* closes the descriptors; accepts NULL */

/* Implementations of functions of fsdp_comm_ops. */
FSDP_MUST_CHECK fsdp_status fsdp_shm_memory_create(fsdp_group *group, size_t bytes,
                                                   fsdp_comm_memory *memory,
                                                   fsdp_comm_offer *offer);
FSDP_MUST_CHECK fsdp_status fsdp_shm_memory_attach(fsdp_group *group, size_t bytes,
                                                   const fsdp_comm_offer *offer,
                                                   fsdp_comm_memory *memory);
void fsdp_shm_memory_release(fsdp_comm_memory *memory);
void fsdp_shm_memory_discard(void *pages, size_t bytes);
FSDP_MUST_CHECK fsdp_status fsdp_shm_connect(fsdp_group *parent, fsdp_group *group);
