/* The memory FSDP_MEMORY_COPY, which contains cast copies. Several storages use it. They differ in
 * how they store this rank's rows.
 *
 * Note [Secondary shards]. With FSDP_RESHARD_TO_SMALLER, the gather in backward must not need data
 * of all ranks. If reshard_ranks is at most the number of ranks of a host, each host keeps the
 * whole copy between forward and backward. Operations cannot read the copy during this time
 * (FSDP_STATE_HIDDEN). The gather in backward then sends nothing. For ranks on cards, read "card"
 * for "host" in this note.
 *
 * If reshard_ranks is larger, the ranks of several hosts keep one copy together
 * (FSDP_STATE_SECONDARY). After forward, each of these ranks copies its part of the copy to private
 * memory and returns the copy to its pool. In backward, they write their parts to a copy again, and
 * each rank sends its part only to the hosts of these ranks. All ranks of the shard group take part
 * in the phases of this copy, because it comes from the same pool as in forward. */
#pragma once
#include "src/fsdp/param_storage.h"

typedef struct fsdp_copy_memory {
    fsdp_param_memory base;
    fsdp_buffer *buffer; /* From a pool; NULL if nothing is gathered and no copy is kept. */
    bool is_open;        /* The copy is in a WRITE phase: this rank may write its rows. */
    /* Number of writes of local tensors since the last gather. Writes that also stored the new rows
     * in the copy are not counted. */
    int unwritten;
    bool is_gathered; /* A gather has written this rank's rows, and no reshard has followed yet. */
    /* This rank's part of the copy between forward and backward, in private memory from a pool:
     * Note [Secondary shards]. NULL: no part is kept. */
    fsdp_buffer *part;
    int part_ranks; /* Number of ranks whose parts together are one copy; valid while `part` is not
                       NULL. */
} fsdp_copy_memory;

/* Implements fsdp_param_storage.own_rows_of_copy for storages whose copy is in FSDP_MEMORY_COPY. */
void *fsdp_own_rows_in_copy(const fsdp_param *p, fsdp_dtype *dtype);
