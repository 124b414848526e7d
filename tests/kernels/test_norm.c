/* rms_norm, layer_norm and column_sum against naive loops in double and finite differences; every
 * variant gives the same bits. */
#include "tests/kernels/operands.h"

typedef struct shape {
    int64_t rows, width;
} shape;

/* One block and several, partial blocks, one row, one column, none, wider than the room for partial
 * sums. */
static const shape shapes[] = {{0, 5},   {1, 1},   {3, 7},    {65, 16},   {64, 17}, {130, 261},
                               {33, 48}, {300, 1}, {257, 33}, {2, 66001}, {5, 0}};
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
        /* Each gradient is the same if computed alone. */
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

/* The loss sum(c y) changes as the gradients say when one input or weight is changed. */
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

/* --- layer_norm --- */

typedef struct moments {
    double mean, rstd;
} moments;

static moments moments_of(const void *x, fsdp_dtype dtype, int64_t start, int64_t n, double eps)
{
    double mean = 0.0, variance = 0.0;
    for (int64_t i = start; i < start + n; i++)
        mean += value_of(x, dtype, i) / (double)n;
    for (int64_t i = start; i < start + n; i++)
        variance += pow(value_of(x, dtype, i) - mean, 2.0) / (double)n;
    return (moments){mean, 1.0 / sqrt(variance + eps)};
}

/* Rows are far from zero (the mean is many deviations), where E[x^2] - mean^2 would cancel. */
static void check_layer_forward(fsdp_test *t, const variants *v, shape s, fsdp_dtype dtype,
                                fsdp_dtype w_dtype, bool with_bias)
{
    const double eps = 1e-5;
    operands o = {.n = 0};
    int64_t n = s.rows * s.width;
    size_t stats_bytes = (size_t)s.rows * sizeof(float);
    void *x = operand(&o, dtype, n), *w = operand(&o, w_dtype, s.width);
    void *bias = operand(&o, w_dtype, s.width);
    void *first = operand(&o, dtype, n), *y = operand(&o, dtype, n);
    float *first_mean = operand(&o, FSDP_DTYPE_F32, s.rows);
    float *first_rstd = operand(&o, FSDP_DTYPE_F32, s.rows);
    float *mean = operand(&o, FSDP_DTYPE_F32, s.rows), *rstd = operand(&o, FSDP_DTYPE_F32, s.rows);
    fill_uniform(x, dtype, n, 1, 17.0, 23.0);
    fill_uniform(w, w_dtype, s.width, 2, 0.5, 1.5);
    fill_uniform(bias, w_dtype, s.width, 3, -1.0, 1.0);
    for (int j = 0; j < v->n; j++) {
        v->at[j].k->layer_norm(v->at[j].c, j ? y : first, j ? mean : first_mean,
                               j ? rstd : first_rstd, x, w, with_bias ? bias : NULL, dtype, w_dtype,
                               s.rows, s.width, (float)eps);
        ASSERT(j == 0 || memcmp(y, first, (size_t)n * fsdp_dtype_size(dtype)) == 0);
        ASSERT(j == 0 || memcmp(mean, first_mean, stats_bytes) == 0);
        ASSERT(j == 0 || memcmp(rstd, first_rstd, stats_bytes) == 0);
        /* The moments are the same if computed alone. */
        memset(mean, 0xff, stats_bytes);
        memset(rstd, 0xff, stats_bytes);
        v->at[j].k->layer_norm(v->at[j].c, NULL, mean, rstd, x, w, with_bias ? bias : NULL, dtype,
                               w_dtype, s.rows, s.width, (float)eps);
        ASSERT(memcmp(mean, first_mean, stats_bytes) == 0);
        ASSERT(memcmp(rstd, first_rstd, stats_bytes) == 0);
    }
    for (int64_t r = 0; s.width && r < s.rows; r++) {
        moments m = moments_of(x, dtype, r * s.width, s.width, eps);
        ASSERT_NEAR(first_mean[r], m.mean, 2e-7 * fabs(m.mean));
        ASSERT_NEAR(first_rstd[r], m.rstd, 2e-6 * m.rstd);
        for (int64_t i = 0; i < s.width; i++) {
            double want =
                (value_of(x, dtype, r * s.width + i) - m.mean) * m.rstd * value_of(w, w_dtype, i);
            want += with_bias ? value_of(bias, w_dtype, i) : 0.0;
            ASSERT_NEAR(value_of(first, dtype, r * s.width + i), want,
                        rounding_of(dtype) * fabs(want) + 4e-6 * m.rstd + 6e-6);
        }
    }
    ASSERT(operands_close(&o));
}

