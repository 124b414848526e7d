/* The memory FSDP_MEMORY_COPY, which contains cast copies. Several storages use it. They differ in
 * how they store this rank's rows. */
#pragma once
#include "src/fsdp/param_storage.h"

typedef struct fsdp_copy_memory {
    fsdp_param_memory base;
    fsdp_buffer *buffer; /* From a pool; NULL if nothing is gathered and no copy is kept. */
    bool is_open;        /* The copy is in a WRITE phase: this rank may write its rows. */
    /* Number of writes of local tensors since the last gather, without the writes that also stored
     * the new rows in the copy. */
    int unwritten;
    bool is_gathered; /* A gather has written this rank's rows, and no reshard has followed yet. */
} fsdp_copy_memory;

/* Implements fsdp_param_storage.own_rows_of_copy for storages whose copy is in FSDP_MEMORY_COPY. */
void *fsdp_own_rows_in_copy(const fsdp_param *p, fsdp_dtype *dtype);
