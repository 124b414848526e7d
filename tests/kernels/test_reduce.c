/* tree_sum, tree_sum_rows and row_power_sums, whose order of addition must be the same at every
 * world size. */
#include "tests/kernels/operands.h"

enum {
    MAX_SOURCES = 13
};

/* Level by level: neighbors are added; an odd last one moves up. */
static float tree_of(float *level, int n)
{
    while (n > 1) {
        for (int i = 0; i < n / 2; i++)
            level[i] = level[2 * i] + level[2 * i + 1];
        if (n % 2)
            level[n / 2] = level[n - 1];
        n = (n + 1) / 2;
    }
    return level[0];
}

/* Compares the sum of the first `sources` of src in every variant with the naive tree. */
static void check_tree_sum(fsdp_test *t, const variants *v, const void *const *src, int sources,
                           fsdp_dtype dtype, int64_t n)
{
    operands o = {.n = 0};
    float *want = operand(&o, FSDP_DTYPE_F32, n), *dst = operand(&o, FSDP_DTYPE_F32, n);
    for (int64_t i = 0; i < n; i++) {
        float level[MAX_SOURCES];
        for (int k = 0; k < sources; k++)
            level[k] = (float)value_of(src[k], dtype, i);
        want[i] = tree_of(level, sources) * 0.3f;
    }
    for (int j = 0; j < v->n; j++) {
        memset(dst, 0xff, (size_t)n * sizeof *dst);
        v->at[j].k->tree_sum(v->at[j].c, dst, src, sources, dtype, n, 0.3f);
        ASSERT(memcmp(dst, want, (size_t)n * sizeof *dst) == 0);
    }
    ASSERT(operands_close(&o));
}

TEST(tree_sum_adds_as_the_aligned_binary_tree)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int d = 0; d < 3; d++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            operands o = {.n = 0};
            const void *src[MAX_SOURCES];
            for (int k = 0; k < MAX_SOURCES; k++) {
                void *x = operand(&o, float_dtypes[d], sizes[s]);
                fill_uniform(x, float_dtypes[d], sizes[s], (uint64_t)k, -1.0, 1.0);
                src[k] = x;
            }
            for (int sources = 1; sources <= MAX_SOURCES; sources++) {
                check_tree_sum(t, &v, src, sources, float_dtypes[d], sizes[s]);
                CHECK_HERE();
            }
            ASSERT(operands_close(&o));
        }
    variants_close(&v);
}

/* The bits are the same for any source that the sum overwrites. */
TEST(tree_sum_may_overwrite_a_source)
{
    enum {
        N = 1000,
        SOURCES = 6
    };
    variants v = variants_open(t);
    CHECK_HERE();
    static float x[SOURCES][N], want[N];
    const void *src[SOURCES];
    for (int k = 0; k < SOURCES; k++)
        src[k] = x[k];
    for (int j = 0; j < v.n; j++)
        for (int over = 0; over < SOURCES; over++) {
            for (int k = 0; k < SOURCES; k++)
                fill_uniform(x[k], FSDP_DTYPE_F32, N, (uint64_t)k, -1.0, 1.0);
            v.at[j].k->tree_sum(v.at[j].c, want, src, SOURCES, FSDP_DTYPE_F32, N, 0.5f);
            v.at[j].k->tree_sum(v.at[j].c, x[over], src, SOURCES, FSDP_DTYPE_F32, N, 0.5f);
            ASSERT(memcmp(x[over], want, sizeof want) == 0);
        }
    variants_close(&v);
}

/* Results that are written past the caches (large and aligned ones) equal those that are not, and
 * nothing outside is written. */