TEST(layer_norm_equals_the_naive_loop)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int s = 0; s < N_SHAPES; s++)
        for (int d = 0; d < 3; d++) {
            if (shapes[s].width == 1) /* the deviation would be rounding alone: see the next test */
                continue;
            check_layer_forward(t, &v, shapes[s], float_dtypes[d], FSDP_DTYPE_F32, d != 1);
            CHECK_HERE();
            check_layer_forward(t, &v, shapes[s], float_dtypes[d], float_dtypes[d], true);
            CHECK_HERE();
        }
    variants_close(&v);
}

/* A row of equal values has no deviation, so the result is exactly the bias. */
TEST(layer_norm_of_equal_values_is_the_bias)
{
    static const int widths[] = {1, 2, 16, 300};
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (int i = 0; i < 4; i++) {
            float x[300], w[300], bias[300], y[300], mean, rstd;
            for (int k = 0; k < 300; k++)
                x[k] = 4.0f;
            fill_uniform(w, FSDP_DTYPE_F32, 300, 2, 0.5, 1.5);
            fill_uniform(bias, FSDP_DTYPE_F32, 300, 3, -1.0, 1.0);
            v.at[j].k->layer_norm(v.at[j].c, y, &mean, &rstd, x, w, bias, FSDP_DTYPE_F32,
                                  FSDP_DTYPE_F32, 1, widths[i], 1e-5f);
            ASSERT_F32(mean, 4.0f);
            ASSERT_NEAR(rstd, 1.0 / sqrt(1e-5), 1e-4);
            ASSERT(memcmp(y, bias, (size_t)widths[i] * sizeof *y) == 0);
        }
    variants_close(&v);
}

typedef struct layer_operands {
    void *x, *dy, *w, *old;
    float *mean, *rstd;
    void *dx, *dw, *dbias;
} layer_operands;

/* `want`: bit 0 for dx, 1 for dw, 2 for dbias. Results that are not computed stay NaN. */
static void run_layer_backward(const variant *at, const layer_operands *p, shape s,
                               fsdp_dtype dtype, fsdp_dtype w_dtype, float beta, int want)
{
    size_t w_bytes = (size_t)s.width * fsdp_dtype_size(w_dtype);
    memset(p->dx, 0xff, (size_t)(s.rows * s.width) * fsdp_dtype_size(dtype));
    memcpy(p->dw, p->old, w_bytes);
    memcpy(p->dbias, p->old, w_bytes);
    fsdp_layer_norm_backward_args args = {.dy = p->dy,
                                          .x = p->x,
                                          .w = p->w,
                                          .mean = p->mean,
                                          .rstd = p->rstd,
                                          .dtype = dtype,
                                          .w_dtype = w_dtype,
                                          .rows = s.rows,
                                          .width = s.width,
                                          .dx = want & 1 ? p->dx : NULL,
                                          .dw = {want & 2 ? p->dw : NULL, w_dtype, beta},
                                          .dbias = {want & 4 ? p->dbias : NULL, w_dtype, beta}};
    at->k->layer_norm_backward(at->c, &args);
}

static void check_layer_dx(fsdp_test *t, const layer_operands *p, shape s, fsdp_dtype dtype,
                           fsdp_dtype w_dtype)
{
    for (int64_t r = 0; r < s.rows; r++) {
        double g_mean = 0.0, g_n_mean = 0.0, rstd = (double)p->rstd[r], mean = (double)p->mean[r];
        for (int64_t i = 0; i < s.width; i++) {
            double g = value_of(p->dy, dtype, r * s.width + i) * value_of(p->w, w_dtype, i);
            g_mean += g / (double)s.width;
            g_n_mean +=
                g * (value_of(p->x, dtype, r * s.width + i) - mean) * rstd / (double)s.width;
        }
        for (int64_t i = 0; i < s.width; i++) {
            double g = value_of(p->dy, dtype, r * s.width + i) * value_of(p->w, w_dtype, i);
            double n = (value_of(p->x, dtype, r * s.width + i) - mean) * rstd;
            double want = rstd * (g - g_mean - n * g_n_mean);
            ASSERT_NEAR(value_of(p->dx, dtype, r * s.width + i), want,
                        rounding_of(dtype) * fabs(want) + 2e-6 * rstd + floor_of(dtype));
        }
    }
}

