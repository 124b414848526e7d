/* tree_sum and row_sum_squares: the orders of addition that every world size agrees on. */
#include "tests/kernels/operands.h"

enum {
    MAX_SOURCES = 13
};

/* Level by level: neighbours are added, an odd last one moves up. */
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

TEST(tree_sum_adds_as_the_aligned_binary_tree)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int sources = 1; sources <= MAX_SOURCES; sources++)
        for (int d = 0; d < 3; d++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                int64_t n = sizes[s];
                fsdp_dtype dtype = float_dtypes[d];
                operands o = {.n = 0};
                const void *src[MAX_SOURCES];
                float *want = operand(&o, FSDP_DTYPE_F32, n), *dst = operand(&o, FSDP_DTYPE_F32, n);
                for (int k = 0; k < sources; k++) {
                    void *x = operand(&o, dtype, n);
                    fill_uniform(x, dtype, n, (uint64_t)k, -1.0, 1.0);
                    src[k] = x;
                }
                for (int64_t i = 0; i < n; i++) {
                    float level[MAX_SOURCES];
                    for (int k = 0; k < sources; k++)
                        level[k] = (float)value_of(src[k], dtype, i);
                    want[i] = tree_of(level, sources) * 0.3f;
                }
                for (int j = 0; j < v.n; j++) {
                    memset(dst, 0xff, (size_t)n * sizeof *dst);
                    v.at[j].k->tree_sum(v.at[j].c, dst, src, sources, dtype, n, 0.3f);
                    ASSERT(memcmp(dst, want, (size_t)n * sizeof *dst) == 0);
                }
                ASSERT(operands_close(&o));
            }
    variants_close(&v);
}

/* Whichever source the sum overwrites, the bits are the same. */
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

/* A row's sum does not depend on which rows are with it: the norm of a whole tensor is put
 * together from the ranks' rows. */
TEST(row_sum_squares_is_in_double_and_row_by_row)
{
    static const int64_t widths[] = {0, 1, 7, 16, 33, 1000, 20001};
    enum {
        ROWS = 40
    };
    variants v = variants_open(t);
    CHECK_HERE();
    for (int w = 0; w < 7; w++) {
        int64_t width = widths[w];
        operands o = {.n = 0};
        float *x = operand(&o, FSDP_DTYPE_F32, ROWS * width);
        double *first = operand(&o, FSDP_DTYPE_F64, ROWS),
               *sums = operand(&o, FSDP_DTYPE_F64, ROWS);
        fill_uniform(x, FSDP_DTYPE_F32, ROWS * width, 1, -1.0, 1.0);
        for (int j = 0; j < v.n; j++) {
            v.at[j].k->row_sum_squares(v.at[j].c, j ? sums : first, x, ROWS, width);
            ASSERT(j == 0 || memcmp(sums, first, ROWS * sizeof *sums) == 0);
            for (int r = 0; r < ROWS; r++) {
                double alone;
                v.at[j].k->row_sum_squares(v.at[j].c, &alone, x + r * width, 1, width);
                ASSERT_F32(alone, first[r]);
            }
        }
        for (int r = 0; r < ROWS; r++) {
            double want = 0.0;
            for (int64_t i = 0; i < width; i++)
                want += (double)x[r * width + i] * (double)x[r * width + i];
            ASSERT_NEAR(first[r], want, 1e-13 * want);
        }
        ASSERT(operands_close(&o));
    }
    variants_close(&v);
}