TEST(large_sums_are_the_same_at_any_alignment)
{
    enum {
        N = (1 << 16) + 37,
        SOURCES = 9,
        LINE = 16 /* elements */
    };
    static _Alignas(64) float dst[N + 3 * LINE];
    static float x[SOURCES][N + 1], want[N];
    variants v = variants_open(t);
    CHECK_HERE();
    for (int k = 0; k < SOURCES; k++)
        fill_uniform(x[k], FSDP_DTYPE_F32, N + 1, (uint64_t)k, -1.0, 1.0);
    for (int sources = 1; sources <= SOURCES; sources++) {
        const void *src[SOURCES];
        for (int k = 0; k < sources; k++)
            src[k] = x[k] + k % 2;
        for (int i = 0; i < N; i++) {
            float level[SOURCES];
            for (int k = 0; k < sources; k++)
                level[k] = x[k][i + k % 2];
            want[i] = tree_of(level, sources) * 0.5f;
        }
        for (int j = 0; j < v.n; j++)
            for (int shift = 0; shift < 3; shift++) {
                float *at = dst + LINE + shift;
                memset(dst, 0xff, sizeof dst);
                v.at[j].k->tree_sum(v.at[j].c, at, src, sources, FSDP_DTYPE_F32, N, 0.5f);
                ASSERT(memcmp(at, want, sizeof want) == 0);
                ASSERT(isnan(at[-1]) && isnan(at[N]));
            }
    }
    variants_close(&v);
}

/* --- tree_sum_rows --- */

enum {
    DST_ROWS = 41,
    TABLE_ROWS = 30
};

/* Every second row of dst is a sum of rows of the tables; table t is the same as in tree_sum(). */
static void fill_rows(int32_t rows[][1 + FSDP_MAX_SUMMED_TABLES], int tables, int32_t *flat)
{
    for (int i = 0; i < DST_ROWS / 2; i++) {
        rows[i][0] = DST_ROWS - 1 - 2 * i;
        for (int t = 0; t < tables; t++)
            rows[i][1 + t] = (i * 7 + t * 5) % TABLE_ROWS;
        memcpy(flat + i * (1 + tables), rows[i], (size_t)(1 + tables) * sizeof *flat);
    }
}

static void check_sum_of_rows(fsdp_test *t, const variants *v, int tables, int64_t width)
{
    operands o = {.n = 0};
    int32_t rows[DST_ROWS][1 + FSDP_MAX_SUMMED_TABLES], flat[DST_ROWS * 9];
    float *want = operand(&o, FSDP_DTYPE_F32, DST_ROWS * width);
    float *dst = operand(&o, FSDP_DTYPE_F32, DST_ROWS * width);
    fsdp_tree_sum_rows_args args = {.dst = dst,
                                    .n_tables = tables,
                                    .rows = flat,
                                    .n = DST_ROWS / 2,
                                    .width = width,
                                    .scale = 0.3f};
    for (int k = 0; k < tables; k++) {
        float *x = operand(&o, FSDP_DTYPE_F32, TABLE_ROWS * width);
        fill_uniform(x, FSDP_DTYPE_F32, TABLE_ROWS * width, (uint64_t)k, -1.0, 1.0);
        args.tables[k] = x;
    }
    fill_rows(rows, tables, flat);
    for (int i = 0; i < DST_ROWS / 2; i++)
        for (int64_t e = 0; e < width; e++) {
            float level[FSDP_MAX_SUMMED_TABLES];
            for (int k = 0; k < tables; k++)
                level[k] = args.tables[k][rows[i][1 + k] * width + e];
            want[rows[i][0] * width + e] = tree_of(level, tables) * 0.3f;
        }
    const size_t bytes = (size_t)(DST_ROWS * width) * sizeof *dst;
    for (int j = 0; j < v->n; j++) {
        memset(dst, 0xff, bytes);
        v->at[j].k->tree_sum_rows(v->at[j].c, &args);
        ASSERT(memcmp(dst, want, bytes) == 0);
        args.n = 0;
        v->at[j].k->tree_sum_rows(v->at[j].c, &args);
        args.n = DST_ROWS / 2;
    }
    ASSERT(operands_close(&o));
}

