/* Element-wise kernels against a naive loop in double, for every ISA, dtype and thread count. */
#include "tests/kernels/operands.h"

static const fsdp_activation activations[] = {
    FSDP_ACTIVATION_NONE,     FSDP_ACTIVATION_RELU, FSDP_ACTIVATION_GELU_TANH,
    FSDP_ACTIVATION_GELU_ERF, FSDP_ACTIVATION_SILU, FSDP_ACTIVATION_TANH,
};

static double activation_of(fsdp_activation a, double x)
{
    switch (a) {
    case FSDP_ACTIVATION_RELU:
        return x > 0.0 ? x : 0.0;
    case FSDP_ACTIVATION_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case FSDP_ACTIVATION_GELU_ERF:
        return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    case FSDP_ACTIVATION_SILU:
        return x / (1.0 + exp(-x));
    case FSDP_ACTIVATION_TANH:
        return tanh(x);
    default:
        return x;
    }
}

/* By central differences; the slope of relu at 0 is 0 by convention. */
static double slope_of(fsdp_activation a, double x)
{
    double h = 1e-5;
    if (a == FSDP_ACTIVATION_RELU)
        return x > 0.0 ? 1.0 : 0.0;
    return (activation_of(a, x + h) - activation_of(a, x - h)) / (2.0 * h);
}

typedef enum op {
    ADD,
    MUL,
    SCALE,
    ACTIVATION,
    ACTIVATION_BACKWARD,
    GATED,
    GATED_BACKWARD,
    OP_COUNT
} op;
static const char *const op_names[] = {
    "add", "mul", "scale", "activation", "activation_backward", "gated", "gated_backward"};

typedef struct args {
    op op;
    fsdp_activation a;
    fsdp_dtype dtype;
    int64_t n;
    const void *x, *y, *z;
    void *out, *out_2;
} args;

static void call_operation(const variant *v, const args *g)
{
    const fsdp_kernels *k = v->k;
    switch (g->op) {
    case ADD:
        k->add(v->c, g->out, g->x, g->y, g->dtype, g->n);
        break;
    case MUL:
        k->mul(v->c, g->out, g->x, g->y, g->dtype, g->n);
        break;
    case SCALE:
        k->scale(v->c, g->out, g->x, 0.3f, g->dtype, g->n);
        break;
    case ACTIVATION:
        k->activation(v->c, g->a, g->out, g->x, g->dtype, g->n);
        break;
    case ACTIVATION_BACKWARD:
        k->activation_backward(v->c, g->a, g->out, g->x, g->y, g->dtype, g->n);
        break;
    case GATED:
        k->gated(v->c, g->a, g->out, g->x, g->y, g->dtype, g->n);
        break;
    default:
        k->gated_backward(v->c, g->a, g->out, g->out_2, g->x, g->y, g->z, g->dtype, g->n);
    }
}

/* The expected outputs of element i; `second` only for gated_backward. */
static double expected(const args *g, int64_t i, double *second)
{
    double x = value_of(g->x, g->dtype, i), y = value_of(g->y, g->dtype, i);
    double z = value_of(g->z, g->dtype, i);
    *second = 0.0;
    switch (g->op) {
    case ADD:
        return x + y;
    case MUL:
        return x * y;
    case SCALE:
        return x * (double)0.3f;
    case ACTIVATION:
        return activation_of(g->a, x);
    case ACTIVATION_BACKWARD:
        return x * slope_of(g->a, y);
    case GATED:
        return activation_of(g->a, x) * y;
    default:
        *second = x * activation_of(g->a, y);
        return x * slope_of(g->a, y) * z;
    }
}

