/* Arrays of conform.h whose first element is at an address that is not a multiple of 16 bytes: a
 * kernel must not use its accesses of 16 bytes there. The elements before the first one belong to
 * the same array, so conform_equal() finds out if they were written. */
#pragma once
#include "tests/cuda/conform.h"

typedef struct shifted {
    conform_array *array; /* has `shift` + n elements */
    void *host, *device;  /* element `shift` of the array */
} shifted;

static inline shifted shifted_of(conform_array *array, int64_t shift)
{
    const size_t bytes = (size_t)shift * fsdp_dtype_size(array->dtype);
    return (shifted){array, (char *)array->host + bytes, (char *)array->device + bytes};
}

static inline shifted shifted_output(conform *x, fsdp_dtype dtype, int64_t n, int64_t shift)
{
    return shifted_of(conform_output(x, dtype, shift + n), shift);
}

static inline shifted shifted_input(conform *x, fsdp_dtype dtype, int64_t n, int64_t shift,
                                    uint64_t seed, double low, double high)
{
    return shifted_of(conform_input(x, dtype, shift + n, seed, low, high), shift);
}
