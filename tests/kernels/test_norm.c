/* rms_norm and column_sum: naive loops in double, finite differences, every variant's bits. */
#include "tests/kernels/operands.h"

typedef struct shape {
    int64_t rows, width;
} shape;

/* One block and several, tails, one row, one column, none, wider than the partial sums' room. */
static const shape shapes[] = {{0, 5},   {1, 1},    {3, 7},    {65, 16},   {64, 17}, {130, 512},
                               {33, 48}, {1000, 1}, {257, 33}, {7, 70001}, {5, 0}};
enum {
    N_SHAPES = sizeof shapes / sizeof *shapes
};

static double dot(const void *a, const void *b, fsdp_dtype dtype, int64_t start, int64_t n)
{
    double sum = 0.0;
    for (int64_t i = start; i < start + n; i++)
        sum += value_of(a, dtype, i) * value_of(b, dtype, i);
    return sum;
}

static void check_forward(fsdp_test *t, const variants *v, shape s, fsdp_dtype dtype,
                          fsdp_dtype w_dtype)
{
    operands o = {.n = 0};
    int64_t n = s.rows * s.width;
    void *x = operand(&o, dtype, n), *w = operand(&o, w_dtype, s.width);
    void *first = operand(&o, dtype, n), *y = operand(&o, dtype, n);
    float *first_rstd = operand(&o, FSDP_DTYPE_F32, s.rows);
    float *rstd = operand(&o, FSDP_DTYPE_F32, s.rows);
    fill_uniform(x, dtype, n, 1, -3.0, 3.0);
    fill_uniform(w, w_dtype, s.width, 2, 0.5, 1.5);
    for (int j = 0; j < v->n; j++) {
        v->at[j].k->rms_norm(v->at[j].c, j ? y : first, j ? rstd : first_rstd, x, w, dtype, w_dtype,
                             s.rows, s.width, 1e-6f);
        ASSERT(j == 0 || memcmp(y, first, (size_t)n * fsdp_dtype_size(dtype)) == 0);
        ASSERT(j == 0 || memcmp(rstd, first_rstd, (size_t)s.rows * sizeof *rstd) == 0);
    }
    for (int64_t r = 0; s.width && r < s.rows; r++) {
        double mean = dot(x, x, dtype, r * s.width, s.width) / (double)s.width;
        double want_rstd = 1.0 / sqrt(mean + 1e-6);
        ASSERT_NEAR(first_rstd[r], want_rstd, 5e-7 * want_rstd);
        for (int64_t i = 0; i < s.width; i++) {
            double want = value_of(x, dtype, r * s.width + i) * want_rstd * value_of(w, w_dtype, i);
            ASSERT_NEAR(value_of(first, dtype, r * s.width + i), want,
                        (rounding_of(dtype) + 6e-7) * fabs(want) + floor_of(dtype));
        }
    }
    ASSERT(operands_close(&o));
}

TEST(rms_norm_equals_the_naive_loop)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int s = 0; s < N_SHAPES; s++)
        for (int d = 0; d < 3; d++) {
            check_forward(t, &v, shapes[s], float_dtypes[d], FSDP_DTYPE_F32);
            CHECK_HERE();
            check_forward(t, &v, shapes[s], float_dtypes[d], float_dtypes[d]);
            CHECK_HERE();
        }
    variants_close(&v);
}

