/* Our own matrix products. A product is computed in tiles: parts of C whose sums stay in registers.
 * Unlike the products of oneDNN, our products need no primitive for each shape, and they prefetch.
 * There are four tables of functions. isa/tile.c has two tables for AVX-512: one converts bf16 to
 * f32 before it multiplies (widens it), and the other does not. isa/tile_avx2.c has one table for
 * AVX2, which widens bf16. isa/tile_amx.c has one table for bf16 with AMX.
 *
 * Note [Lanes]. Along k, everything is counted in lanes of 4 bytes. A lane is one f32 or two
 * neighboring bf16. The instruction vdpbf16ps multiplies two pairs of bf16 and adds the products.
 * With lanes, packing and the order of loops are the same for both dtypes. An odd k of bf16 is
 * padded with a zero. The tables that widen bf16 convert it to f32 while packing. With these
 * tables, a lane is therefore always one element.
 *
 * Note [Panels of B]. B is packed into panels of fsdp_tile_width() columns. A panel is an array
 * [depth][width] of lanes. The last panel is padded with zeros to a multiple of 16 columns. A is
 * read in place if the k elements of a row are contiguous and the tiles do not widen them to
 * float32. Otherwise each tile of rows of A is packed into an array [depth][FSDP_TILE_ROWS] of
 * lanes. An element of C is summed over k in order, in one accumulator. The bits of the element
 * depend on its row of A, its column of B and where k is split. They do not depend on the place of
 * the element in C or on m and n. The packing follows Goto & van de Geijn 2008.
 *
 * Note [Panels for AMX]. An AMX register has 16 rows of 16 lanes. An instruction multiplies two
 * registers and adds the product to a third. Panels of B are two registers wide: 32 columns. Depths
 * are padded with zeros to a multiple of 16 lanes. Packed A is stored as registers [16 rows][16
 * lanes]: for each group of 16 rows, its registers in the order of k. If the last group has fewer
 * than 16 rows of A, the rest of its registers is undefined. A product may use only a part of B's
 * depth (fsdp_tile_block.b_lane). The zeros that pad A are then multiplied with the lanes of B that
 * follow this part. If one of these lanes is NaN, its product with zero is NaN too, and C gets a
 * NaN. */
#pragma once
#include "src/kernels/cpu/context.h"

enum {
    FSDP_TILE_ROWS = 8,
    FSDP_TILE_COLUMNS = 48, /* a tile of 8 x 48 needs 24 registers for sums, 3 for B and 1 for A */
    FSDP_TILE_LANE_BYTES = 4,
    FSDP_TILE_LONG_K = 1 << 13, /* from this k on, most_long_depth is used instead of most_depth */
    FSDP_AMX_ROWS = 16,         /* rows of a register */
    FSDP_AMX_LANES = 16,
    FSDP_AMX_COLUMNS = 32,
    /* size in bytes of one lane along k in a panel */
    FSDP_AMX_PANEL_ROW = FSDP_AMX_COLUMNS * FSDP_TILE_LANE_BYTES,
    FSDP_AMX_BYTES = FSDP_AMX_ROWS * FSDP_AMX_LANES * FSDP_TILE_LANE_BYTES
};

/* The arguments of multiply(), which computes one block of C: C = A B (+ sum) (+ bias[n]) (+ C). */
typedef struct fsdp_tile_block {
    fsdp_dtype dtype;    /* dtype of A, B and bias: f32 or bf16 */
    int64_t m, n, depth; /* m rows, n columns, and `depth` lanes along k */
    /* The block of A. It is either packed by pack_a(), or it is the matrix A itself, whose rows are
     * then a_stride bytes apart. */
    const void *a;
    int64_t a_stride;   /* in bytes; 0: `a` is packed */
    const void *b;      /* packed by pack_b */
    int64_t b_columns;  /* number of columns of the whole packed B; 0 means n */
    int64_t b_column;   /* the first column of B to multiply; a panel begins there */
    int64_t b_depth;    /* number of lanes of the whole packed B; 0 means `depth` */
    int64_t b_lane;     /* the first lane of B to multiply */
    void *c;            /* [m, n], leading dimension ldc */
    fsdp_dtype c_dtype; /* f32 or dtype */
    int64_t ldc;        /* elements */
    bool add;           /* true: add the previous values of C to the result */
    const float *sum;   /* [m, n], leading dimension sum_ld, or NULL */
    int64_t sum_ld;
    const void *bias; /* [n], or NULL: no bias */
} fsdp_tile_block;

