/* adamw, sgd, adafactor and clamp against the formulas in double; copies, partial blocks and
 * variants. */
#include "tests/kernels/operands.h"

typedef struct adam_case {
    double beta1, beta2, weight_decay;
    bool decoupled;
    int64_t step;
} adam_case;

/* beta1 of 0.3 takes the other branch of torch.lerp. */
static const adam_case adam_cases[] = {
    {0.9, 0.999, 0.01, true, 1},
    {0.9, 0.999, 0.01, true, 1000000},
    {0.3, 0.95, 0.0, false, 7},
    {0.0, 0.5, 0.2, false, 2},
};

static void check_adam(fsdp_test *t, const variants *v, adam_case a, fsdp_dtype copy_dtype,
                       int64_t n)
{
    operands o = {.n = 0};
    size_t bytes = (size_t)n * sizeof(float);
    float *start[3], *x[3], *first[3], *grad = operand(&o, FSDP_DTYPE_F32, n);
    void *copy = operand(&o, copy_dtype, n);
    for (int k = 0; k < 3; k++) {
        start[k] = operand(&o, FSDP_DTYPE_F32, n);
        first[k] = operand(&o, FSDP_DTYPE_F32, n);
        x[k] = operand(&o, FSDP_DTYPE_F32, n);
        fill_uniform(start[k], FSDP_DTYPE_F32, n, (uint64_t)k, k == 2 ? 0.0 : -1.0, 1.0);
    }
    fill_uniform(grad, FSDP_DTYPE_F32, n, 4, -2.0, 2.0);
    fsdp_adamw_args args = {.n = n,
                            .grad = grad,
                            .copy_dtype = copy_dtype,
                            .lr = 0.01,
                            .beta1 = a.beta1,
                            .beta2 = a.beta2,
                            .eps = 1e-8,
                            .weight_decay = a.weight_decay,
                            .decoupled = a.decoupled,
                            .step = a.step,
                            .grad_scale = 0.25f};
    for (int j = 0; j < v->n; j++) {
        float **to = j ? x : first;
        for (int k = 0; k < 3; k++)
            memcpy(to[k], start[k], bytes);
        args.param = to[0];
        args.exp_avg = to[1];
        args.exp_avg_sq = to[2];
        args.copy = j % 2 ? NULL : copy;
        v->at[j].k->adamw(v->at[j].c, &args, 1, NULL);
        for (int k = 0; j && k < 3; k++)
            ASSERT(memcmp(x[k], first[k], bytes) == 0);
    }
    for (int64_t i = 0; i < n; i++) {
        double p = (double)start[0][i], g = (double)grad[i] * 0.25;
        if (a.decoupled)
            p *= 1.0 - 0.01 * a.weight_decay;
        else
            g += a.weight_decay * p;
        double m = a.beta1 * (double)start[1][i] + (1.0 - a.beta1) * g;
        double s = a.beta2 * (double)start[2][i] + (1.0 - a.beta2) * g * g;
        double step = 0.01 / (1.0 - pow(a.beta1, (double)a.step));
        p -= step * m / (sqrt(s) / sqrt(1.0 - pow(a.beta2, (double)a.step)) + 1e-8);
        ASSERT_NEAR(first[0][i], p, 1e-6);
        ASSERT_NEAR(first[1][i], m, 3e-7);
        ASSERT_NEAR(first[2][i], s, 3e-7);
        double rounded[1];
        set_value(rounded, copy_dtype, 0, (double)first[0][i]);
        ASSERT_F32(value_of(copy, copy_dtype, i), value_of(rounded, copy_dtype, 0));
    }
    ASSERT(operands_close(&o));
}

TEST(adamw_equals_the_formula_in_every_variant)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (size_t a = 0; a < sizeof adam_cases / sizeof *adam_cases; a++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int d = 0; d < 3; d++) {
                check_adam(t, &v, adam_cases[a], float_dtypes[d], sizes[s]);
                CHECK_HERE();
            }
    variants_close(&v);
}

