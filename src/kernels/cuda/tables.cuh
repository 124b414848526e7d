/* The functions by which a kernel finds the tensor of a block. See Note [Tables] in tables.h. */
#pragma once
#include "src/kernels/cuda/elements.cuh"
#include "src/kernels/cuda/tables.h"

/* A table of n tensors in device memory. Tensor i is computed by blocks first[i] to first[i + 1] -
 * 1 of the grid. */
template <typename T> struct table_of {
    const T *tensors;      /* [n] */
    const uint32_t *first; /* [n + 1] */
    int n;
};

/* Return the index of the tensor that this block computes. All threads of the block must call this
 * function exactly once. */
template <typename T> FSDP_DEVICE int tensor_of_block(const table_of<T> &table)
{
    SHARED(int, found, [1]);
    for (int i = (int)threadIdx.x; i < table.n; i += (int)blockDim.x)
        if (table.first[i] <= blockIdx.x && blockIdx.x < table.first[i + 1])
            found[0] = i;
    __syncthreads();
    return found[0];
}

/* --- in host code --- */

/* Writes a table in host memory and copies it to the device. Call begin(), then add() for each
 * tensor, then end(). */
template <typename T> class table_writer
{
    fsdp_cuda_context *c;
    fsdp_cuda_table which;
    T *tensors;
    uint32_t *first;
    size_t capacity, n;

  public:
    /* Begin a table of at most `most` tensors. Return false on failure; the context then keeps the
     * failure. */
    bool begin(fsdp_cuda_context *context, fsdp_cuda_table table, size_t most)
    {
        c = context;
        which = table;
        capacity = most;
        n = 0;
        tensors =
            (T *)fsdp_cuda_table_begin(c, which, most * sizeof(T) + (most + 1) * sizeof(uint32_t));
        first = tensors ? (uint32_t *)(tensors + most) : NULL;
        return tensors != NULL;
    }
    /* Add a tensor that `blocks` blocks will compute. Return a pointer to its entry, whose fields
     * the caller must set. If `blocks` is 0, add nothing and return NULL. */
    T *add(int64_t blocks)
    {
        if (!blocks)
            return NULL;
        first[n + 1] = first[n] + (uint32_t)blocks;
        return &tensors[n++];
    }
    /* Return the number of blocks of all tensors that have been added. */
    unsigned blocks() const
    {
        return first[n];
    }
    size_t size() const
    {
        return n;
    }
    /* Copy the table to the device, and set *table to it. Return false if the table is empty. Also
     * return false on failure; the context then keeps the failure. */
    bool end(table_of<T> *table)
    {
        const char *device = n ? (const char *)fsdp_cuda_table_end(c, which) : NULL;
        *table = {(const T *)device, (const uint32_t *)(device + capacity * sizeof(T)), (int)n};
        return device != NULL;
    }
};
