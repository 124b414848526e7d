/* Products of few rows with AVX2 or AVX-512; see few_rows.h. */
#include "src/kernels/cpu/few_rows.h"

#include "src/kernels/cpu/gemm.h"
#include "src/kernels/cpu/isa/isa.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "src/kernels/cpu/isa/block.h"
#include "src/kernels/cpu/isa/vector.h"

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

enum {
    ROWS = 4, /* number of rows of C for which elements of B are loaded once */
    /* With trans_b: the number of columns of C that are computed together. Each row of B then
     * belongs to one column of C. */
    COLUMNS = 3,
    /* Without trans_b: the number of rows of B that are processed together. Each row of B then
     * belongs to one index along k. */
    STEPS = 4,
    /* With trans_b, k is divided into parts of this many elements. The elements of A for one part
     * stay in the first-level cache. */
    DEPTH = 1024,
    AHEAD = 24 /* without trans_b: prefetch distance in rows of B */
};

FSDP_INLINE int64_t size_of(fsdp_dtype dtype)
{
    return dtype == FSDP_DTYPE_F32 ? 4 : 2;
}

FSDP_INLINE fsdp_vec load(fsdp_dtype dtype, const char *at)
{
    if (dtype == FSDP_DTYPE_F32)
        return fsdp_vec_load((const float *)(const void *)at);
    if (dtype == FSDP_DTYPE_BF16)
        return (fsdp_vec)(fsdp_vec_load_u16((const uint16_t *)(const void *)at) << 16);
#if defined(__AVX512F__)
    return (fsdp_vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)at));
#else
    return (fsdp_vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)at));
#endif
}

/* Loads n elements as float32 and sets the other vector elements to zero. If `part` is false, n
 * must be FSDP_VEC. */
FSDP_INLINE fsdp_vec load_part(fsdp_dtype dtype, bool part, const char *at, int64_t n)
{
    if (!part)
        return load(dtype, at);
    char buffer[FSDP_VEC_BYTES] = {0};
    memcpy(buffer, at, (size_t)(n * size_of(dtype)));
    return load(dtype, buffer);
}

/* --- with trans_b: dot products of rows of A and rows of B --- */

/* For rows [i, i + rows) and columns [j, j + columns) of C, adds the products over indices
 * [l, l + n) along k to `acc`. n is at most FSDP_VEC. */
FSDP_INLINE void add_dots(fsdp_dtype dtype, bool part, int rows, int columns,
                          const fsdp_few_rows *t, int64_t i, int64_t j, int64_t l, int64_t n,
                          fsdp_vec acc[ROWS][COLUMNS])
{
    fsdp_vec x[COLUMNS];
    UNROLL
    for (int c = 0; c < columns; c++) {
        const char *at = t->b + (j + c) * t->b_row + l * size_of(dtype);
        if (i == 0)
            __builtin_prefetch((const void *)((uintptr_t)at + (uintptr_t)(COLUMNS * t->b_row)));
        x[c] = load_part(dtype, part, at, n);
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        const char *at = (const char *)(t->a + (i + r) * t->a_ld + l);
        fsdp_vec y = load_part(FSDP_DTYPE_F32, part, at, n);
        UNROLL
        for (int c = 0; c < columns; c++)
            acc[r][c] = fsdp_vec_fma(y, x[c], acc[r][c]);
    }
}

/* Adds the products over indices [l0, l1) along k to rows [i, i + rows) and columns
 * [j, j + columns) of C. */
FSDP_INLINE void dots(fsdp_dtype dtype, int rows, int columns, const fsdp_few_rows *t, int64_t i,
                      int64_t j, int64_t l0, int64_t l1)
{
    fsdp_vec acc[ROWS][COLUMNS];
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int c = 0; c < columns; c++)
            acc[r][c] = fsdp_vec_set(0.0f);
    }
    int64_t l = l0;
    for (; l1 - l >= FSDP_VEC; l += FSDP_VEC)
        add_dots(dtype, false, rows, columns, t, i, j, l, FSDP_VEC, acc);
    if (l < l1)
        add_dots(dtype, true, rows, columns, t, i, j, l, l1 - l, acc);
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int c = 0; c < columns; c++)
            t->c[(i + r) * t->c_ld + j + c] += fsdp_vec_sum(acc[r][c]);
    }
}

FSDP_INLINE void dots_of(fsdp_dtype dtype, int columns, const fsdp_few_rows *t, int64_t j,
                         int64_t l0, int64_t l1)
{
    int64_t i = 0;
    for (; t->rows - i >= ROWS; i += ROWS)
        dots(dtype, ROWS, columns, t, i, j, l0, l1);
    if (t->rows - i == 3)
        dots(dtype, 3, columns, t, i, j, l0, l1);
    else if (t->rows - i == 2)
        dots(dtype, 2, columns, t, i, j, l0, l1);
    else if (t->rows - i == 1)
        dots(dtype, 1, columns, t, i, j, l0, l1);
}

FSDP_INLINE void rows_of_k(fsdp_dtype dtype, const fsdp_few_rows *t)
{
    for (int64_t l = 0; l < t->k; l += DEPTH) {
        int64_t end = fsdp_min_i64(l + DEPTH, t->k), j = 0;
        for (; t->columns - j >= COLUMNS; j += COLUMNS)
            dots_of(dtype, COLUMNS, t, j, l, end);
        for (; j < t->columns; j++)
            dots_of(dtype, 1, t, j, l, end);
    }
}