/* dx = rstd (dy w - x rstd^2 mean(dy w x)), dw = sum dy x rstd, from the kernel's own inputs. */
static void check_backward(fsdp_test *t, const variants *v, shape s, fsdp_dtype dtype,
                           fsdp_dtype w_dtype, float beta)
{
    operands o = {.n = 0};
    int64_t n = s.rows * s.width;
    size_t bytes = (size_t)n * fsdp_dtype_size(dtype);
    size_t w_bytes = (size_t)s.width * fsdp_dtype_size(w_dtype);
    void *x = operand(&o, dtype, n), *dy = operand(&o, dtype, n);
    void *w = operand(&o, w_dtype, s.width), *old = operand(&o, w_dtype, s.width);
    void *first = operand(&o, dtype, n), *dx = operand(&o, dtype, n);
    void *first_dw = operand(&o, w_dtype, s.width), *dw = operand(&o, w_dtype, s.width);
    float *rstd = operand(&o, FSDP_DTYPE_F32, s.rows);
    fill_uniform(x, dtype, n, 1, -3.0, 3.0);
    fill_uniform(dy, dtype, n, 5, -1.0, 1.0);
    fill_uniform(w, w_dtype, s.width, 2, 0.5, 1.5);
    if (beta != 0.0f) /* otherwise it stays NaN, which must not be read */
        fill_uniform(old, w_dtype, s.width, 3, -1.0, 1.0);
    for (int64_t r = 0; r < s.rows; r++)
        rstd[r] = (float)(1.0 / sqrt(dot(x, x, dtype, r * s.width, s.width) / (double)s.width));
    for (int j = 0; j < v->n; j++) {
        void *to = j ? dw : first_dw;
        memcpy(to, old, w_bytes);
        v->at[j].k->rms_norm_backward(v->at[j].c, j ? dx : first, to, w_dtype, beta, dy, x, rstd, w,
                                      dtype, w_dtype, s.rows, s.width);
        ASSERT(j == 0 || memcmp(dx, first, bytes) == 0);
        ASSERT(j == 0 || memcmp(dw, first_dw, w_bytes) == 0);
        /* Each gradient alone is the same. */
        memset(dx, 0xff, bytes);
        memcpy(dw, old, w_bytes);
        v->at[j].k->rms_norm_backward(v->at[j].c, dx, NULL, w_dtype, beta, dy, x, rstd, w, dtype,
                                      w_dtype, s.rows, s.width);
        v->at[j].k->rms_norm_backward(v->at[j].c, NULL, dw, w_dtype, beta, dy, x, rstd, w, dtype,
                                      w_dtype, s.rows, s.width);
        ASSERT(memcmp(dx, first, bytes) == 0);
        ASSERT(memcmp(dw, first_dw, w_bytes) == 0);
    }
    for (int64_t r = 0; r < s.rows; r++) {
        double mean = 0.0, k = (double)rstd[r];
        for (int64_t i = 0; i < s.width; i++)
            mean += value_of(dy, dtype, r * s.width + i) * value_of(w, w_dtype, i) *
                    value_of(x, dtype, r * s.width + i) / (double)s.width;
        for (int64_t i = 0; i < s.width; i++) {
            double g = value_of(dy, dtype, r * s.width + i) * value_of(w, w_dtype, i);
            double want = k * (g - value_of(x, dtype, r * s.width + i) * k * k * mean);
            ASSERT_NEAR(value_of(first, dtype, r * s.width + i), want,
                        rounding_of(dtype) * fabs(want) + 1e-6 * k + floor_of(dtype));
        }
    }
    for (int64_t i = 0; i < s.width; i++) {
        double want = beta != 0.0f ? value_of(old, w_dtype, i) : 0.0, size = fabs(want);
        for (int64_t r = 0; r < s.rows; r++) {
            double term = value_of(dy, dtype, r * s.width + i) *
                          value_of(x, dtype, r * s.width + i) * (double)rstd[r];
            want += term;
            size += fabs(term);
        }
        ASSERT_NEAR(value_of(first_dw, w_dtype, i), want,
                    rounding_of(w_dtype) * fabs(want) + 3e-7 * size + floor_of(w_dtype));
    }
    ASSERT(operands_close(&o));
}

TEST(rms_norm_backward_equals_the_naive_loop)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int s = 0; s < N_SHAPES; s++)
        for (int d = 0; d < 3; d++)
            for (int beta = 0; beta < 2; beta++) {
                check_backward(t, &v, shapes[s], float_dtypes[d], FSDP_DTYPE_F32, (float)beta);
                CHECK_HERE();
                check_backward(t, &v, shapes[s], float_dtypes[d], float_dtypes[d], (float)beta);
                CHECK_HERE();
            }
    variants_close(&v);
}

