/* The element types of safetensors. */
#pragma once
#include <fsdp/base.h>

typedef struct fsdp_safetensors_dtype {
    const char *name;
    int bits;        /* bits of one element */
    int fsdp_dtype;  /* the fsdp_dtype, or -1 if this library has no such dtype */
    int write_order; /* tensors of lower order come first in a file */
} fsdp_safetensors_dtype;

/* Return the dtype `name`, or NULL if the name is unknown. */
const fsdp_safetensors_dtype *fsdp_safetensors_dtype_by_name(const char *name);
const fsdp_safetensors_dtype *fsdp_safetensors_dtype_of(fsdp_dtype dtype);

/* Get the numbers of elements and bytes of a shape. Returns false if they overflow int64, or if the
 * elements do not fill whole bytes. As in the safetensors library, dimensions are multiplied from
 * the left, and an overflow is an error even if a later dimension is 0. */
bool fsdp_safetensors_size(const fsdp_safetensors_dtype *dtype, const int64_t *shape, int ndim,
                           int64_t *numel, int64_t *bytes);