/* --- schedule_free --- */

/* Arrays of one parameter. */
typedef struct free_arrays {
    float *y, *z, *v, *kept;
} free_arrays;

static void take_schedule_free(const variant *v, const free_arrays *x, const float *grad, int64_t n,
                               double average, bool first, void *copy)
{
    const fsdp_schedule_free_args args = {.n = n,
                                          .param = x->y,
                                          .copy = copy,
                                          .copy_dtype = FSDP_DTYPE_BF16,
                                          .z = x->z,
                                          .exp_avg_sq = x->v,
                                          .grad = grad,
                                          .lr = 0.01,
                                          .beta1 = 0.9,
                                          .beta2 = 0.99,
                                          .eps = 1e-8,
                                          .weight_decay = 0.1,
                                          .average = average,
                                          .step = 3,
                                          .first = first,
                                          .grad_scale = 0.25f};
    v->k->schedule_free(v->c, &args, 1, NULL);
}

/* A step of every variant gives the numbers of the formula, and all variants the same bits. */
static void check_schedule_free(fsdp_test *t, const variants *v, int64_t n, double average,
                                bool first)
{
    operands o = {.n = 0};
    const size_t bytes = (size_t)n * sizeof(float);
    float *start[3], *x[2][3], *grad = operand(&o, FSDP_DTYPE_F32, n);
    uint16_t *copy = operand(&o, FSDP_DTYPE_BF16, n);
    for (int k = 0; k < 3; k++) {
        start[k] = operand(&o, FSDP_DTYPE_F32, n);
        for (int j = 0; j < 2; j++)
            x[j][k] = operand(&o, FSDP_DTYPE_F32, n);
        fill_uniform(start[k], FSDP_DTYPE_F32, n, (uint64_t)k, k == 2 ? 0.0 : -1.0, 1.0);
    }
    fill_uniform(grad, FSDP_DTYPE_F32, n, 4, -2.0, 2.0);
    for (int j = 0; j < v->n; j++) {
        const int to = j != 0;
        for (int k = 0; k < 3; k++)
            memcpy(x[to][k], start[k], bytes);
        take_schedule_free(&v->at[j], &(free_arrays){x[to][0], x[to][1], x[to][2], NULL}, grad, n,
                           average, first, j ? NULL : copy);
        for (int k = 0; j && k < 3; k++)
            ASSERT(memcmp(x[1][k], x[0][k], bytes) == 0);
    }
    for (int64_t i = 0; i < n; i++) {
        const double y = (double)start[0][i], z = first ? y : (double)start[1][i];
        const double g = (double)grad[i] * 0.25;
        const double s = 0.99 * (double)start[2][i] + 0.01 * g * g;
        const double u = g / (sqrt(s / (1.0 - pow(0.99, 3.0))) + 1e-8) + 0.1 * y;
        ASSERT_NEAR(x[0][0][i], y + average * (z - y) + 0.01 * (0.9 * (1.0 - average) - 1.0) * u,
                    1e-6);
        ASSERT_NEAR(x[0][1][i], z - 0.01 * u, 1e-6);
        ASSERT_NEAR(x[0][2][i], s, 3e-7);
        ASSERT_INT(copy[i], fsdp_bf16_from_f32(x[0][0][i]));
    }
    ASSERT(operands_close(&o));
}

TEST(schedule_free_equals_the_formula_in_every_variant)
{
    static const double averages[] = {0.0, 0.3, 0.8, 1.0};
    variants v = variants_open(t);
    CHECK_HERE();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int a = 0; a < 8; a++) {
            check_schedule_free(t, &v, sizes[s], averages[a / 2], a % 2);
            CHECK_HERE();
        }
    variants_close(&v);
}

/* One tensor with moments of bfloat16, and the same with moments of float32 that begin with the
 * same values. */
