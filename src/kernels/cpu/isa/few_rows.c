/* Products of few rows; see few_rows.h. */
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
    ROWS = 4,     /* that share what is loaded of B */
    COLUMNS = 3,  /* whose rows of k are read side by side */
    STEPS = 4,    /* of k, where B's rows hold columns */
    DEPTH = 1024, /* of k where its rows hold k: A's part stays in the first cache */
    AHEAD = 24    /* rows of k that are asked for ahead of time */
};

/* The task at hand. */
typedef struct task {
    int64_t rows, columns, k;
    const float *a;
    int64_t a_ld;
    const char *b; /* of the first column */
    int64_t b_row; /* bytes from one of its rows to the next */
    float *c;      /* [rows, c_ld], summed up */
    int64_t c_ld;
} task;

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

/* `n` elements, zeros after them. */
FSDP_INLINE fsdp_vec load_part(fsdp_dtype dtype, const char *at, int64_t n)
{
    if (n >= FSDP_VEC)
        return load(dtype, at);
    char part[FSDP_VEC_BYTES] = {0};
    memcpy(part, at, (size_t)(n * size_of(dtype)));
    return load(dtype, part);
}

/* --- B's rows hold k: products of rows with rows --- */

/* C's rows [i, i + rows) and columns [j, j + columns), over elements [l0, l1) of k. */
FSDP_INLINE void dots(fsdp_dtype dtype, int rows, int columns, const task *t, int64_t i, int64_t j,
                      int64_t l0, int64_t l1)
{
    fsdp_vec acc[ROWS][COLUMNS];
    const float *a = t->a + i * t->a_ld;
    const char *b = t->b + j * t->b_row;
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int c = 0; c < columns; c++)
            acc[r][c] = fsdp_vec_set(0.0f);
    }
    for (int64_t l = l0; l < l1; l += FSDP_VEC) {
        fsdp_vec x[COLUMNS];
        bool part = l1 - l < FSDP_VEC;
        UNROLL
        for (int c = 0; c < columns; c++) {
            const char *at = b + c * t->b_row + l * size_of(dtype);
            if (i == 0)
                __builtin_prefetch((const void *)((uintptr_t)at + (uintptr_t)(COLUMNS * t->b_row)));
            x[c] = part ? load_part(dtype, at, l1 - l) : load(dtype, at);
        }
        UNROLL
        for (int r = 0; r < rows; r++) {
            const char *at = (const char *)(a + r * t->a_ld + l);
            fsdp_vec y = part ? load_part(FSDP_DTYPE_F32, at, l1 - l) : load(FSDP_DTYPE_F32, at);
            UNROLL
            for (int c = 0; c < columns; c++)
                acc[r][c] = fsdp_vec_fma(y, x[c], acc[r][c]);
        }
    }
    UNROLL
    for (int r = 0; r < rows; r++) {
        UNROLL
        for (int c = 0; c < columns; c++)
            t->c[(i + r) * t->c_ld + j + c] += fsdp_vec_sum(acc[r][c]);
    }
}

FSDP_INLINE void dots_of(fsdp_dtype dtype, int columns, const task *t, int64_t j, int64_t l0,
                         int64_t l1)
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

FSDP_INLINE void rows_of_k(fsdp_dtype dtype, const task *t)
{
    for (int64_t l = 0; l < t->k; l += DEPTH) {
        int64_t end = fsdp_min_i64(l + DEPTH, t->k), j = 0;
        for (; t->columns - j >= COLUMNS; j += COLUMNS)
            dots_of(dtype, COLUMNS, t, j, l, end);
        for (; j < t->columns; j++)
            dots_of(dtype, 1, t, j, l, end);
    }
}

/* --- B's rows hold columns --- */

/* C's rows [i, i + rows), at column j: steps [l, l + steps) of k, whose B is x. */
FSDP_INLINE void add_rows(int rows, int steps, const task *t, int64_t i, int64_t j, int64_t l,
                          const fsdp_vec x[STEPS])
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

FSDP_INLINE void add_steps(fsdp_dtype dtype, int steps, const task *t, int64_t l)
{
    const char *b = t->b + l * t->b_row;
    for (int64_t j = 0; j < t->columns; j += FSDP_VEC) {
        fsdp_vec x[STEPS];
        UNROLL
        for (int s = 0; s < steps; s++) {
            const char *at = b + s * t->b_row + j * size_of(dtype);
            __builtin_prefetch((const void *)((uintptr_t)at + (uintptr_t)(AHEAD * t->b_row)));
            x[s] = load_part(dtype, at, t->columns - j);
        }
        int64_t i = 0;
        for (; t->rows - i >= ROWS; i += ROWS)
            add_rows(ROWS, steps, t, i, j, l, x);
        for (; i < t->rows; i++)
            add_rows(1, steps, t, i, j, l, x);
    }
}

FSDP_INLINE void rows_of_columns(fsdp_dtype dtype, const task *t)
{
    int64_t l = 0;
    for (; t->k - l >= STEPS; l += STEPS)
        add_steps(dtype, STEPS, t, l);
    for (; l < t->k; l++)
        add_steps(dtype, 1, t, l);
}

/* --- a task --- */

/* A as float32, rows a_ld apart. */
static void copy_a(const fsdp_gemm_args *args, float *to, int64_t a_ld)
{
    for (int64_t i = 0; i < args->m; i++)
        for (int64_t l = 0; l < args->k; l += FSDP_BLOCK) {
            int n = (int)fsdp_min_i64(args->k - l, FSDP_BLOCK);
            float buffer[FSDP_BLOCK];
            fsdp_copy_f32(to + i * a_ld + l,
                          fsdp_load_block(buffer, args->a, args->ab_dtype, i * args->lda + l, n),
                          n);
        }
}

/* C's columns from `c`, with what is added. */
static void finish(const fsdp_gemm_args *args, int64_t column, const task *t)
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

static void multiply(const fsdp_gemm_args *args, int64_t column, int64_t columns, float *a,
                     float *c)
{
    fsdp_dtype dtype = args->ab_dtype;
    task t = {.rows = args->m, .columns = columns, .k = args->k, .a = a};
    t.a_ld = fsdp_few_rows_ld(args->k);
    t.b = fsdp_gemm_b_at(args, 0, column);
    t.b_row = fsdp_gemm_bytes(dtype, args->ldb);
    t.c = c;
    t.c_ld = (columns + 15) & -16;
    copy_a(args, a, t.a_ld);
    memset(c, 0, (size_t)(args->m * t.c_ld) * sizeof *c);
    if (dtype == FSDP_DTYPE_F32)
        args->trans_b ? rows_of_k(FSDP_DTYPE_F32, &t) : rows_of_columns(FSDP_DTYPE_F32, &t);
    else if (dtype == FSDP_DTYPE_BF16)
        args->trans_b ? rows_of_k(FSDP_DTYPE_BF16, &t) : rows_of_columns(FSDP_DTYPE_BF16, &t);
    else
        args->trans_b ? rows_of_k(FSDP_DTYPE_F16, &t) : rows_of_columns(FSDP_DTYPE_F16, &t);
    finish(args, column, &t);
}

const fsdp_cpu_few_rows FSDP_ISA_NAME_OF(fsdp_cpu_few_rows) = {.multiply = multiply};
#endif
