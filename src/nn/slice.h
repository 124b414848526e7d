/* A slice of a tensor: entries [begin, end) of one of its dimensions, as a rank of a sharded
 * parameter has it. In the slice, which is contiguous itself, lie one after the other the pieces
 * that the whole (row-major) has at equal distances; of dimension 0 it is a single piece. */
#pragma once
#include "src/tensor/device.h"

typedef struct fsdp_slice {
    int64_t runs, length; /* pieces, and elements of each */
    int64_t first;        /* element of the whole at which the first begins */
    int64_t stride;       /* elements of the whole from one to the next */
} fsdp_slice;

fsdp_slice fsdp_slice_of(int ndim, const int64_t *shape, int dim, int64_t begin, int64_t end);

/* Copy the slice out of `whole`, or into it, as the other's dtype. */
void fsdp_slice_read(const fsdp_device *device, const fsdp_slice *slice, void *own,
                     fsdp_dtype dtype, const void *whole, fsdp_dtype whole_dtype);
void fsdp_slice_write(const fsdp_device *device, const fsdp_slice *slice, const void *own,
                      fsdp_dtype dtype, void *whole, fsdp_dtype whole_dtype);