/* Compares dw, or dbias, of column i. */
static void check_layer_sum(fsdp_test *t, const layer_operands *p, shape s, fsdp_dtype dtype,
                            fsdp_dtype w_dtype, float beta, bool dw, int64_t i)
{
    double want = beta != 0.0f ? value_of(p->old, w_dtype, i) : 0.0, size = fabs(want);
    for (int64_t r = 0; r < s.rows; r++) {
        double term = value_of(p->dy, dtype, r * s.width + i);
        if (dw)
            term *=
                (value_of(p->x, dtype, r * s.width + i) - (double)p->mean[r]) * (double)p->rstd[r];
        want += term;
        size += fabs(term);
    }
    ASSERT_NEAR(value_of(dw ? p->dw : p->dbias, w_dtype, i), want,
                rounding_of(w_dtype) * fabs(want) + 4e-7 * size + floor_of(w_dtype));
}

static void check_layer_backward(fsdp_test *t, const variants *v, shape s, fsdp_dtype dtype,
                                 fsdp_dtype w_dtype, float beta)
{
    operands o = {.n = 0};
    int64_t n = s.rows * s.width;
    size_t bytes = (size_t)n * fsdp_dtype_size(dtype);
    size_t w_bytes = (size_t)s.width * fsdp_dtype_size(w_dtype);
    layer_operands p = {.x = operand(&o, dtype, n),
                        .dy = operand(&o, dtype, n),
                        .w = operand(&o, w_dtype, s.width),
                        .old = operand(&o, w_dtype, s.width),
                        .mean = operand(&o, FSDP_DTYPE_F32, s.rows),
                        .rstd = operand(&o, FSDP_DTYPE_F32, s.rows),
                        .dx = operand(&o, dtype, n),
                        .dw = operand(&o, w_dtype, s.width),
                        .dbias = operand(&o, w_dtype, s.width)};
    layer_operands first = p;
    first.dx = operand(&o, dtype, n);
    first.dw = operand(&o, w_dtype, s.width);
    first.dbias = operand(&o, w_dtype, s.width);
    fill_uniform(p.x, dtype, n, 1, -3.0, 3.0);
    fill_uniform(p.dy, dtype, n, 5, -1.0, 1.0);
    fill_uniform(p.w, w_dtype, s.width, 2, 0.5, 1.5);
    if (beta != 0.0f) /* otherwise it stays NaN, which must not be read */
        fill_uniform(p.old, w_dtype, s.width, 3, -1.0, 1.0);
    for (int64_t r = 0; r < s.rows; r++) {
        moments m = moments_of(p.x, dtype, r * s.width, s.width, 1e-5);
        p.mean[r] = (float)m.mean;
        p.rstd[r] = (float)m.rstd;
    }
    run_layer_backward(&v->at[0], &first, s, dtype, w_dtype, beta, 7);
    /* Every variant gives the same bits, for each gradient also without the others. */
    for (int j = 0; j < v->n; j++)
        for (int want = 1; want <= 7; want++) {
            run_layer_backward(&v->at[j], &p, s, dtype, w_dtype, beta, want);
            ASSERT(!(want & 1) || memcmp(p.dx, first.dx, bytes) == 0);
            ASSERT(memcmp(p.dw, want & 2 ? first.dw : p.old, w_bytes) == 0);
            ASSERT(memcmp(p.dbias, want & 4 ? first.dbias : p.old, w_bytes) == 0);
        }
    check_layer_dx(t, &first, s, dtype, w_dtype);
    for (int64_t i = 0; i < s.width && !t->failed; i++) {
        check_layer_sum(t, &first, s, dtype, w_dtype, beta, true, i);
        check_layer_sum(t, &first, s, dtype, w_dtype, beta, false, i);
    }
    ASSERT(operands_close(&o));
}

TEST(layer_norm_backward_equals_the_naive_loop)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int s = 0; s < N_SHAPES; s++)
        for (int d = 0; d < 3; d++)
            for (int beta = 0; beta < 2; beta++) {
                if (shapes[s].width == 1) /* rstd would depend on eps alone */
                    continue;
                check_layer_backward(t, &v, shapes[s], float_dtypes[d], FSDP_DTYPE_F32,
                                     (float)beta);
                CHECK_HERE();
                check_layer_backward(t, &v, shapes[s], float_dtypes[d], float_dtypes[d],
                                     (float)beta);
                CHECK_HERE();
            }
    variants_close(&v);
}

/* --- column_sum --- */

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