static void check_rounded_moments(fsdp_test *t, const variant *v, adam_case a, int64_t n)
{
    operands o = {.n = 0};
    float *grad = operand(&o, FSDP_DTYPE_F32, n), *p[2], *wide[2];
    uint16_t *rounded[2];
    fill_uniform(grad, FSDP_DTYPE_F32, n, 4, -2.0, 2.0);
    for (int k = 0; k < 2; k++) {
        p[k] = operand(&o, FSDP_DTYPE_F32, n);
        wide[k] = operand(&o, FSDP_DTYPE_F32, n);
        rounded[k] = operand(&o, FSDP_DTYPE_BF16, n);
        fill_uniform(p[k], FSDP_DTYPE_F32, n, 5, -1.0, 1.0);
        fill_uniform(rounded[k], FSDP_DTYPE_BF16, n, (uint64_t)k, k ? 0.0 : -1.0, 1.0);
        for (int64_t i = 0; i < n; i++)
            wide[k][i] = fsdp_f32_from_bf16(rounded[k][i]);
    }
    for (int k = 0; k < 2; k++) {
        const fsdp_adamw_args args = {.n = n,
                                      .param = p[k],
                                      .exp_avg = k ? (void *)rounded[0] : (void *)wide[0],
                                      .exp_avg_sq = k ? (void *)rounded[1] : (void *)wide[1],
                                      .state_dtype = k ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32,
                                      .grad = grad,
                                      .lr = 0.01,
                                      .beta1 = a.beta1,
                                      .beta2 = a.beta2,
                                      .eps = 1e-8,
                                      .weight_decay = a.weight_decay,
                                      .decoupled = a.decoupled,
                                      .step = a.step,
                                      .grad_scale = 0.25f};
        v->k->adamw(v->c, &args, 1, NULL);
    }
    ASSERT(memcmp(p[0], p[1], (size_t)n * sizeof *p[0]) == 0);
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < n; i++)
            ASSERT_INT(rounded[k][i], fsdp_bf16_from_f32(wide[k][i]));
    ASSERT(operands_close(&o));
}

TEST(moments_in_bfloat16_are_those_of_float32_rounded)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (size_t a = 0; a < sizeof adam_cases / sizeof *adam_cases; a++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int j = 0; j < v.n; j++) {
                check_rounded_moments(t, &v.at[j], adam_cases[a], sizes[s]);
                CHECK_HERE();
            }
    variants_close(&v);
}

static void check_sgd(fsdp_test *t, const variants *v, double momentum, double dampening,
                      bool nesterov, bool is_first, int64_t n)
{
    operands o = {.n = 0};
    size_t bytes = (size_t)n * sizeof(float);
    float *start = operand(&o, FSDP_DTYPE_F32, n), *old = operand(&o, FSDP_DTYPE_F32, n);
    float *grad = operand(&o, FSDP_DTYPE_F32, n), *p = operand(&o, FSDP_DTYPE_F32, n);
    float *first = operand(&o, FSDP_DTYPE_F32, n), *buffer = operand(&o, FSDP_DTYPE_F32, n);
    uint16_t *copy = operand(&o, FSDP_DTYPE_BF16, n);
    fill_uniform(start, FSDP_DTYPE_F32, n, 1, -1.0, 1.0);
    fill_uniform(grad, FSDP_DTYPE_F32, n, 2, -2.0, 2.0);
    if (!is_first)
        fill_uniform(old, FSDP_DTYPE_F32, n, 3, -1.0, 1.0);
    for (int j = 0; j < v->n; j++) {
        float *to = j ? p : first;
        memcpy(to, start, bytes);
        memcpy(buffer, old, bytes);
        v->at[j].k->sgd(v->at[j].c,
                        &(fsdp_sgd_args){.n = n,
                                         .param = to,
                                         .momentum_buffer = momentum != 0.0 ? buffer : NULL,
                                         .grad = grad,
                                         .copy = copy,
                                         .copy_dtype = FSDP_DTYPE_BF16,
                                         .lr = 0.1,
                                         .momentum = momentum,
                                         .dampening = dampening,
                                         .weight_decay = 0.05,
                                         .nesterov = nesterov,
                                         .first = is_first,
                                         .grad_scale = 0.5f},
                        1, NULL);
        ASSERT(j == 0 || memcmp(p, first, bytes) == 0);
    }
    for (int64_t i = 0; i < n; i++) {
        double g = 0.5 * (double)grad[i] + 0.05 * (double)start[i];
        double b = is_first ? g : momentum * (double)old[i] + (1.0 - dampening) * g;
        double step = momentum == 0.0 ? g : nesterov ? g + momentum * b : b;
        ASSERT_NEAR(first[i], (double)start[i] - 0.1 * step, 3e-7);
        if (momentum != 0.0)
            ASSERT_NEAR(buffer[i], b, 3e-7);
        ASSERT_INT(copy[i], fsdp_bf16_from_f32(first[i]));
    }
    ASSERT(operands_close(&o));
}

