/* scale_columns, column_dots, norms_of_squares and magnitude_factors against naive loops in double;
 * every variant gives the same bits. */
#include "tests/kernels/operands.h"

typedef struct shape {
    int64_t rows, width;
} shape;

/* No rows, one block and several, partial blocks, more columns than a block of a row has. */
static const shape shapes[] = {{0, 5}, {1, 1}, {3, 7}, {65, 16}, {130, 261}, {300, 1}, {2, 66001}};

static void check_scale(fsdp_test *t, const variants *v, shape s, fsdp_dtype dtype, bool biased)
{
    operands o = {.n = 0};
    const int64_t n = s.rows * s.width;
    void *x = operand(&o, dtype, n), *bias = operand(&o, dtype, s.width);
    void *first = operand(&o, dtype, n), *y = operand(&o, dtype, n);
    float *factors = operand(&o, FSDP_DTYPE_F32, s.width);
    fill_uniform(x, dtype, n, 1, -3.0, 3.0);
    fill_uniform(bias, dtype, s.width, 2, -1.0, 1.0);
    fill_uniform(factors, FSDP_DTYPE_F32, s.width, 3, 0.5, 1.5);
    for (int j = 0; j < v->n; j++) {
        v->at[j].k->scale_columns(v->at[j].c, j ? y : first, x, dtype, factors,
                                  biased ? bias : NULL, s.rows, s.width);
        ASSERT(j == 0 || memcmp(y, first, (size_t)n * fsdp_dtype_size(dtype)) == 0);
    }
    for (int64_t i = 0; i < n; i++) {
        const double product = value_of(x, dtype, i) * (double)factors[i % s.width];
        const double want = product + (biased ? value_of(bias, dtype, i % s.width) : 0.0);
        ASSERT_NEAR(value_of(first, dtype, i), want,
                    rounding_of(dtype) * fabs(want) + 6e-7 * fabs(product) + floor_of(dtype));
    }
    ASSERT(operands_close(&o));
}

static void check_dots(fsdp_test *t, const variants *v, shape s, fsdp_dtype dtype, float beta)
{
    operands o = {.n = 0};
    const int64_t n = s.rows * s.width;
    void *x = operand(&o, dtype, n), *y = operand(&o, dtype, n);
    float *factors = operand(&o, FSDP_DTYPE_F32, s.width);
    float *old = operand(&o, FSDP_DTYPE_F32, s.width);
    float *first = operand(&o, FSDP_DTYPE_F32, s.width),
          *out = operand(&o, FSDP_DTYPE_F32, s.width);
    fill_uniform(x, dtype, n, 1, -3.0, 3.0);
    fill_uniform(y, dtype, n, 2, -3.0, 3.0);
    fill_uniform(factors, FSDP_DTYPE_F32, s.width, 3, 0.5, 1.5);
    fill_uniform(old, FSDP_DTYPE_F32, s.width, 4, -1.0, 1.0);
    for (int j = 0; j < v->n; j++) {
        float *to = j ? out : first;
        memcpy(to, old, (size_t)s.width * sizeof *to);
        v->at[j].k->column_dots(v->at[j].c, to, FSDP_DTYPE_F32, beta, x, y, dtype, factors, s.rows,
                                s.width);
        ASSERT(j == 0 || memcmp(out, first, (size_t)s.width * sizeof *out) == 0);
    }
    for (int64_t i = 0; i < s.width; i++) {
        double want = (double)beta * (double)old[i], size = fabs(want);
        for (int64_t r = 0; r < s.rows; r++) {
            const double term = value_of(x, dtype, r * s.width + i) *
                                value_of(y, dtype, r * s.width + i) * (double)factors[i];
            want += term;
            size += fabs(term);
        }
        ASSERT_NEAR((double)first[i], want, 2e-6 * size);
    }
    ASSERT(operands_close(&o));
}

TEST(columns_are_scaled_and_their_products_added)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int d = 0; d < 3; d++)
            for (int on = 0; on < 2; on++) {
                check_scale(t, &v, shapes[s], float_dtypes[d], on);
                CHECK_HERE();
                check_dots(t, &v, shapes[s], float_dtypes[d], (float)on);
                CHECK_HERE();
            }
    variants_close(&v);
}

/* The third norm is 0: both of its factors are 0, not infinite. */
TEST(norms_are_rounded_to_the_dtype_and_divide_the_magnitudes)
{
    static const double squares[] = {4.0, 2.0, 0.0};
    static const float magnitudes[] = {3.0f, 1.0f, 5.0f};
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++) {
        float norms[3], factors[3], reciprocals[3];
        v.at[j].k->norms_of_squares(v.at[j].c, norms, squares, FSDP_DTYPE_BF16, 3);
        ASSERT_F32(norms[1], fsdp_f32_from_bf16(fsdp_bf16_from_f32((float)sqrt(2.0))));
        v.at[j].k->norms_of_squares(v.at[j].c, norms, squares, FSDP_DTYPE_F32, 3);
        ASSERT_F32(norms[0], 2.0f);
        ASSERT_F32(norms[1], (float)sqrt(2.0));
        v.at[j].k->magnitude_factors(v.at[j].c, factors, reciprocals, magnitudes, FSDP_DTYPE_F32,
                                     norms, 3);
        ASSERT_F32(factors[0], 1.5f);
        ASSERT_F32(reciprocals[0], 0.5f);
        ASSERT_F32(factors[2], 0.0f);
        ASSERT_F32(reciprocals[2], 0.0f);
    }
    variants_close(&v);
}