/* The loss sum(c y) moves as the gradients say when one input or weight is moved. */
TEST(rms_norm_backward_is_the_slope_of_forward)
{
    enum {
        ROWS = 3,
        WIDTH = 20,
        N = ROWS * WIDTH
    };
    variants v = variants_open(t);
    CHECK_HERE();
    const variant *at = &v.at[0];
    float x[N], w[WIDTH], c[N], y[N], dx[N], dw[WIDTH], rstd[ROWS], moved_rstd[ROWS], h = 1e-2f;
    fill_uniform(x, FSDP_DTYPE_F32, N, 1, -2.0, 2.0);
    fill_uniform(w, FSDP_DTYPE_F32, WIDTH, 2, 0.5, 1.5);
    fill_uniform(c, FSDP_DTYPE_F32, N, 3, -1.0, 1.0);
    at->k->rms_norm(at->c, y, rstd, x, w, FSDP_DTYPE_F32, FSDP_DTYPE_F32, ROWS, WIDTH, 0.1f);
    at->k->rms_norm_backward(at->c, dx, dw, FSDP_DTYPE_F32, 0.0f, c, x, rstd, w, FSDP_DTYPE_F32,
                             FSDP_DTYPE_F32, ROWS, WIDTH);
    for (int i = 0; i < N + WIDTH; i++) {
        float *moved = i < N ? &x[i] : &w[i - N], was = *moved;
        double loss[2] = {0.0, 0.0};
        for (int side = 0; side < 2; side++) {
            *moved = was + (side ? h : -h);
            at->k->rms_norm(at->c, y, moved_rstd, x, w, FSDP_DTYPE_F32, FSDP_DTYPE_F32, ROWS, WIDTH,
                            0.1f);
            for (int k = 0; k < N; k++)
                loss[side] += (double)c[k] * (double)y[k];
        }
        *moved = was;
        ASSERT_NEAR(i < N ? dx[i] : dw[i - N], (loss[1] - loss[0]) / (2.0 * (double)h), 2e-4);
    }
    variants_close(&v);
}

TEST(column_sum_equals_the_naive_loop)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int s = 0; s < N_SHAPES; s++)
        for (int d = 0; d < 6; d++)
            for (int beta = 0; beta < 2; beta++) {
                fsdp_dtype dtype = float_dtypes[d % 3];
                fsdp_dtype to = d < 3 ? FSDP_DTYPE_F32 : dtype;
                int64_t rows = shapes[s].rows, width = shapes[s].width;
                size_t bytes = (size_t)width * fsdp_dtype_size(to);
                operands o = {.n = 0};
                void *dy = operand(&o, dtype, rows * width), *old = operand(&o, to, width);
                void *first = operand(&o, to, width), *sum = operand(&o, to, width);
                fill_uniform(dy, dtype, rows * width, 1, -1.0, 1.0);
                if (beta)
                    fill_uniform(old, to, width, 2, -1.0, 1.0);
                for (int j = 0; j < v.n; j++) {
                    memcpy(j ? sum : first, old, bytes);
                    v.at[j].k->column_sum(v.at[j].c, j ? sum : first, to, (float)beta, dy, dtype,
                                          rows, width);
                    ASSERT(j == 0 || memcmp(sum, first, bytes) == 0);
                }
                for (int64_t i = 0; i < width; i++) {
                    double want = beta ? value_of(old, to, i) : 0.0, size = fabs(want);
                    for (int64_t r = 0; r < rows; r++) {
                        want += value_of(dy, dtype, r * width + i);
                        size += fabs(value_of(dy, dtype, r * width + i));
                    }
                    ASSERT_NEAR(value_of(first, to, i), want,
                                rounding_of(to) * fabs(want) + 2e-7 * size + floor_of(to));
                }
                ASSERT(operands_close(&o));
            }
    variants_close(&v);
}