TEST(tree_sum_rows_adds_rows_and_writes_no_others)
{
    static const int64_t widths[] = {1, 7, 16, 33, 300, 4001};
    variants v = variants_open(t);
    CHECK_HERE();
    for (int w = 0; w < 6; w++)
        for (int tables = 1; tables <= FSDP_MAX_SUMMED_TABLES; tables++) {
            check_sum_of_rows(t, &v, tables, widths[w]);
            CHECK_HERE();
        }
    variants_close(&v);
}

/* --- row_power_sums --- */

/* A row's sum does not depend on the rows next to it, since the norm of a whole tensor is computed
 * from the rows of all ranks. */
static void check_powers(fsdp_test *t, const variants *v, fsdp_dtype dtype, int64_t width,
                         double power)
{
    enum {
        ROWS = 40
    };
    operands o = {.n = 0};
    char *x = operand(&o, dtype, ROWS * width);
    double *first = operand(&o, FSDP_DTYPE_F64, ROWS), *sums = operand(&o, FSDP_DTYPE_F64, ROWS);
    fill_uniform(x, dtype, ROWS * width, 1, -1.0, 1.0);
    for (int j = 0; j < v->n; j++) {
        const variant *at = &v->at[j];
        at->k->row_power_sums(at->c, &(fsdp_row_powers){x, dtype, ROWS, width, j ? sums : first}, 1,
                              power);
        ASSERT(j == 0 || memcmp(sums, first, ROWS * sizeof *sums) == 0);
        for (int r = 0; r < ROWS; r++) {
            double alone;
            const char *row = x + (size_t)(r * width) * fsdp_dtype_size(dtype);
            at->k->row_power_sums(at->c, &(fsdp_row_powers){row, dtype, 1, width, &alone}, 1,
                                  power);
            ASSERT_F32(alone, first[r]);
        }
    }
    for (int r = 0; r < ROWS; r++) {
        double want = 0.0;
        for (int64_t i = 0; i < width; i++) {
            double magnitude = fabs(value_of(x, dtype, r * width + i));
            want = isinf(power) ? fmax(want, magnitude) : want + pow(magnitude, power);
        }
        ASSERT_NEAR(first[r], want, 1e-13 * want);
    }
    ASSERT(operands_close(&o));
}

TEST(row_power_sums_are_in_double_and_row_by_row)
{
    static const int64_t widths[] = {0, 1, 7, 16, 33, 1000, 20001};
    static const double powers[] = {1.0, 2.0, (double)INFINITY, 3.5};
    variants v = variants_open(t);
    CHECK_HERE();
    for (int w = 0; w < 7; w++)
        for (int p = 0; p < 4; p++)
            for (int d = 0; d < 2; d++) {
                if (powers[p] == 3.5 && widths[w] > 1000) /* pow() is slow */
                    continue;
                check_powers(t, &v, float_dtypes[d], widths[w], powers[p]);
                CHECK_HERE();
            }
    variants_close(&v);
}

/* For any position of the NaN, and even for the maximum. */
TEST(a_nan_makes_its_rows_sum_nan)
{
    static const double powers[] = {1.0, 2.0, (double)INFINITY, 3.5};
    variants v = variants_open(t);
    CHECK_HERE();
    for (int p = 0; p < 4; p++)
        for (int at = 0; at < 37; at++) {
            float x[2][37];
            double sums[2];
            fill_uniform(x, FSDP_DTYPE_F32, 74, 1, -1.0, 1.0);
            x[1][at] = NAN;
            const fsdp_row_powers rows = {x, FSDP_DTYPE_F32, 2, 37, sums};
            v.at[0].k->row_power_sums(v.at[0].c, &rows, 1, powers[p]);
            ASSERT(isfinite(sums[0]) && isnan(sums[1]));
        }
    variants_close(&v);
}
