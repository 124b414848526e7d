/* The last step of a product with AVX-512 or AMX tiles. It takes a tile of results, adds
 * fsdp_tile_block.sum, the bias and the previous C, if the block requests them, and stores the tile
 * to C. The functions exist only if the ISA of the compilation has AVX-512. */
#pragma once
#include "src/kernels/cpu/isa/tile_pack.h"
#include "src/kernels/cpu/isa/vec16.h"
#include "src/kernels/cpu/tile.h"

#if defined(__AVX512F__) && defined(__AVX512BW__)
/* Add `bias` and, if the block requests them, fsdp_tile_block.sum and the previous C to sixteen
 * columns of a row of results. Store these columns in row i of C, from column j on. A column whose
 * bit in `lanes` is clear is not stored. */
FSDP_INLINE BF16_TARGET void fsdp_finish_row(const fsdp_tile_block *b, bool bf16, __mmask16 lanes,
                                             fsdp_v16 y, fsdp_v16 bias, int64_t i, int64_t j)
{
    int64_t at = i * b->ldc + j;
    if (b->sum)
        y += (fsdp_v16)fsdp_avx512_load(b->sum, FSDP_DTYPE_F32, i * b->sum_ld + j, lanes);
    y += bias;
    if (b->add)
        y += (fsdp_v16)fsdp_avx512_load(b->c, b->c_dtype, at, lanes);
    fsdp_avx512_store(bf16, b->c, b->c_dtype, at, lanes, (__m512)y);
}

/* Finish the results x [rows, columns] of a tile: add fsdp_tile_block.sum, the bias and the
 * previous C, if the block requests them, and store the results in C, from row i0 and column j0 on.
 * The rows of x are x_ld elements apart. */
FSDP_INLINE BF16_TARGET void fsdp_finish_tile(bool bf16, const fsdp_tile_block *b, const float *x,
                                              int64_t x_ld, int64_t i0, int rows, int64_t j0,
                                              int columns)
{
    for (int j = 0; j < columns; j += 16) {
        __mmask16 lanes = (__mmask16)first_bits(columns - j);
        fsdp_v16 bias = b->bias ? (fsdp_v16)fsdp_avx512_load(b->bias, b->dtype, j0 + j, lanes)
                                : fsdp_set16(0.0f);
        if (columns - j >= 16) {
            for (int i = 0; i < rows; i++)
                fsdp_finish_row(b, bf16, 0xffff, fsdp_load16(x + i * x_ld + j), bias, i0 + i,
                                j0 + j);
        } else {
            for (int i = 0; i < rows; i++)
                fsdp_finish_row(b, bf16, lanes, fsdp_load16(x + i * x_ld + j), bias, i0 + i,
                                j0 + j);
        }
    }
}

#endif
