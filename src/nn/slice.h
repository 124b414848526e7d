/* A slice of a tensor: the entries [begin, end) of one dimension. Each rank stores its slice of a
 * sharded parameter contiguously. In the whole tensor, which is row-major, the slice consists of
 * pieces at equal distances. A slice of dimension 0 is a single piece. */
#pragma once
#include "src/tensor/device.h"

typedef struct fsdp_slice {
    int64_t runs, length; /* number of pieces, and number of elements of each piece */
    int64_t first;        /* index, in the whole tensor, of the first element of the first piece */
    /* The distance from the beginning of one piece to the beginning of the next, in elements of the
     * whole tensor. */
    int64_t stride;
} fsdp_slice;

fsdp_slice fsdp_slice_of(int ndim, const int64_t *shape, int dim, int64_t begin, int64_t end);

/* Copy the slice from `whole` to `own`, and convert it to `dtype`. */
void fsdp_slice_read(const fsdp_device *device, const fsdp_slice *slice, void *own,
                     fsdp_dtype dtype, const void *whole, fsdp_dtype whole_dtype);
/* Copy the slice from `own` to `whole`, and convert it to whole_dtype. */
void fsdp_slice_write(const fsdp_device *device, const fsdp_slice *slice, const void *own,
                      fsdp_dtype dtype, void *whole, fsdp_dtype whole_dtype);