TEST(sgd_equals_the_formula_in_every_variant)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int first = 0; first < 2; first++) {
            check_sgd(t, &v, 0.0, 0.0, false, first, sizes[s]);
            CHECK_HERE();
            check_sgd(t, &v, 0.9, 0.25, false, first, sizes[s]);
            CHECK_HERE();
            check_sgd(t, &v, 0.9, 0.0, true, first, sizes[s]);
            CHECK_HERE();
        }
    variants_close(&v);
}

/* --- where the parameter is, several tensors, a factor on the device --- */

enum {
    N_STATES = 2
};

/* The arrays of a tensor in both optimizers; SGD uses state[0]. */
typedef struct tensor {
    float *param, *state[N_STATES], *grad;
    uint16_t *copy;
} tensor;

static tensor make_tensor(operands *o, int64_t n, uint64_t seed)
{
    tensor x = {.param = operand(o, FSDP_DTYPE_F32, n), .grad = operand(o, FSDP_DTYPE_F32, n)};
    x.copy = operand(o, FSDP_DTYPE_BF16, n);
    fill_uniform(x.copy, FSDP_DTYPE_BF16, n, seed, -1.0, 1.0);
    fill_uniform(x.grad, FSDP_DTYPE_F32, n, seed + 1, -2.0, 2.0);
    for (int64_t i = 0; i < n; i++)
        x.param[i] = fsdp_f32_from_bf16(x.copy[i]);
    for (int k = 0; k < N_STATES; k++) {
        x.state[k] = operand(o, FSDP_DTYPE_F32, n);
        fill_uniform(x.state[k], FSDP_DTYPE_F32, n, seed + 2 + (uint64_t)k, 0.0, 1.0);
    }
    return x;
}

/* A step of n tensors, all with `elements` elements. The parameters are in `param` or, if
 * `in_copy`, in `copy`. */
static void step_all(const variant *v, bool adam, const tensor *x, size_t n, int64_t elements,
                     bool in_copy, float grad_scale, const fsdp_clip_result *clip)
{
    fsdp_adamw_args a[3];
    fsdp_sgd_args s[3];
    for (size_t i = 0; i < n; i++) {
        float *param = in_copy ? NULL : x[i].param;
        a[i] = (fsdp_adamw_args){.n = elements,
                                 .param = param,
                                 .exp_avg = x[i].state[0],
                                 .exp_avg_sq = x[i].state[1],
                                 .grad = x[i].grad,
                                 .copy = x[i].copy,
                                 .copy_dtype = FSDP_DTYPE_BF16,
                                 .lr = 0.01 * (double)(i + 1),
                                 .beta1 = 0.9,
                                 .beta2 = 0.99,
                                 .eps = 1e-8,
                                 .step = 3,
                                 .grad_scale = grad_scale};
        s[i] = (fsdp_sgd_args){.n = elements,
                               .param = param,
                               .momentum_buffer = x[i].state[0],
                               .grad = x[i].grad,
                               .copy = x[i].copy,
                               .copy_dtype = FSDP_DTYPE_BF16,
                               .lr = 0.01 * (double)(i + 1),
                               .momentum = 0.9,
                               .grad_scale = grad_scale};
    }
    if (adam)
        v->k->adamw(v->c, a, n, clip);
    else
        v->k->sgd(v->c, s, n, clip);
}