/* Compares g's outputs with the naive loop. */
static void check_values(fsdp_test *t, const args *g)
{
    double tolerance = rounding_of(g->dtype) + (g->op < ACTIVATION ? 0.0 : 0x1p-20);
    /* The errors of the activation and its derivative are multiplied by factors of up to 4 each. */
    double scale = g->op == GATED_BACKWARD ? 16.0 : g->op >= ACTIVATION_BACKWARD ? 4.0 : 1.0;
    double room = (g->op >= ACTIVATION ? 0x1p-21 * scale : 0.0) + floor_of(g->dtype);
    for (int64_t i = 0; i < g->n; i++) {
        double second, want = expected(g, i, &second);
        double got = value_of(g->out, g->dtype, i), got_2 = value_of(g->out_2, g->dtype, i);
        if (!(fabs(got - want) <= tolerance * fabs(want) + room))
            FAIL("%s of %d, %s, element %lld of %lld: %.9g, not %.9g", op_names[g->op], (int)g->a,
                 fsdp_dtype_name(g->dtype), (long long)i, (long long)g->n, got, want);
        if (g->op == GATED_BACKWARD && !(fabs(got_2 - second) <= tolerance * fabs(second) + room))
            FAIL("d_up of %d, %s, element %lld of %lld: %.9g, not %.9g", (int)g->a,
                 fsdp_dtype_name(g->dtype), (long long)i, (long long)g->n, got_2, second);
    }
}

/* Runs every variant: the first of an ISA against the naive loop, the others against its bits.
 * Operations of one IEEE operation per element have the same bits on every ISA. Then runs once more
 * with the output over the first input. */
static void check_operation(fsdp_test *t, const variants *v, op o, fsdp_activation a,
                            fsdp_dtype dtype, int64_t n)
{
    operands p = {.n = 0};
    size_t bytes = (size_t)n * fsdp_dtype_size(dtype);
    void *x = operand(&p, dtype, n), *y = operand(&p, dtype, n), *z = operand(&p, dtype, n);
    void *out = operand(&p, dtype, n), *out_2 = operand(&p, dtype, n);
    void *first = operand(&p, dtype, n), *first_2 = operand(&p, dtype, n);
    fill_uniform(x, dtype, n, 1, -4.0, 4.0);
    fill_uniform(y, dtype, n, 2, -4.0, 4.0);
    fill_uniform(z, dtype, n, 3, -4.0, 4.0);
    args g = {o, a, dtype, n, x, y, z, first, first_2};
    for (int j = 0; j < v->n; j++) {
        bool begins = j == 0 || (o >= ACTIVATION && variants_begins_isa(v, j));
        g.out = begins ? first : out;
        g.out_2 = begins ? first_2 : out_2;
        call_operation(&v->at[j], &g);
        if (begins)
            check_values(t, &g);
        else if (memcmp(out, first, bytes) != 0 ||
                 (o == GATED_BACKWARD && memcmp(out_2, first_2, bytes) != 0))
            FAIL("%s of %d, %s, n %lld: %s with %d threads gives other bits", op_names[o], (int)a,
                 fsdp_dtype_name(dtype), (long long)n, v->at[j].k->name, v->at[j].threads);
        CHECK_HERE();
    }
    g.out = x;
    g.out_2 = z;
    call_operation(&v->at[v->n - 1], &g);
    ASSERT(memcmp(x, first, bytes) == 0);
    ASSERT(o != GATED_BACKWARD || memcmp(z, first_2, bytes) == 0);
    ASSERT(operands_close(&p));
}

TEST(operations_equal_the_naive_loop_in_every_variant)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int o = 0; o < OP_COUNT; o++)
        for (size_t d = 0; d < 3; d++)
            for (size_t a = 0; a < (o < ACTIVATION ? 1 : 6); a++)
                for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                    check_operation(t, &v, (op)o, activations[a], float_dtypes[d], sizes[s]);
                    CHECK_HERE();
                }
    variants_close(&v);
}

/* On a block of columns of wider rows, with outputs over its inputs, activated_backward gives the
 * bits of an activation (or a gated one) followed by its backward. */
