/* split_columns, join_columns, gather_transposed, segment_mean: naive loops, and the bits of every
 * variant. */
#include "tests/kernels/operands.h"

/* --- columns --- */

static const int64_t row_counts[] = {0, 1, 3, 17, 300};
static const size_t part_sizes[] = {0, 2, 6, 34, 512, 70000};

static void check_split(fsdp_test *t, const variant *at, int64_t rows, int n, size_t bytes)
{
    operands o = {.n = 0};
    size_t total = (size_t)rows * (size_t)n * bytes;
    unsigned char *x = operand_bytes(&o, total), *back = operand_bytes(&o, total);
    void *parts[8];
    for (size_t i = 0; i < total; i++)
        x[i] = (unsigned char)(i * 7 + i / 251);
    for (int p = 0; p < n; p++)
        parts[p] = operand_bytes(&o, (size_t)rows * bytes);
    at->k->split_columns(at->c, parts, x, n, rows, bytes);
    for (size_t r = 0; r < (size_t)rows; r++)
        for (size_t p = 0; p < (size_t)n; p++)
            ASSERT(memcmp((char *)parts[p] + r * bytes, x + (r * (size_t)n + p) * bytes, bytes) ==
                   0);
    const void *from[8];
    for (int p = 0; p < n; p++)
        from[p] = parts[p];
    at->k->join_columns(at->c, back, from, n, rows, bytes);
    ASSERT(memcmp(back, x, total) == 0);
    from[n / 2] = NULL;
    memset(back, 0xff, total);
    at->k->join_columns(at->c, back, from, n, rows, bytes);
    for (size_t i = 0; i < total; i++)
        ASSERT_INT(back[i], i / bytes % (size_t)n == (size_t)(n / 2) ? 0 : x[i]);
    ASSERT(operands_close(&o));
}

TEST(join_columns_undoes_split_columns)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (int r = 0; r < 5; r++)
            for (int s = 0; s < 6; s++)
                for (int n = 1; n <= 8; n += n == 1 ? 2 : 5) {
                    if ((size_t)row_counts[r] * part_sizes[s] > 220000)
                        continue;
                    check_split(t, &v.at[j], row_counts[r], n, part_sizes[s]);
                    CHECK_HERE();
                }
    variants_close(&v);
}

/* --- gather_transposed --- */

enum {
    TAKEN = 101,
    X_ROWS = 9 /* row 4 is not taken */
};

static void check_transposed(fsdp_test *t, const variant *at, int64_t width, fsdp_dtype dtype)
{
    operands o = {.n = 0};
    int32_t rows[TAKEN];
    void *x = operand(&o, dtype, X_ROWS * width);
    float *out = operand(&o, FSDP_DTYPE_F32, TAKEN * width);
    float *dx = operand(&o, FSDP_DTYPE_F32, X_ROWS * width);
    fill_uniform(x, dtype, X_ROWS * width, 1, -3.0, 3.0);
    for (int i = 0; i < TAKEN; i++)
        rows[i] = i % X_ROWS == 4 ? 8 : (i * 5 + i / 40) % X_ROWS == 4 ? 0 : i % X_ROWS;
    at->k->gather_transposed(at->c, out, x, dtype, rows, TAKEN, width);
    for (int64_t i = 0; i < TAKEN * width; i++)
        ASSERT_F32(out[i], (float)value_of(x, dtype, rows[i % TAKEN] * width + i / TAKEN));
    at->k->gather_transposed_backward(at->c, dx, out, rows, TAKEN, width, X_ROWS);
    for (int64_t i = 0; i < X_ROWS * width; i++) {
        float sum = 0.0f;
        for (int r = 0; r < TAKEN; r++)
            if (rows[r] == i / width)
                sum += out[i % width * TAKEN + r];
        ASSERT_F32(dx[i], sum);
    }
    ASSERT(operands_close(&o));
}

TEST(gather_transposed_equals_the_naive_loop)
{
    static const int64_t widths[] = {0, 1, 12, 300};
    static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (int w = 0; w < 4; w++)
            for (int d = 0; d < 3; d++) {
                check_transposed(t, &v.at[j], widths[w], dtypes[d]);
                CHECK_HERE();
            }
    variants_close(&v);
}

/* --- segment_mean --- */

static const int32_t offsets[] = {0, 0, 1, 1, 8, 40, 157, 157};
enum {
    SEGMENTS = 7,
    ROWS = 157
};

static void check_mean(fsdp_test *t, const variants *v, int64_t width, fsdp_dtype dtype)
{
    operands o = {.n = 0};
    size_t bytes = (size_t)(SEGMENTS * width) * fsdp_dtype_size(dtype);
    void *x = operand(&o, dtype, ROWS * width), *first = operand(&o, dtype, SEGMENTS * width);
    void *out = operand(&o, dtype, SEGMENTS * width);
    fill_uniform(x, dtype, ROWS * width, 1, -3.0, 3.0);
    for (int j = 0; j < v->n; j++) {
        v->at[j].k->segment_mean(v->at[j].c, j ? out : first, x, dtype, offsets, SEGMENTS, width);
        ASSERT(j == 0 || memcmp(out, first, bytes) == 0);
    }
    for (int64_t i = 0; i < SEGMENTS * width; i++) {
        int64_t begin = offsets[i / width], end = offsets[i / width + 1];
        double want = 0.0;
        for (int64_t r = begin; r < end; r++)
            want += value_of(x, dtype, r * width + i % width) / (double)(end - begin);
        ASSERT_NEAR(value_of(first, dtype, i), want,
                    rounding_of(dtype) * fabs(want) + 2e-6 + floor_of(dtype));
    }
    ASSERT(operands_close(&o));
}

static void check_mean_backward(fsdp_test *t, const variants *v, int64_t width, fsdp_dtype dtype)
{
    operands o = {.n = 0};
    size_t bytes = (size_t)(ROWS * width) * fsdp_dtype_size(dtype);
    void *dy = operand(&o, dtype, SEGMENTS * width), *first = operand(&o, dtype, ROWS * width);
    void *dx = operand(&o, dtype, ROWS * width);
    fill_uniform(dy, dtype, SEGMENTS * width, 1, -3.0, 3.0);
    for (int j = 0; j < v->n; j++) {
        v->at[j].k->segment_mean_backward(v->at[j].c, j ? dx : first, dy, dtype, offsets, SEGMENTS,
                                          width);
        ASSERT(j == 0 || memcmp(dx, first, bytes) == 0);
    }
    for (int s = 0; s < SEGMENTS; s++)
        for (int64_t i = offsets[s] * width; i < offsets[s + 1] * width; i++) {
            double want =
                value_of(dy, dtype, s * width + i % width) / (double)(offsets[s + 1] - offsets[s]);
            ASSERT_NEAR(value_of(first, dtype, i), want,
                        rounding_of(dtype) * fabs(want) + floor_of(dtype));
        }
    ASSERT(operands_close(&o));
}

TEST(segment_mean_equals_the_naive_loop)
{
    static const int64_t widths[] = {0, 1, 3, 17, 256, 600};
    variants v = variants_open(t);
    CHECK_HERE();
    for (int w = 0; w < 6; w++)
        for (int d = 0; d < 3; d++) {
            check_mean(t, &v, widths[w], float_dtypes[d]);
            CHECK_HERE();
            check_mean_backward(t, &v, widths[w], float_dtypes[d]);
            CHECK_HERE();
        }
    variants_close(&v);
}
