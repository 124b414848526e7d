/* Tables of many tensors, from which one launch serves all of them.
 *
 * Note [Tables]. A launch takes the host about 3 us, and a small tensor fills only a part of the
 * card. So the slots that get many tensors start one kernel for all: its grid has the blocks of the
 * first tensor, then those of the second, and so on. The kernel finds the tensor of a block in a
 * table in device memory (tables.cuh).
 *
 * From step to step a table mostly stays the same, because tensors keep their addresses. So it
 * stays on the device, and is copied only if it has changed. What changes in each step, such as a
 * learning rate, is no part of it. */
#pragma once
#include "src/kernels/cuda/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each slot has a table of its own. */
typedef enum fsdp_cuda_table {
    FSDP_CUDA_TABLE_ROWS,
    FSDP_CUDA_TABLE_RUNS,
    FSDP_CUDA_TABLE_ADAMW,
    FSDP_CUDA_TABLE_SGD,
    FSDP_CUDA_N_TABLES
} fsdp_cuda_table;

/* Create the tables of a context, with room for small ones: so a call for a few tensors needs no
 * more memory. The context destroys them. */
FSDP_MUST_CHECK fsdp_status fsdp_cuda_tables_create(fsdp_cuda_context *c);
/* Return `bytes` bytes of host memory, all zero, into which the caller writes the table: all of it,
 * padding of structs included, is compared. Returns NULL if there is no memory; the failure is then
 * kept (fsdp_cuda_fail()). */
void *fsdp_cuda_table_begin(fsdp_cuda_context *c, fsdp_cuda_table table, size_t bytes);
/* Bring the table to the device unless it is there. Return its address, aligned to 256 bytes, for
 * the kernels that the caller starts next. Returns NULL on failure (kept). */
const void *fsdp_cuda_table_end(fsdp_cuda_context *c, fsdp_cuda_table table);
/* Return how often a table of this context was copied to the device, for tests. */
int64_t fsdp_cuda_table_copies(fsdp_kernel_context *context);

#ifdef __cplusplus
}
#endif
