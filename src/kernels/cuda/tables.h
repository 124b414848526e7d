/* Tables of many tensors. With such a table, one launch processes all of these tensors.
 *
 * Note [Tables]. A launch takes the host about 3 us, and a small tensor fills only a part of the
 * card. So the functions of fsdp_kernels that get many tensors start one kernel for all of them.
 * Its grid has the blocks of the first tensor, then the blocks of the second tensor, and so on. The
 * kernel finds the tensor of a block in a table in device memory (tables.cuh).
 *
 * A table usually stays the same from step to step, because tensors keep their addresses. So the
 * table stays on the device, and is copied again only if it has changed. A step may need several
 * tables of one kind: one for each layout or dtype of tensors, for each call of a function, and for
 * each optimizer. So the device keeps several tables of each kind, and a new table replaces the one
 * that has not been used for the longest time. Values that change in each step, such as the
 * learning rate, are not in the table. */
#pragma once
#include "src/kernels/cuda/context.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The kinds of tables. Each function of fsdp_kernels that gets many tensors has one or more kinds
 * of its own. */
typedef enum fsdp_cuda_table {
    FSDP_CUDA_TABLE_ROWS,
    FSDP_CUDA_TABLE_RUNS,
    FSDP_CUDA_TABLE_ADAMW,
    FSDP_CUDA_TABLE_ADAMW_ROUNDED, /* tensors of adamw() that are rounded stochastically */
    FSDP_CUDA_TABLE_ADAMW_8BIT,    /* tensors of adamw() whose moments have 8 bits */
    FSDP_CUDA_TABLE_SCHEDULE_FREE,
    FSDP_CUDA_TABLE_SGD,
    FSDP_CUDA_N_TABLES
} fsdp_cuda_table;

/* Create the tables of a context, with enough host memory for a few tensors, so that calls for a
 * few tensors need not allocate memory. The context destroys the tables. */
FSDP_MUST_CHECK fsdp_status fsdp_cuda_tables_create(fsdp_cuda_context *c);
/* Return `bytes` zeroed bytes of host memory, into which the caller writes the table. The table is
 * later compared byte by byte, including the padding of structs. Return NULL if there is not enough
 * memory; the context then keeps the failure. */
void *fsdp_cuda_table_begin(fsdp_cuda_context *c, fsdp_cuda_table table, size_t bytes);
/* Copy the table to the device, unless the device already has an equal table of this kind. Return
 * the device address of the table for the kernels that the caller starts next. The address is a
 * multiple of 256. It is valid for kernels that are started before the next call of this function.
 * Return NULL on failure; the context then keeps the failure. */
const void *fsdp_cuda_table_end(fsdp_cuda_context *c, fsdp_cuda_table table);
/* For tests: return how many times tables of this context have been copied to the device. */
int64_t fsdp_cuda_table_copies(fsdp_kernel_context *context);

#ifdef __cplusplus
}
#endif
