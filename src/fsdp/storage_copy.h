/* The memory of cast copies. It is used by several storages, which store this rank's rows in
 * different ways. */
#pragma once
#include "src/fsdp/param_storage.h"

typedef struct fsdp_copy_memory {
    fsdp_param_memory base;
    fsdp_buffer *buffer; /* From a pool; NULL if nothing is gathered and no copy is kept. */
    bool is_open;  /* The copy is kept and in a WRITE phase: this rank's rows may be written. */
    int unwritten; /* Number of writes of local tensors that the kept copy does not contain yet. */
    bool is_gathered; /* A gather has written this rank's rows, and no reshard has followed yet. */
} fsdp_copy_memory;

/* Implements fsdp_param_storage.own_rows_of_copy for storages whose copy is in FSDP_MEMORY_COPY. */
void *fsdp_own_rows_in_copy(const fsdp_param *p, fsdp_dtype *dtype);
