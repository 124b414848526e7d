/* Tables of many tensors, so that one launch handles all of them.
 *
 * Note [Tables]. A launch takes the host about 3 us, and a small tensor fills only a part of the
 * card. So the slots that get many tensors start one kernel for all of them: its grid has the
 * blocks of the first tensor, then those of the second, and so on. The kernel finds the tensor of a
 * block in a table in device memory (tables.cuh).
 *
 * A table mostly stays the same from step to step, because tensors keep their addresses. So it
 * stays on the device, and is copied again only if it has changed. Values that change in each step,
 * such as the learning rate, are not in the table. */
#pragma once
#include "src/kernels/cuda/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each slot that gets many tensors has a table of its own. */
typedef enum fsdp_cuda_table {
    FSDP_CUDA_TABLE_ROWS,
    FSDP_CUDA_TABLE_RUNS,
    FSDP_CUDA_TABLE_ADAMW,
    FSDP_CUDA_TABLE_SGD,
    FSDP_CUDA_N_TABLES
} fsdp_cuda_table;

/* Create the tables of a context, with enough host memory for a few tensors, so that a call for a
 * few tensors allocates none. The context destroys the tables. */
FSDP_MUST_CHECK fsdp_status fsdp_cuda_tables_create(fsdp_cuda_context *c);
/* Return `bytes` zeroed bytes of host memory, into which the caller writes the table. The table is
 * later compared byte by byte, padding of structs included. Return NULL if there is not enough
 * memory; the context then keeps the failure. */
void *fsdp_cuda_table_begin(fsdp_cuda_context *c, fsdp_cuda_table table, size_t bytes);
/* Copy the table to the device, unless the device already has an equal one. Return its address
 * there, aligned to 256 bytes, for the kernels that the caller starts next. Return NULL on failure,
 * which the context keeps. */
const void *fsdp_cuda_table_end(fsdp_cuda_context *c, fsdp_cuda_table table);
/* Return how often a table of this context was copied to the device, for tests. */
int64_t fsdp_cuda_table_copies(fsdp_kernel_context *context);

#ifdef __cplusplus
}
#endif
