/* Column sums of a matrix: for each column, the sum over all rows. One pass over the rows can
 * compute several sets of column sums, such as those of dw and of dbias. The rows are divided into
 * blocks, in a way that depends only on the shape. A task adds up the rows of one block, in order.
 * The partial sums of the blocks are then added in the order of the blocks. Partial sums are in the
 * scratch memory of worker 0. This memory has capacity for a limited number of columns, so a wider
 * matrix is processed in panels of columns.
 *
 *     fsdp_column_sums sums = fsdp_column_sums_of(c, rows, width, 1);
 *     while (fsdp_column_sums_next(&sums)) {
 *         ... task t < sums.blocks adds rows [t * block_rows, (t + 1) * block_rows) of columns
 *             [begin, end) to fsdp_column_sums_begin(&sums, t); each set is `stride` elements
 *             after the previous one
 *         fsdp_column_sums_end(&sums, 0, dst, dtype, beta);
 *     }
 *
 * The tasks must not call fsdp_kernel_scratch(): worker 0 would get the memory of the partial
 * sums. */
#pragma once
#include "src/kernels/cpu/isa/block.h"

enum {
    FSDP_SUM_BLOCK_ROWS = 64, /* a matrix with more rows is cut into several blocks */
    FSDP_SUM_BLOCKS = 16,     /* maximum number of blocks */
    FSDP_SUM_CAPACITY = FSDP_KERNEL_SCRATCH_MIN / (int)sizeof(float)
};

typedef struct fsdp_column_sums {
    int64_t rows, width, block_rows, blocks, sets;
    int64_t begin, end; /* the panel's columns */
    /* The number of elements that one set of partial sums occupies in memory: the width of the
     * panel, rounded up to a multiple of FSDP_LANES. */
    int64_t stride;
    float *partial; /* [blocks, sets, stride] */
} fsdp_column_sums;

static inline fsdp_column_sums fsdp_column_sums_of(fsdp_kernel_context *c, int64_t rows,
                                                   int64_t width, int64_t sets)
{
    fsdp_column_sums s = {.rows = rows, .width = width, .sets = sets};
    int64_t padded = (width + FSDP_LANES - 1) & -FSDP_LANES;
    int64_t capacity = FSDP_SUM_CAPACITY / sets & -FSDP_LANES;
    int64_t room = padded ? capacity / padded : 1;
    s.blocks = fsdp_min_i64(fsdp_ceil_div(rows, FSDP_SUM_BLOCK_ROWS), FSDP_SUM_BLOCKS);
    s.blocks = fsdp_min_i64(s.blocks, room);
    s.blocks = s.blocks < 1 ? 1 : s.blocks;
    s.block_rows = fsdp_ceil_div(rows, s.blocks);
    s.stride = fsdp_min_i64(padded, capacity / s.blocks);
    s.partial = fsdp_kernel_scratch(c, 0, (size_t)(s.blocks * sets * s.stride) * sizeof(float));
    return s;
}

/* Advance to the next panel of columns. Return false if there is no further panel. */
static inline bool fsdp_column_sums_next(fsdp_column_sums *s)
{
    s->begin = s->end;
    s->end = fsdp_min_i64(s->width, s->begin + s->stride);
    return s->begin < s->end;
}

/* Set the partial sums of row block `block` to zero, and return a pointer to them. */
static inline float *fsdp_column_sums_begin(const fsdp_column_sums *s, int64_t block)
{
    int64_t n = s->sets * s->stride;
    return memset(s->partial + block * n, 0, (size_t)n * sizeof(float));
}

/* Set dst to beta * dst + (the column sums of set `set`), in the columns of the current panel. */
static inline void fsdp_column_sums_end(const fsdp_column_sums *s, int64_t set, void *dst,
                                        fsdp_dtype dtype, float beta)
{
    for (int64_t i = s->begin; i < s->end; i += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(s->end - i, FSDP_BLOCK);
        float total[FSDP_BLOCK] = {0};
        for (int64_t b = 0; b < s->blocks; b++) {
            const float *partial = s->partial + (b * s->sets + set) * s->stride + (i - s->begin);
            for (int j = 0; j < fsdp_padded(n); j++)
                total[j] += partial[j];
        }
        fsdp_accumulate_block(dst, dtype, i, beta, total, n);
    }
}