/* A parameter in `copy` is widened, updated and rounded. */
static void check_in_copy(fsdp_test *t, const variant *v, bool adam, int64_t n)
{
    operands o = {.n = 0};
    const tensor want = make_tensor(&o, n, 1), got = make_tensor(&o, n, 1);
    step_all(v, adam, &want, 1, n, false, 0.5f, NULL);
    step_all(v, adam, &got, 1, n, true, 0.5f, NULL);
    ASSERT(memcmp(want.copy, got.copy, (size_t)n * sizeof *want.copy) == 0);
    for (int k = 0; k < N_STATES; k++)
        ASSERT(memcmp(want.state[k], got.state[k], (size_t)n * sizeof(float)) == 0);
    ASSERT(operands_close(&o));
}

TEST(a_parameter_may_be_its_copy)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int j = 0; j < v.n; j++)
            for (int adam = 0; adam < 2; adam++) {
                check_in_copy(t, &v.at[j], adam, sizes[s]);
                CHECK_HERE();
            }
    variants_close(&v);
}

/* Three tensors in one call equal three calls; the factor of `clip` replaces grad_scale. */
static void check_several(fsdp_test *t, const variant *v, bool adam, int64_t n)
{
    const fsdp_clip_result clip = {.scale = 0.5f}, refused = {.scale = 0.5f, .refused = 1};
    operands o = {.n = 0};
    tensor want[3], got[3];
    for (size_t i = 0; i < 3; i++) {
        want[i] = make_tensor(&o, n, 10 * i);
        got[i] = make_tensor(&o, n, 10 * i);
    }
    step_all(v, adam, got, 3, n, false, 7.0f, &refused);
    for (size_t i = 0; i < 3; i++)
        ASSERT(memcmp(want[i].param, got[i].param, (size_t)n * sizeof(float)) == 0);
    step_all(v, adam, got, 3, n, false, 7.0f, &clip);
    step_all(v, adam, want, 3, n, false, 0.5f, NULL);
    for (size_t i = 0; i < 3; i++)
        ASSERT(memcmp(want[i].param, got[i].param, (size_t)n * sizeof(float)) == 0);
    ASSERT(operands_close(&o));
}

TEST(several_tensors_are_updated_by_a_factor_in_memory)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (int adam = 0; adam < 2; adam++) {
            check_several(t, &v.at[j], adam, 300);
            CHECK_HERE();
        }
    variants_close(&v);
}

TEST(clamp_limits_elements_and_keeps_nan)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int j = 0; j < v.n; j++) {
            operands o = {.n = 0};
            int64_t n = sizes[s];
            float *x = operand(&o, FSDP_DTYPE_F32, n);
            for (int64_t i = 0; i < n; i++)
                x[i] = i % 5 == 4 ? NAN : (float)(i % 5 - 2);
            v.at[j].k->clamp(v.at[j].c, x, 1.5f, n);
            for (int64_t i = 0; i < n; i++)
                if (i % 5 == 4)
                    ASSERT(isnan(x[i]));
                else
                    ASSERT_F32(x[i], fmax(-1.5, fmin(1.5, (double)(i % 5 - 2))));
            ASSERT(operands_close(&o));
        }
    variants_close(&v);
}

/* --- adafactor --- */

static const int64_t matrices[][2] = {{0, 5},  {1, 1},   {3, 17},    {17, 3},   {33, 1},
                                      {7, 64}, {64, 65}, {100, 257}, {300, 700}};