typedef struct fsdp_cpu_tiles {
    /* true: bf16 is packed as float32, so a lane has one element, and A must be packed */
    bool widens;
    bool amx;     /* true: the functions use AMX (Note [Panels for AMX]) and multiply only bf16 */
    int64_t rows; /* rows of a tile of C; the first row of each task is a multiple of this */
    int64_t columns;    /* columns of a tile; the first column of each task is a multiple of this */
    int64_t most_depth; /* maximum lanes in a split of k */
    /* Used instead of most_depth if k is at least FSDP_TILE_LONG_K. Such a k has several splits in
     * any case, so the sums must be written to memory and read again. Splits with fewer lanes have
     * an advantage: more columns of B fit in b_bytes, so a task gets more columns. Each row of A
     * that the task reads is then multiplied with more columns. */
    int64_t most_long_depth;
    /* The largest length of a split, in elements along k, if A is packed. This limit matters for
     * the products that compute gradients of weights. There, A is stored as [k, m], so a split
     * reads one row of the stored A for each of its indices along k. These rows are far apart,
     * often each in a page of its own. So the limit is the number of entries of the second-level
     * TLB. In these products, C is usually f32, and the sums of each split can be added directly to
     * C, so several splits cost little. */
    int64_t most_packed_k;
    /* Size of a block of rows of A, in bytes. The block is read once for each group of panels of
     * B. */
    int64_t a_bytes;
    /* Limits the columns of a task: for one split of k, the packed B of these columns takes at most
     * about this many bytes. */
    int64_t b_bytes;
    /* Pack op(B) [k, n] into panels of fsdp_tile_b_bytes() bytes. `src` is stored as [k, n] if
     * k_is_row, otherwise as [n, k]; its leading dimension is ld. */
    void (*pack_b)(void *panels, fsdp_dtype dtype, const void *src, int64_t ld, bool k_is_row,
                   int64_t k, int64_t n);
    /* Pack op(A) [m, k] into tiles of fsdp_tile_a_bytes() bytes. `src` is stored as [k, m] if
     * k_is_row, otherwise as [m, k]; its leading dimension is ld. */
    void (*pack_a)(void *tiles, fsdp_dtype dtype, const void *src, int64_t ld, bool k_is_row,
                   int64_t k, int64_t m);
    void (*multiply)(const fsdp_tile_block *block);
    /* Return a column at which a panel begins: `column` or, if no panel begins there, a column a
     * little before it. The result is a multiple of 16. n is the number of columns that was passed
     * to pack_b. */
    int64_t (*panel_first)(int64_t n, int64_t column);
} fsdp_cpu_tiles;

extern const fsdp_cpu_tiles fsdp_cpu_tiles_x86_64_v3;
extern const fsdp_cpu_tiles fsdp_cpu_tiles_x86_64_v4;
extern const fsdp_cpu_tiles fsdp_cpu_widening_tiles_x86_64_v4; /* only for bf16 */
extern const fsdp_cpu_tiles fsdp_cpu_amx_tiles_x86_64_v4;      /* only for bf16 */

/* Return the tiles for products of this dtype. Return NULL if the ISA is below x86-64-v3 (AVX2), if
 * the dtype is f16, or if the multiplier is oneDNN. */
const fsdp_cpu_tiles *fsdp_cpu_tiles_of(const fsdp_kernel_context *c, fsdp_dtype dtype);

/* Return the width of a panel of B in the tables without AMX, if B has n columns. The width is 48,
 * because the registers can contain the sums of 48 columns. But if n is 49 to 64, the width is 32,
 * because with a width of 48 the second panel would be narrow and slow. */
int64_t fsdp_tile_width(int64_t n);
/* Return the number of lanes that `k` elements take, rounded up. */
int64_t fsdp_tile_depth(fsdp_dtype dtype, int64_t k);
/* Return the distance in bytes from one packed tile of A to the next, in the tables without AMX.
 * Packing writes the elements at one index along k to many tiles in turn, to one cache line of each
 * tile. The first-level cache can contain only a few lines whose distances are multiples of 1024
 * bytes. So the distance is an odd number of cache lines. The distance never decreases as the depth
 * grows. */
static inline int64_t fsdp_tile_a_stride(int64_t depth)
{
    enum {
        LINE_BYTES = 64
    };
    int64_t bytes = depth * FSDP_TILE_ROWS * FSDP_TILE_LANE_BYTES;
    return ((bytes + LINE_BYTES - 1) / LINE_BYTES | 1) * LINE_BYTES;
}
/* Return the number of lanes along k that a panel has with AMX: `depth`, padded to whole
 * registers. */
static inline int64_t fsdp_amx_depth(int64_t depth)
{
    return (depth + FSDP_AMX_LANES - 1) / FSDP_AMX_LANES * FSDP_AMX_LANES;
}
/* Return the distance in bytes from one group of 16 rows of packed A to the next, with AMX. */
static inline int64_t fsdp_amx_a_stride(int64_t depth)
{
    return fsdp_amx_depth(depth) * FSDP_AMX_ROWS * FSDP_TILE_LANE_BYTES;
}
size_t fsdp_tile_a_bytes(const fsdp_cpu_tiles *tiles, int64_t m, int64_t depth);
size_t fsdp_tile_b_bytes(const fsdp_cpu_tiles *tiles, int64_t n, int64_t depth);
