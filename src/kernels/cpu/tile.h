/* Our own matrix products in register tiles. Unlike oneDNN, they need no primitive for each shape,
 * and they prefetch. There are four tables: two for AVX-512 (isa/tile.c), one of which widens bf16;
 * one for AVX2 (isa/tile_avx2.c), which also widens bf16; and one for bf16 with AMX
 * (isa/tile_amx.c).
 *
 * Note [Lanes]. Along k everything is counted in lanes of 4 bytes. A lane is one f32, or two
 * neighbouring bf16, which vdpbf16ps multiplies and adds at once. So packing and the order of loops
 * are the same for both dtypes; an odd k is padded with a zero. Tables that widen bf16 do so when
 * packing. They multiply f32, with one element per lane.
 *
 * Note [Panels of B]. B is packed into panels of fsdp_tile_width() columns, each [depth][width]
 * lanes; the last one is padded with zeros to a multiple of 16 columns. A is read in place if the k
 * elements of a row are contiguous; otherwise it is packed into [depth][FSDP_TILE_ROWS] lanes for
 * each tile of rows. An element of C sums over k in order, in one accumulator. Its bits depend on
 * its row of A, its column of B and where k is split, but not on its place in C or on m and n. The
 * packing follows Goto & van de Geijn 2008.
 *
 * Note [Panels for AMX]. AMX tiles are registers of 16 rows of 16 lanes; an instruction multiplies
 * two of them and adds the product to a third. So panels of B are 32 columns wide, and depths are
 * padded with zeros to a multiple of 16 lanes. Packed A has, for each 16 rows, the contents of such
 * registers, [16 rows][16 lanes] each, in the order of k. Values below the last row are undefined.
 * If only a part of B's depth is multiplied (b_lane), the zeros that pad A are multiplied with the
 * lanes of B after that part, so a NaN in these lanes becomes a NaN in C. */
#pragma once
#include "src/kernels/cpu/context.h"

enum {
    FSDP_TILE_ROWS = 8,
    FSDP_TILE_COLUMNS = 48, /* a tile needs 24 registers for sums, 3 for B and 1 for A */
    FSDP_TILE_LANE_BYTES = 4,
    FSDP_TILE_LONG_K = 1 << 13, /* elements; see fsdp_cpu_tiles.most_long_depth */
    FSDP_AMX_ROWS = 16,         /* rows of a register */
    FSDP_AMX_LANES = 16,
    FSDP_AMX_COLUMNS = 32,
    FSDP_AMX_PANEL_ROW = FSDP_AMX_COLUMNS * FSDP_TILE_LANE_BYTES, /* bytes of a lane of a panel */
    FSDP_AMX_BYTES = FSDP_AMX_ROWS * FSDP_AMX_LANES * FSDP_TILE_LANE_BYTES
};

/* One block of C: C = A B (+ sum) (+ bias over n) (+ C). */
typedef struct fsdp_tile_block {
    fsdp_dtype dtype;    /* of A, B and bias: f32 or bf16 */
    int64_t m, n, depth; /* depth: lanes of k */
    /* Packed by pack_a, or the matrix itself, with rows a_stride bytes apart. */
    const void *a;
    int64_t a_stride;   /* 0: packed */
    const void *b;      /* packed by pack_b */
    int64_t b_columns;  /* number of columns passed to pack_b; 0: n */
    int64_t b_column;   /* the first column of B to multiply, which begins a panel */
    int64_t b_depth;    /* number of lanes passed to pack_b; 0: depth */
    int64_t b_lane;     /* the first lane of B to multiply */
    void *c;            /* [m, n], leading dimension ldc */
    fsdp_dtype c_dtype; /* f32 or dtype */
    int64_t ldc;        /* elements */
    bool add;           /* add the previous C */
    const float *sum;   /* [m, n], leading dimension sum_ld, or NULL */
    int64_t sum_ld;
    const void *bias; /* [n], or NULL */
} fsdp_tile_block;

