/* The sizes and names of data types. A name is torch's name or one of the other spellings that
 * flags and configs accept. */
#include <string.h>

#include <fsdp/base.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[FSDP_DTYPE_COUNT] = {
    [FSDP_DTYPE_F32] = {"float32", 4}, [FSDP_DTYPE_BF16] = {"bfloat16", 2},
    [FSDP_DTYPE_F16] = {"float16", 2}, [FSDP_DTYPE_F64] = {"float64", 8},
    [FSDP_DTYPE_I64] = {"int64", 8},   [FSDP_DTYPE_I32] = {"int32", 4},
    [FSDP_DTYPE_U8] = {"uint8", 1},
};

static const struct {
    const char *name;
    fsdp_dtype dtype;
} aliases[] = {
    {"fp32", FSDP_DTYPE_F32},   {"f32", FSDP_DTYPE_F32},   {"F32", FSDP_DTYPE_F32},
    {"float", FSDP_DTYPE_F32},  {"bf16", FSDP_DTYPE_BF16}, {"BF16", FSDP_DTYPE_BF16},
    {"fp16", FSDP_DTYPE_F16},   {"f16", FSDP_DTYPE_F16},   {"F16", FSDP_DTYPE_F16},
    {"half", FSDP_DTYPE_F16},   {"fp64", FSDP_DTYPE_F64},  {"F64", FSDP_DTYPE_F64},
    {"double", FSDP_DTYPE_F64}, {"I64", FSDP_DTYPE_I64},   {"long", FSDP_DTYPE_I64},
    {"I32", FSDP_DTYPE_I32},    {"int", FSDP_DTYPE_I32},   {"U8", FSDP_DTYPE_U8},
};

size_t fsdp_dtype_size(fsdp_dtype dtype)
{
    return dtypes[dtype].size;
}

const char *fsdp_dtype_name(fsdp_dtype dtype)
{
    return dtypes[dtype].name;
}

bool fsdp_dtype_is_floating(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F32 || dtype == FSDP_DTYPE_BF16 || dtype == FSDP_DTYPE_F16 ||
           dtype == FSDP_DTYPE_F64;
}

fsdp_status fsdp_dtype_from_name(const char *name, fsdp_dtype *dtype)
{
    const char *bare = strncmp(name, "torch.", 6) == 0 ? name + 6 : name;
    for (int i = 0; i < FSDP_DTYPE_COUNT; i++) {
        if (strcmp(bare, dtypes[i].name) == 0) {
            *dtype = (fsdp_dtype)i;
            return FSDP_OK;
        }
    }
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        if (strcmp(bare, aliases[i].name) == 0) {
            *dtype = aliases[i].dtype;
            return FSDP_OK;
        }
    }
    return fsdp_error(FSDP_ERR_INVALID,
                      "unknown dtype '%s' (known: float32, bfloat16, float16, float64, int64, "
                      "int32, uint8 and their short forms fp32, bf16, fp16)",
                      name);
}
