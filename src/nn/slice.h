/* A slice of a tensor: the entries [begin, end) of one dimension, as held by a rank of a sharded
 * parameter. The rank stores its slice contiguously. In the whole (row-major) tensor, the slice
 * consists of pieces at equal distances; a slice of dimension 0 is a single piece. */
#pragma once
#include "src/tensor/device.h"

typedef struct fsdp_slice {
    int64_t runs, length; /* number of pieces, and elements of each */
    int64_t first;        /* element of the whole tensor at which the first piece begins */
    int64_t stride; /* elements of the whole tensor from the beginning of one piece to the beginning
                       of the next */
} fsdp_slice;

fsdp_slice fsdp_slice_of(int ndim, const int64_t *shape, int dim, int64_t begin, int64_t end);

/* Copy the slice from `whole` to `own` (read), or from `own` to `whole` (write), and convert the
 * dtype. */
void fsdp_slice_read(const fsdp_device *device, const fsdp_slice *slice, void *own,
                     fsdp_dtype dtype, const void *whole, fsdp_dtype whole_dtype);
void fsdp_slice_write(const fsdp_device *device, const fsdp_slice *slice, const void *own,
                      fsdp_dtype dtype, void *whole, fsdp_dtype whole_dtype);