TEST(activated_backward_has_the_bits_of_two_kernels)
{
    enum {
        ROWS = 37,
        LD = 700,
        FIRST = 30,
        COLUMNS = 600,
        N = ROWS * LD
    };
    variants v = variants_open(t);
    CHECK_HERE();
    for (int i = 0; i < v.n * 3 * 6 * 2; i++) {
        const variant *at = &v.at[i / 36];
        const fsdp_dtype dtype = float_dtypes[i / 12 % 3];
        const fsdp_activation a = activations[i / 2 % 6];
        const size_t size = fsdp_dtype_size(dtype);
        const bool gated = i % 2;
        operands o = {.n = 0};
        char *x = operand(&o, dtype, N), *up = operand(&o, dtype, N), *d = operand(&o, dtype, N);
        char *y = operand(&o, dtype, N), *dx = operand(&o, dtype, N);
        char *d_up = operand(&o, dtype, N), *hidden = operand(&o, dtype, ROWS * COLUMNS);
        fill_uniform(x, dtype, N, 1, -4.0, 4.0);
        fill_uniform(up, dtype, N, 2, -4.0, 4.0);
        fill_uniform(d, dtype, N, 3, -4.0, 4.0);
        if (gated) {
            at->k->gated(at->c, a, y, x, up, dtype, N);
            at->k->gated_backward(at->c, a, dx, d_up, d, x, up, dtype, N);
        } else {
            at->k->activation(at->c, a, y, x, dtype, N);
            at->k->activation_backward(at->c, a, dx, d, x, dtype, N);
        }
        const size_t row = LD * size, width = COLUMNS * size, first = FIRST * size;
        for (size_t r = 0; r < ROWS; r++) { /* columns outside the block must not change */
            memcpy(hidden + r * width, d + r * row + first, width);
            memcpy(dx + r * row, x + r * row, first);
            memcpy(dx + r * row + first + width, x + r * row + first + width, row - first - width);
        }
        at->k->activated_backward(at->c,
                                  &(fsdp_activated_backward_args){.activation = a,
                                                                  .factor = 1.0f,
                                                                  .dtype = dtype,
                                                                  .rows = ROWS,
                                                                  .columns = COLUMNS,
                                                                  .ld = LD,
                                                                  .x = x + first,
                                                                  .up = gated ? up + first : NULL,
                                                                  .dx = x + first,
                                                                  .d_up = gated ? up + first : NULL,
                                                                  .hidden = hidden});
        bool same = memcmp(x, dx, ROWS * row) == 0;
        for (size_t r = 0; r < ROWS; r++)
            same &= memcmp(hidden + r * width, y + r * row + first, width) == 0 &&
                    (!gated || memcmp(up + r * row + first, d_up + r * row + first, width) == 0);
        if (!same)
            FAIL("%s, activation %d, %s, %d threads: other bits", at->k->name, (int)a,
                 fsdp_dtype_name(dtype), at->threads);
        ASSERT(operands_close(&o));
    }
    variants_close(&v);
}

/* Special values give what the formulas say, and the derivative's limits are finite. */
TEST(activations_of_special_values)
{
    variants v = variants_open(t);
    CHECK_HERE();
    float x[8] = {NAN, INFINITY, 0.0f, 1e30f, -1e30f, 100.0f, -100.0f, -INFINITY};
    float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1}, y[8], dx[8];
    for (int j = 0; j < v.n; j++)
        for (size_t a = 1; a < 6; a++) {
            const variant *at = &v.at[j];
            bool saturates = activations[a] == FSDP_ACTIVATION_TANH;
            at->k->activation(at->c, activations[a], y, x, FSDP_DTYPE_F32, 8);
            at->k->activation_backward(at->c, activations[a], dx, ones, x, FSDP_DTYPE_F32, 8);
            ASSERT(isnan(y[0]));
            ASSERT(isnan(dx[0]) || activations[a] == FSDP_ACTIVATION_RELU);
            ASSERT_F32(y[1], saturates ? 1.0f : INFINITY);
            ASSERT_F32(y[2], 0.0f);
            ASSERT_F32(y[3], saturates ? 1.0f : 1e30f);
            ASSERT_NEAR(y[4], saturates ? -1.0f : 0.0f, 0.0);
            ASSERT_NEAR(y[6], saturates ? -1.0f : 0.0f, 1e-30);
            for (int i = 1; i < 8; i++)
                if (i != 2)
                    ASSERT_NEAR(dx[i], x[i] > 0 && !saturates ? 1.0f : 0.0f, 1e-30);
        }
    variants_close(&v);
}

