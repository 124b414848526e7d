/* Counts elements that are finite in a checkpoint and too large for float16. */
#pragma once
#include "src/torchfile/safetensors_dtype.h"

/* {0}: nothing was counted yet. */
typedef struct fsdp_too_large {
    int64_t n;        /* number of elements that became infinite */
    const char *name; /* name of the first tensor that has such an element; borrowed */
} fsdp_too_large;

/* Count the elements of a piece of the tensor `name` that became infinite. `from` has the `n`
 * elements before the conversion, in the floating-point dtype `from_dtype`, and `to` has them in
 * the dtype `to_dtype`. If `to_dtype` is not float16, nothing is counted, because the range of the
 * other dtypes is large enough for weights. */
void fsdp_too_large_count(fsdp_too_large *t, const char *name, const void *from,
                          const fsdp_safetensors_dtype *from_dtype, const void *to,
                          const fsdp_safetensors_dtype *to_dtype, size_t n);
/* Return the text of a note about the elements that were counted, or NULL when out of memory. The
 * caller owns the text. At least one element must have been counted. */
char *fsdp_too_large_note(const fsdp_too_large *t);