/* --- without trans_b: sums of rows of B, multiplied by elements of A --- */

/* Adds the products over indices [l, l + steps) along k to rows [i, i + rows) of C, in the FSDP_VEC
 * columns that begin at j. x[s] has these columns of row l + s of B. */
FSDP_INLINE void add_rows(int rows, int steps, const fsdp_few_rows *t, int64_t i, int64_t j,
                          int64_t l, const fsdp_vec x[STEPS])
{
    const float *a = t->a + i * t->a_ld + l;
    float *c = t->c + i * t->c_ld + j;
    UNROLL
    for (int r = 0; r < rows; r++) {
        fsdp_vec sum = fsdp_vec_load(c + r * t->c_ld);
        UNROLL
        for (int s = 0; s < steps; s++)
            sum = fsdp_vec_fma(fsdp_vec_set(a[r * t->a_ld + s]), x[s], sum);
        fsdp_vec_store(c + r * t->c_ld, sum);
    }
}

/* Adds the products over indices [l, l + steps) along k to columns [j, j + n) of C, in all rows. */
FSDP_INLINE void add_columns(fsdp_dtype dtype, bool part, int steps, const fsdp_few_rows *t,
                             int64_t j, int64_t n, int64_t l)
{
    fsdp_vec x[STEPS];
    UNROLL
    for (int s = 0; s < steps; s++) {
        const char *at = t->b + (l + s) * t->b_row + j * size_of(dtype);
        __builtin_prefetch((const void *)((uintptr_t)at + (uintptr_t)(AHEAD * t->b_row)));
        x[s] = load_part(dtype, part, at, n);
    }
    int64_t i = 0;
    for (; t->rows - i >= ROWS; i += ROWS)
        add_rows(ROWS, steps, t, i, j, l, x);
    for (; i < t->rows; i++)
        add_rows(1, steps, t, i, j, l, x);
}

FSDP_INLINE void add_steps(fsdp_dtype dtype, int steps, const fsdp_few_rows *t, int64_t l)
{
    int64_t j = 0;
    for (; t->columns - j >= FSDP_VEC; j += FSDP_VEC)
        add_columns(dtype, false, steps, t, j, FSDP_VEC, l);
    if (j < t->columns)
        add_columns(dtype, true, steps, t, j, t->columns - j, l);
}

FSDP_INLINE void rows_of_columns(fsdp_dtype dtype, const fsdp_few_rows *t)
{
    int64_t l = 0;
    for (; t->k - l >= STEPS; l += STEPS)
        add_steps(dtype, STEPS, t, l);
    for (; l < t->k; l++)
        add_steps(dtype, 1, t, l);
}

FSDP_INLINE void multiply_by(fsdp_dtype dtype, const fsdp_few_rows *t)
{
    if (t->trans_b)
        rows_of_k(dtype, t);
    else
        rows_of_columns(dtype, t);
}

static void multiply(const fsdp_few_rows *t)
{
    for (int64_t i = 0; i < t->rows; i++)
        memset(t->c + i * t->c_ld, 0, (size_t)((t->columns + 15) & -16) * sizeof *t->c);
    if (t->b_dtype == FSDP_DTYPE_F32)
        multiply_by(FSDP_DTYPE_F32, t);
    else if (t->b_dtype == FSDP_DTYPE_BF16)
        multiply_by(FSDP_DTYPE_BF16, t);
    else
        multiply_by(FSDP_DTYPE_F16, t);
}

/* --- widen_a and finish: what a GEMM does before and after the product --- */

static void widen_a(const fsdp_gemm_args *args, float *a, int64_t a_ld)
{
    for (int64_t i = 0; i < args->m; i++)
        for (int64_t l = 0; l < args->k; l += FSDP_BLOCK) {
            int n = (int)fsdp_min_i64(args->k - l, FSDP_BLOCK);
            float buffer[FSDP_BLOCK];
            fsdp_copy_f32(a + i * a_ld + l,
                          fsdp_load_block(buffer, args->a, args->ab_dtype, i * args->lda + l, n),
                          n);
        }
}

static void finish(const fsdp_gemm_args *args, int64_t column, const fsdp_few_rows *t)
{
    for (int64_t j = 0; j < t->columns; j += FSDP_BLOCK) {
        int n = (int)fsdp_min_i64(t->columns - j, FSDP_BLOCK);
        float buffer[FSDP_BLOCK], *c = t->c + j;
        const float *bias = NULL;
        if (args->bias)
            bias = fsdp_load_block(buffer, args->bias, args->ab_dtype, column + j, n);
        for (int64_t i = 0; i < args->m; i++, c += t->c_ld) {
            for (int l = 0; l < n && bias; l++)
                c[l] += bias[l];
            fsdp_accumulate_block(args->c, args->c_dtype, i * args->ldc + column + j, args->beta, c,
                                  n);
        }
    }
}

const fsdp_cpu_few_rows FSDP_ISA_NAME_OF(fsdp_cpu_few_rows) = {
    .multiply = multiply, .widen_a = widen_a, .finish = finish};
#endif