/* Activations and their derivatives over a dense range in float32, on every ISA. Activations are
 * within a few units in the last place. Derivatives, whose terms may cancel, are within a few units
 * in the last place of 1. */
TEST(activations_over_a_dense_range)
{
    enum {
        N = 100000
    };
    variants v = variants_open(t);
    CHECK_HERE();
    operands o = {.n = 0};
    float *x = operand(&o, FSDP_DTYPE_F32, N), *y = operand(&o, FSDP_DTYPE_F32, N);
    float *ones = operand(&o, FSDP_DTYPE_F32, N), *slope = operand(&o, FSDP_DTYPE_F32, N);
    for (int i = 0; i < N; i++) {
        x[i] = (float)(-12.0 + 24.0 * i / N);
        ones[i] = 1.0f;
    }
    for (int j = 0; j < v.n; j++)
        for (size_t a = 0; variants_begins_isa(&v, j) && a < 6; a++) {
            const variant *at = &v.at[j];
            at->k->activation(at->c, activations[a], y, x, FSDP_DTYPE_F32, N);
            at->k->activation_backward(at->c, activations[a], slope, ones, x, FSDP_DTYPE_F32, N);
            for (int i = 0; i < N; i++) {
                double want = activation_of(activations[a], (double)x[i]);
                if (!(fabs((double)y[i] - want) <=
                      0x1p-22 * fabs(want) + 0x1p-24 * fabs((double)x[i])))
                    FAIL("%s: activation %zu of %.9g is %.9g, not %.9g", at->k->name, a,
                         (double)x[i], (double)y[i], want);
                want = slope_of(activations[a], (double)x[i]);
                if (!(fabs((double)slope[i] - want) <= 0x1p-21))
                    FAIL("%s: slope %zu at %.9g is %.9g, not %.9g", at->k->name, a, (double)x[i],
                         (double)slope[i], want);
            }
        }
    ASSERT(operands_close(&o));
    variants_close(&v);
}

/* The same value gives the same bits at every offset of a block and in a partial block. */
TEST(bits_do_not_depend_on_position)
{
    enum {
        N = 300
    };
    variants v = variants_open(t);
    CHECK_HERE();
    float x[N], y[N];
    for (int round = 0; round < 50; round++) {
        float value = (float)(-6.0 + 12.0 * uniform_of(9, round)), want[6];
        for (int i = 0; i < N; i++)
            x[i] = value;
        for (int j = 0; j < v.n; j++)
            for (size_t a = 0; a < 6; a++) {
                if (variants_begins_isa(&v, j))
                    v.at[j].k->activation(v.at[j].c, activations[a], &want[a], x, FSDP_DTYPE_F32,
                                          1);
                for (int n = 1; n < N; n += 37) {
                    v.at[j].k->activation(v.at[j].c, activations[a], y, x, FSDP_DTYPE_F32, n);
                    for (int i = 0; i < n; i++)
                        ASSERT(memcmp(&y[i], &want[a], sizeof *y) == 0);
                }
            }
    }
    variants_close(&v);
}

/* A half of a word of Philox(key, i / 8) decides whether element i is kept, for any variant and
 * size. */