/* s of element i, rounded as the kernels round it. */
static double square_at(const float *grad, int64_t i)
{
    float g = grad[i] * 0.5f;
    return (double)(g * g + 1e-3f);
}

/* Neighbors are added; an odd last one moves up. */
static double tree_of(double *level, int64_t n)
{
    while (n > 1) {
        for (int64_t i = 0; i < n / 2; i++)
            level[i] = level[2 * i] + level[2 * i + 1];
        if (n % 2)
            level[n / 2] = level[n - 1];
        n = (n + 1) / 2;
    }
    return n ? level[0] : 0.0;
}

static void check_square_sums(fsdp_test *t, const variants *v, int64_t rows, int64_t cols)
{
    operands o = {.n = 0};
    float *grad = operand(&o, FSDP_DTYPE_F32, rows * cols);
    double *sums = operand(&o, FSDP_DTYPE_F64, rows), *first = operand(&o, FSDP_DTYPE_F64, rows);
    double *columns = operand(&o, FSDP_DTYPE_F64, cols);
    double *level = operand(&o, FSDP_DTYPE_F64, rows);
    fill_uniform(grad, FSDP_DTYPE_F32, rows * cols, 1, -2.0, 2.0);
    for (int k = 0; k < v->n; k++) {
        const variant *at = &v->at[k];
        at->k->square_row_sums(at->c, k ? sums : first, grad, rows, cols, 0.5f, 1e-3f);
        ASSERT(k == 0 || memcmp(sums, first, (size_t)rows * sizeof *sums) == 0);
        at->k->square_column_sums(at->c, columns, grad, rows, cols, 0.5f, 1e-3f);
        for (int64_t j = 0; j < cols; j++) {
            for (int64_t i = 0; i < rows; i++)
                level[i] = square_at(grad, i * cols + j);
            ASSERT_F32(columns[j], tree_of(level, rows));
        }
    }
    for (int64_t i = 0; i < rows; i++) {
        double want = 0.0;
        for (int64_t j = 0; j < cols; j++)
            want += square_at(grad, i * cols + j);
        ASSERT_NEAR(first[i], want, 1e-13 * want);
    }
    ASSERT(operands_close(&o));
}

/* Sums are over whole rows, and over columns as a tree, because ranks have some of the rows. */
TEST(square_sums_are_in_double_and_columns_a_tree_over_rows)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (size_t s = 0; s < sizeof matrices / sizeof *matrices; s++) {
        check_square_sums(t, &v, matrices[s][0], matrices[s][1]);
        CHECK_HERE();
    }
    variants_close(&v);
}

