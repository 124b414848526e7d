/* Chooses the tiles for a context and computes the sizes of packed operands. */
#include "src/kernels/cpu/tile.h"

#include "src/kernels/cpu/product.h"

static const fsdp_cpu_tiles *tiles_of_v4(fsdp_cpu_multiplier multiplier, fsdp_dtype dtype)
{
    if (multiplier == FSDP_CPU_MULTIPLY_ONEDNN)
        return NULL;
    if (dtype == FSDP_DTYPE_F32)
        return &fsdp_cpu_tiles_x86_64_v4;
    return multiplier == FSDP_CPU_MULTIPLY_AMX   ? &fsdp_cpu_amx_tiles_x86_64_v4
           : multiplier == FSDP_CPU_MULTIPLY_FMA ? &fsdp_cpu_widening_tiles_x86_64_v4
                                                 : &fsdp_cpu_tiles_x86_64_v4;
}

const fsdp_cpu_tiles *fsdp_cpu_tiles_of(const fsdp_kernel_context *c, fsdp_dtype dtype)
{
    fsdp_cpu_isa isa = fsdp_kernel_context_isa(c);
    if (isa < FSDP_CPU_ISA_V3 || (dtype != FSDP_DTYPE_F32 && dtype != FSDP_DTYPE_BF16))
        return NULL;
    return isa == FSDP_CPU_ISA_V3 ? &fsdp_cpu_tiles_x86_64_v3
                                  : tiles_of_v4(fsdp_kernel_context_multiplier(c), dtype);
}

int64_t fsdp_tile_depth(fsdp_dtype dtype, int64_t k)
{
    return dtype == FSDP_DTYPE_F32 ? k : (k + 1) / 2;
}

size_t fsdp_tile_a_bytes(const fsdp_cpu_tiles *tiles, int64_t m, int64_t depth)
{
    int64_t sixteens = (m + 15) / 16; /* tiles of eight rows are packed in pairs */
    return (size_t)(sixteens *
                    (tiles->amx ? fsdp_amx_a_stride(depth) : 2 * fsdp_tile_a_stride(depth)));
}

int64_t fsdp_tile_width(int64_t n)
{
    return n > FSDP_TILE_COLUMNS && n <= 64 ? 32 : FSDP_TILE_COLUMNS;
}

size_t fsdp_tile_b_bytes(const fsdp_cpu_tiles *tiles, int64_t n, int64_t depth)
{
    int64_t width = tiles->amx ? FSDP_AMX_COLUMNS : fsdp_tile_width(n);
    int64_t lanes = tiles->amx ? fsdp_amx_depth(depth) : depth;
    return (size_t)((n + width - 1) / width * width * lanes) * FSDP_TILE_LANE_BYTES;
}