TEST(dropout_keeps_the_elements_that_philox_selects)
{
    variants v = variants_open(t);
    CHECK_HERE();
    uint64_t key = 0x123456789abcdefu;
    float p = 0.3f; /* not a multiple of 2^-16 */
    for (int j = 0; j < v.n; j++)
        for (size_t d = 0; d < 3; d++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                operands o = {.n = 0};
                int64_t n = sizes[s];
                void *x = operand(&o, float_dtypes[d], n), *y = operand(&o, float_dtypes[d], n);
                fill_uniform(x, float_dtypes[d], n, 4, 1.0, 2.0);
                v.at[j].k->dropout(
                    v.at[j].c,
                    &(fsdp_dropout_args){
                        .out = y, .x = x, .dtype = float_dtypes[d], .n = n, .p = p, .key = key});
                for (int64_t i = 0; i < n; i++) {
                    double keep = kept_by_dropout(key, (uint64_t)i, p) ? 1.0 : 0.0;
                    double want = keep * value_of(x, float_dtypes[d], i) / (1.0 - (double)p);
                    ASSERT_NEAR(value_of(y, float_dtypes[d], i), want,
                                want * (rounding_of(float_dtypes[d]) + 0x1p-23));
                }
                ASSERT(operands_close(&o));
            }
    variants_close(&v);
}

/* relu before dropout, and a sum after it: the bits of two calls. */
TEST(dropout_with_relu_or_an_addend_has_the_bits_of_two_calls)
{
    variants v = variants_open(t);
    CHECK_HERE();
    for (int j = 0; j < v.n; j++)
        for (size_t d = 0; d < 3; d++)
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                operands o = {.n = 0};
                const fsdp_dtype dtype = float_dtypes[d];
                const int64_t n = sizes[s];
                const size_t bytes = (size_t)n * fsdp_dtype_size(dtype);
                void *x = operand(&o, dtype, n), *y = operand(&o, dtype, n);
                void *addend = operand(&o, dtype, n), *want = operand(&o, dtype, n);
                fill_uniform(x, dtype, n, 4, -2.0, 2.0);
                fill_uniform(addend, dtype, n, 5, -2.0, 2.0);
                fsdp_dropout_args a = {.dtype = dtype, .n = n, .p = 0.3f, .key = 77};
                const fsdp_kernels *k = v.at[j].k;
                k->activation(v.at[j].c, FSDP_ACTIVATION_RELU, want, x, dtype, n);
                a.x = a.out = want;
                k->dropout(v.at[j].c, &a);
                a.x = x;
                a.out = y;
                a.relu = true;
                k->dropout(v.at[j].c, &a);
                ASSERT(memcmp(y, want, bytes) == 0);
                a.relu = false;
                a.out = want;
                k->dropout(v.at[j].c, &a);
                k->add(v.at[j].c, want, want, addend, dtype, n);
                a.out = addend;
                a.addend = addend;
                k->dropout(v.at[j].c, &a);
                ASSERT(memcmp(addend, want, bytes) == 0);
                ASSERT(operands_close(&o));
            }
    variants_close(&v);
}

TEST(dropout_of_0_keeps_all_and_of_1_nothing)
{
    variants v = variants_open(t);
    CHECK_HERE();
    float x[100], y[100];
    for (int i = 0; i < 100; i++)
        x[i] = i == 3 ? NAN : (float)i;
    for (int j = 0; j < v.n; j++) {
        v.at[j].k->dropout(
            v.at[j].c,
            &(fsdp_dropout_args){
                .out = y, .x = x, .dtype = FSDP_DTYPE_F32, .n = 100, .p = 0.0f, .key = 7});
        ASSERT(memcmp(x, y, sizeof x) == 0);
        v.at[j].k->dropout(
            v.at[j].c,
            &(fsdp_dropout_args){
                .out = y, .x = x, .dtype = FSDP_DTYPE_F32, .n = 100, .p = 1.0f, .key = 7});
        for (int i = 0; i < 100; i++)
            ASSERT_F32(y[i], 0.0f);
    }
    variants_close(&v);
}
