/* Copies blocks of matrices to padded panels and back, with conversion of the dtype; see
 * panel.h. */
#include "src/kernels/cpu/panel.h"

#include <string.h>

#include "src/kernels/cpu/isa/isa.h"
#include "src/kernels/cpu/isa/vec.h"

static void widen_row(float *restrict dst, const uint16_t *restrict src, fsdp_dtype from, int64_t n)
{
    if (from == FSDP_DTYPE_BF16)
        for (int64_t i = 0; i < n; i++)
            dst[i] = fsdp_f32_from_bf16(src[i]);
    else
        for (int64_t i = 0; i < n; i++)
            dst[i] = fsdp_widen_f16(src[i]);
}

static void round_row(uint16_t *restrict dst, fsdp_dtype to, const float *restrict src, int64_t n)
{
    if (to == FSDP_DTYPE_BF16)
        for (int64_t i = 0; i < n; i++)
            dst[i] = fsdp_round_bf16(src[i]);
    else
        for (int64_t i = 0; i < n; i++)
            dst[i] = fsdp_round_f16(src[i]);
}

static void pack(void *dst, fsdp_dtype to, int64_t dst_rows, int64_t dst_columns, const void *src,
                 fsdp_dtype from, int64_t ld, int64_t rows, int64_t columns)
{
    size_t to_size = fsdp_dtype_size(to), from_size = fsdp_dtype_size(from);
    size_t row_bytes = (size_t)dst_columns * to_size, used = (size_t)columns * to_size;
    for (int64_t i = 0; i < rows; i++) {
        char *d = (char *)dst + (size_t)i * row_bytes;
        const char *s = (const char *)src + (size_t)(i * ld) * from_size;
        if (to == from)
            memcpy(d, s, used);
        else
            widen_row((float *)(void *)d, (const uint16_t *)(const void *)s, from, columns);
        memset(d + used, 0, row_bytes - used);
    }
    memset((char *)dst + (size_t)rows * row_bytes, 0, (size_t)(dst_rows - rows) * row_bytes);
}

static void unpack(void *dst, fsdp_dtype to, int64_t ld, const void *src, fsdp_dtype from,
                   int64_t src_columns, int64_t rows, int64_t columns)
{
    size_t to_size = fsdp_dtype_size(to), from_size = fsdp_dtype_size(from);
    for (int64_t i = 0; i < rows; i++) {
        char *d = (char *)dst + (size_t)(i * ld) * to_size;
        const char *s = (const char *)src + (size_t)(i * src_columns) * from_size;
        if (to == from)
            memcpy(d, s, (size_t)columns * to_size);
        else
            round_row((uint16_t *)(void *)d, to, (const float *)(const void *)s, columns);
    }
}

const fsdp_cpu_panels FSDP_ISA_NAME_OF(fsdp_cpu_panels) = {.pack = pack, .unpack = unpack};