typedef struct fsdp_cpu_tiles {
    bool widens;  /* bf16 is packed as float32, so a lane is one element of k; A must be packed */
    bool amx;     /* Note [Panels for AMX]; only for bf16 */
    int64_t rows; /* rows of a tile of C; each task begins at a multiple of it */
    int64_t columns;
    int64_t most_depth; /* the most lanes in a split of k */
    /* Takes the place of most_depth if k has at least FSDP_TILE_LONG_K elements. Such a k is split
     * in any case, so the sums are read and written again anyway. With fewer lanes in a split,
     * b_bytes gives a task more columns, and each strip of A is read from a cache for more of
     * them. */
    int64_t most_long_depth;
    /* The most elements in a split of k if A is packed. In a weight gradient, A is stored as rows
     * of k that are far apart, and the second-level TLB has entries for this many pages. C is
     * usually f32 then, so that the splits can be added to it. */
    int64_t most_packed_k;
    /* Bytes of a block of rows of A. The whole block is read once for each group of panels of B. */
    int64_t a_bytes;
    int64_t b_bytes; /* bytes of B that a task packs at once */
    /* Pack op(B) [k, n] into panels of fsdp_tile_b_bytes(). It is stored as [k, n] (k_is_row) or as
     * [n, k], with leading dimension ld. */
    void (*pack_b)(void *panels, fsdp_dtype dtype, const void *src, int64_t ld, bool k_is_row,
                   int64_t k, int64_t n);
    /* Pack op(A) [m, k] into tiles of fsdp_tile_a_bytes(). It is stored as [k, m] (k_is_row) or as
     * [m, k], with leading dimension ld. */
    void (*pack_a)(void *tiles, fsdp_dtype dtype, const void *src, int64_t ld, bool k_is_row,
                   int64_t k, int64_t m);
    void (*multiply)(const fsdp_tile_block *block);
    /* Return a column that begins a panel and is a multiple of 16. It is `column` or a little
     * before it. n is the number of columns passed to pack_b. */
    int64_t (*panel_first)(int64_t n, int64_t column);
} fsdp_cpu_tiles;

extern const fsdp_cpu_tiles fsdp_cpu_tiles_x86_64_v3;
extern const fsdp_cpu_tiles fsdp_cpu_tiles_x86_64_v4;
extern const fsdp_cpu_tiles fsdp_cpu_widening_tiles_x86_64_v4; /* bf16 only */
extern const fsdp_cpu_tiles fsdp_cpu_amx_tiles_x86_64_v4;      /* bf16 only */

/* Return the tiles for products of this dtype; NULL if oneDNN computes them, as it always does
 * below AVX2. */
const fsdp_cpu_tiles *fsdp_cpu_tiles_of(const fsdp_kernel_context *c, fsdp_dtype dtype);

/* Return the number of columns of a panel without AMX: 48, as many as the registers have room for.
 * For 49 to 64 columns it is 32, since the second panel would otherwise be narrow and slow. */
int64_t fsdp_tile_width(int64_t n);
/* Return how many lanes `k` elements take, rounded up. */
int64_t fsdp_tile_depth(fsdp_dtype dtype, int64_t k);
/* Return the bytes from one packed tile of A to the next, without AMX: an odd number of cache
 * lines. Packing writes a row of k to many tiles in turn, and the first-level cache has room for
 * only a few lines that are a multiple of 1024 bytes apart. A smaller depth never needs more
 * bytes. */
static inline int64_t fsdp_tile_a_stride(int64_t depth)
{
    enum {
        LINE_BYTES = 64
    };
    int64_t bytes = depth * FSDP_TILE_ROWS * FSDP_TILE_LANE_BYTES;
    return ((bytes + LINE_BYTES - 1) / LINE_BYTES | 1) * LINE_BYTES;
}
/* With AMX, fsdp_amx_depth() returns the number of lanes in a panel. fsdp_amx_a_stride() returns
 * the bytes from one group of 16 rows of packed A to the next. */
static inline int64_t fsdp_amx_depth(int64_t depth)
{
    return (depth + FSDP_AMX_LANES - 1) / FSDP_AMX_LANES * FSDP_AMX_LANES;
}
static inline int64_t fsdp_amx_a_stride(int64_t depth)
{
    return fsdp_amx_depth(depth) * FSDP_AMX_ROWS * FSDP_TILE_LANE_BYTES;
}
size_t fsdp_tile_a_bytes(const fsdp_cpu_tiles *tiles, int64_t m, int64_t depth);
size_t fsdp_tile_b_bytes(const fsdp_cpu_tiles *tiles, int64_t n, int64_t depth);