static void check_adafactor(fsdp_test *t, const variants *v, fsdp_dtype dtype, bool momentum,
                            int64_t rows, int64_t cols)
{
    operands o = {.n = 0};
    int64_t n = rows * cols;
    size_t bytes = (size_t)n * fsdp_dtype_size(dtype), f32_bytes = (size_t)n * sizeof(float);
    float *grad = operand(&o, FSDP_DTYPE_F32, n), *row = operand(&o, FSDP_DTYPE_F32, rows);
    float *col = operand(&o, FSDP_DTYPE_F32, cols), *old = operand(&o, FSDP_DTYPE_F32, n);
    float *exp_avg = operand(&o, FSDP_DTYPE_F32, n);
    void *start = operand(&o, dtype, n), *param = operand(&o, dtype, n);
    void *first = operand(&o, dtype, n);
    double *sums = operand(&o, FSDP_DTYPE_F64, rows);
    double *first_sums = operand(&o, FSDP_DTYPE_F64, rows);
    fill_uniform(grad, FSDP_DTYPE_F32, n, 1, -2.0, 2.0);
    fill_uniform(row, FSDP_DTYPE_F32, rows, 2, 0.5, 2.0);
    fill_uniform(col, FSDP_DTYPE_F32, cols, 3, 0.5, 2.0);
    fill_uniform(old, FSDP_DTYPE_F32, n, 4, -1.0, 1.0);
    fill_uniform(start, dtype, n, 5, -1.0, 1.0);
    fsdp_adafactor_args args = {.rows = rows,
                                .cols = cols,
                                .grad = grad,
                                .row_factor = row,
                                .col_factor = col,
                                .grad_scale = 0.5f,
                                .param_dtype = dtype,
                                .exp_avg = momentum ? exp_avg : NULL,
                                .divisor = 1.25f,
                                .lr = 0.1,
                                .beta1 = momentum ? 0.9 : 0.0,
                                .weight_decay = 0.05};
    for (int k = 0; k < v->n; k++) {
        const variant *at = &v->at[k];
        args.param = k ? param : first;
        memcpy(args.param, start, bytes);
        memcpy(exp_avg, old, f32_bytes);
        at->k->adafactor_square_sums(at->c, k ? sums : first_sums, &args);
        at->k->adafactor(at->c, &args);
        ASSERT(k == 0 || memcmp(param, first, bytes) == 0);
        ASSERT(k == 0 || memcmp(sums, first_sums, (size_t)rows * sizeof *sums) == 0);
    }
    for (int64_t i = 0; i < rows; i++) {
        double squares = 0.0;
        for (int64_t j = 0; j < cols; j++) {
            int64_t e = i * cols + j;
            double u = (double)row[i] * (double)col[j] * (double)grad[e] * 0.5;
            double p = value_of(start, dtype, e), m = u / 1.25 * 0.1;
            squares += u * u;
            if (momentum) {
                m = 0.9 * (double)old[e] + 0.1 * m;
                ASSERT_NEAR(exp_avg[e], m, 3e-7);
            }
            p = p * (1.0 - 0.1 * 0.05) - m;
            ASSERT_NEAR(value_of(first, dtype, e), p, 3e-7 + rounding_of(dtype) * fabs(p));
        }
        ASSERT_NEAR(first_sums[i], squares, 1e-6 * squares);
    }
    ASSERT(operands_close(&o));
}

TEST(adafactor_equals_the_formula_in_every_variant)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (size_t s = 0; s < sizeof matrices / sizeof *matrices; s++)
        for (int d = 0; d < 3; d++)
            for (int momentum = 0; momentum < 2; momentum++) {
                check_adafactor(t, &v, float_dtypes[d], momentum, matrices[s][0], matrices[s][1]);
                CHECK_HERE();
            }
    variants_close(&v);
}

TEST(moving_average_and_rsqrt_equal_the_formulas)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (size_t s = 0; s < 10; s++)
        for (int k = 0; k < v.n; k++) {
            operands o = {.n = 0};
            int64_t n = sizes[s];
            float *x = operand(&o, FSDP_DTYPE_F32, n), *out = operand(&o, FSDP_DTYPE_F32, n);
            float *old = operand(&o, FSDP_DTYPE_F32, n);
            double *sums = operand(&o, FSDP_DTYPE_F64, n);
            fill_uniform(old, FSDP_DTYPE_F32, n, 1, 0.5, 2.0);
            memcpy(x, old, (size_t)n * sizeof *x);
            for (int64_t i = 0; i < n; i++)
                sums[i] = 10.0 * uniform_of(2, i);
            v.at[k].k->moving_average(v.at[k].c, x, sums, 7.0, 0.75, n);
            v.at[k].k->rsqrt(v.at[k].c, out, old, 3.0f, n);
            for (int64_t i = 0; i < n; i++) {
                ASSERT_NEAR(x[i], 0.75 * (double)old[i] + 0.25 * sums[i] / 7.0, 3e-7);
                ASSERT_NEAR(out[i], 1.0 / sqrt((double)old[i] / 3.0), 4e-7);
            }
            ASSERT(operands_close(&o));
        }
    variants_close(&v);
}
