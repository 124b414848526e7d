/* The element types of safetensors, and the sizes of tensors of these types. */
#pragma once
#include <fsdp/base.h>

typedef struct fsdp_safetensors_dtype {
    const char *name;
    int bits;        /* bits of one element */
    int fsdp_dtype;  /* the corresponding fsdp_dtype; -1: there is none */
    int write_order; /* in a file, tensors whose type has a lower number come first */
} fsdp_safetensors_dtype;

/* Return the dtype that has the name `name` in safetensors, or NULL if there is none. */
const fsdp_safetensors_dtype *fsdp_safetensors_dtype_by_name(const char *name);
const fsdp_safetensors_dtype *fsdp_safetensors_dtype_of(fsdp_dtype dtype);

/* Get the number of elements and the number of bytes of a tensor. Returns false if one of them
 * overflows int64, or if the elements do not fill whole bytes. Like the safetensors library, this
 * multiplies the dimensions from the left, and reports an overflow even if a later dimension is
 * 0. */
bool fsdp_safetensors_size(const fsdp_safetensors_dtype *dtype, const int64_t *shape, int ndim,
                           int64_t *numel, int64_t *bytes);
