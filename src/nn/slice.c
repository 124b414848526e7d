/* See slice.h. */
#include "src/nn/slice.h"

fsdp_slice fsdp_slice_of(int ndim, const int64_t *shape, int dim, int64_t begin, int64_t end)
{
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < dim; d++)
        outer *= shape[d];
    for (int d = dim + 1; d < ndim; d++)
        inner *= shape[d];
    return (fsdp_slice){.runs = outer,
                        .length = (end - begin) * inner,
                        .first = begin * inner,
                        .stride = shape[dim] * inner};
}

void fsdp_slice_read(const fsdp_device *device, const fsdp_slice *slice, void *own,
                     fsdp_dtype dtype, const void *whole, fsdp_dtype whole_dtype)
{
    char *to = own;
    const char *from = whole;
    for (int64_t i = 0; i < slice->runs && slice->length; i++)
        device->kernels->cast(
            device->context, to + (size_t)(i * slice->length) * fsdp_dtype_size(dtype), dtype,
            from + (size_t)(slice->first + i * slice->stride) * fsdp_dtype_size(whole_dtype),
            whole_dtype, slice->length);
}

void fsdp_slice_write(const fsdp_device *device, const fsdp_slice *slice, const void *own,
                      fsdp_dtype dtype, void *whole, fsdp_dtype whole_dtype)
{
    char *to = whole;
    const char *from = own;
    for (int64_t i = 0; i < slice->runs && slice->length; i++)
        device->kernels->cast(
            device->context,
            to + (size_t)(slice->first + i * slice->stride) * fsdp_dtype_size(whole_dtype),
            whole_dtype, from + (size_t)(i * slice->length) * fsdp_dtype_size(dtype), dtype,
            slice->length);
}
