/* adamw and sgd against the formulas in double; copies, tails and variants. */
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
        v->at[j].k->adamw(v->at[j].c, &args);
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
                                         .grad_scale = 0.5f});
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
