/* The element types of safetensors, in the order in which the safetensors library puts tensors into
 * a file. */
#include <string.h>

#include "src/base/assert.h"
#include "src/torchfile/safetensors_dtype.h"

static const fsdp_safetensors_dtype dtypes[] = {
    {"U64", 64, -1, 0},
    {"I64", 64, FSDP_DTYPE_I64, 1},
    {"F64", 64, FSDP_DTYPE_F64, 2},
    {"C64", 64, -1, 3},
    {"F32", 32, FSDP_DTYPE_F32, 4},
    {"U32", 32, -1, 5},
    {"I32", 32, FSDP_DTYPE_I32, 6},
    {"BF16", 16, FSDP_DTYPE_BF16, 7},
    {"F16", 16, FSDP_DTYPE_F16, 8},
    {"U16", 16, -1, 9},
    {"I16", 16, -1, 10},
    {"F8_E5M2FNUZ", 8, -1, 11},
    {"F8_E4M3FNUZ", 8, -1, 12},
    {"F8_E8M0", 8, -1, 13},
    {"F8_E4M3", 8, -1, 14},
    {"F8_E5M2", 8, -1, 15},
    {"I8", 8, -1, 16},
    {"U8", 8, FSDP_DTYPE_U8, 17},
    {"F6_E3M2", 6, -1, 18},
    {"F6_E2M3", 6, -1, 19},
    {"F4", 4, -1, 20},
    {"BOOL", 8, -1, 21},
};

const fsdp_safetensors_dtype *fsdp_safetensors_dtype_by_name(const char *name)
{
    for (size_t i = 0; i < FSDP_LENGTH(dtypes); i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

const fsdp_safetensors_dtype *fsdp_safetensors_dtype_of(fsdp_dtype dtype)
{
    for (size_t i = 0; i < FSDP_LENGTH(dtypes); i++)
        if (dtypes[i].fsdp_dtype == (int)dtype)
            return &dtypes[i];
    return NULL;
}

bool fsdp_safetensors_size(const fsdp_safetensors_dtype *dtype, const int64_t *shape, int ndim,
                           int64_t *numel, int64_t *bytes)
{
    int64_t n = 1, bits;
    for (int i = 0; i < ndim; i++)
        if (shape[i] < 0 || __builtin_mul_overflow(n, shape[i], &n))
            return false;
    if (__builtin_mul_overflow(n, (int64_t)dtype->bits, &bits) || bits % 8 != 0)
        return false;
    *numel = n;
    *bytes = bits / 8;
    return true;
}
