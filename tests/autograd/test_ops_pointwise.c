/* add, mul, scale, activations, gated activations, dropout: see gradcheck.h for what op_check
 * tests. */
#include "src/autograd/activation.h"
#include "src/tensor/tensor.h"
#include "tests/autograd/gradcheck.h"

static double gelu_new(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

static fsdp_tensor *run_add(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_add(s, in[0], in[1]);
}

static fsdp_tensor *run_mul(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_mul(s, in[0], in[1]);
}

static fsdp_tensor *run_scale(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_scale(s, in[0], -1.75f);
}

static fsdp_tensor *run_relu(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_relu(s, in[0]);
}

static fsdp_tensor *run_gelu_new(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_gelu_new(s, in[0]);
}

static fsdp_tensor *run_geglu(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_geglu(s, in[0], in[1]);
}

static fsdp_tensor *run_gelu(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_gelu(s, in[0]);
}

static fsdp_tensor *run_silu(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_silu(s, in[0]);
}

static fsdp_tensor *run_tanh(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_tanh(s, in[0]);
}

static fsdp_tensor *run_gated_tanh(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_gated_dropout(s, FSDP_ACTIVATION_TANH, in[0], in[1], 0.0f);
}

static fsdp_tensor *run_swiglu(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_swiglu(s, in[0], in[1]);
}

#define NAIVE(name, expression)                                                                    \
    static void name(const op_case *c, const double *const *in, double *out)                       \
    {                                                                                              \
        const double *x = in[0], *y = in[1];                                                       \
        (void)y;                                                                                   \
        for (int64_t i = 0; i < op_numel(c, 0); i++)                                               \
            out[i] = (expression);                                                                 \
    }
NAIVE(naive_add, x[i] + y[i])
NAIVE(naive_mul, x[i] * y[i])
NAIVE(naive_scale, -1.75 * x[i])
NAIVE(naive_relu, x[i] > 0 ? x[i] : 0)
NAIVE(naive_gelu_new, gelu_new(x[i]))
NAIVE(naive_gated_tanh, tanh(x[i]) * y[i])
NAIVE(naive_geglu, gelu_new(x[i]) * y[i])
NAIVE(naive_gelu, 0.5 * x[i] * (1 + erf(x[i] / sqrt(2.0))))
NAIVE(naive_silu, x[i] / (1 + exp(-x[i])))
NAIVE(naive_tanh, tanh(x[i]))
NAIVE(naive_swiglu, x[i] / (1 + exp(-x[i])) * y[i])

TEST(pointwise_operations_equal_loops_and_differences)
{
    static const op_case cases[] = {
        {.name = "add", .run = run_add, .naive = naive_add, .n_in = 2},
        {.name = "mul", .run = run_mul, .naive = naive_mul, .n_in = 2},
        {.name = "add, promoted", .run = run_add, .naive = naive_add, .n_in = 2, .f32 = 1u},
        {.name = "mul, promoted", .run = run_mul, .naive = naive_mul, .n_in = 2, .f32 = 1u << 1},
        {.name = "scale", .run = run_scale, .naive = naive_scale, .n_in = 1},
        {.name = "relu", .run = run_relu, .naive = naive_relu, .n_in = 1},
        {.name = "gelu_new", .run = run_gelu_new, .naive = naive_gelu_new, .n_in = 1},
        {.name = "geglu", .run = run_geglu, .naive = naive_geglu, .n_in = 2},
        {.name = "gelu", .run = run_gelu, .naive = naive_gelu, .n_in = 1},
        {.name = "silu", .run = run_silu, .naive = naive_silu, .n_in = 1},
        {.name = "tanh", .run = run_tanh, .naive = naive_tanh, .n_in = 1},
        {.name = "swiglu", .run = run_swiglu, .naive = naive_swiglu, .n_in = 2},
        {.name = "gated tanh", .run = run_gated_tanh, .naive = naive_gated_tanh, .n_in = 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        op_case c = cases[i];
        for (int k = 0; k < c.n_in; k++) {
            c.in[k].ndim = 2;
            c.in[k].shape[0] = 5;
            c.in[k].shape[1] = 7;
        }
        op_check(t, &c);
        CHECK_HERE();
        for (int k = 0; k < c.n_in; k++)
            c.in[k].ndim = 0;
        op_check(t, &c); /* scalars */
        CHECK_HERE();
    }
}

/* --- dropout --- */

static fsdp_tensor *run_dropout(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    return fsdp_dropout(s, in[0], *(const float *)arg);
}

/* No loop can reproduce the mask. But the operation is linear in x, so its own differences are
 * exact. */
TEST(dropout_has_the_mask_of_its_forward_in_backward)
{
    static const float p = 0.4f;
    op_check(t, &(op_case){.name = "dropout",
                           .run = run_dropout,
                           .arg = &p,
                           .n_in = 1,
                           .in = {{2, {9, 7}}},
                           .training = true});
}

enum {
    N = 20000
};

static void drop(fsdp_test *t, fsdp_device *device, const fsdp_scope_options *options, float p,
                 int calls, float *out)
{
    static const int64_t shape[1] = {N};
    fsdp_scope *s;
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 1, shape, 3), *y = x;
    CHECK_HERE();
    ASSERT_OK(fsdp_scope_open(device, NULL, options, &s));
    for (int i = 0; i < calls; i++)
        y = fsdp_dropout(s, x, p);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_tensor_to_floats(y, out));
    fsdp_scope_close(s);
    fsdp_tensor_release(x);
}

/* Kept elements are divided by 1 - p, and their share is 1 - p within five standard deviations. */
TEST(dropout_keeps_its_share_and_scales_it)
{
    static float x[N], y[N];
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    const fsdp_scope_options options = {.training = true, .seed = 3};
    for (int i = 0; i < 3; i++) {
        const float p = (float[]){0.1f, 0.5f, 0.9f}[i];
        drop(t, device, &(fsdp_scope_options){0}, p, 1, x);
        CHECK_HERE();
        drop(t, device, &options, p, 1, y);
        CHECK_HERE();
        int kept = 0;
        for (int e = 0; e < N; e++) {
            if (y[e] == 0.0f)
                continue;
            kept++;
            ASSERT_NEAR(y[e], x[e] / (1.0f - p), 1e-5 * fabs((double)y[e]));
        }
        double share = 1.0 - (double)p;
        ASSERT_NEAR(kept, N * share, 5 * sqrt(N * share * (1 - share)));
    }
    fsdp_device_destroy(device);
}

/* The same (seed, step, leaf, call number) gives the same mask, and any other gives a different
 * one. */
TEST(dropout_is_a_function_of_seed_step_leaf_and_call)
{
    static float first[N], other[N];
    static const fsdp_scope_options options[] = {
        {.training = true, .seed = 3, .step = 1, .micro_batch = 2},
        {.training = true, .seed = 4, .step = 1, .micro_batch = 2},
        {.training = true, .seed = 3, .step = 2, .micro_batch = 2},
        {.training = true, .seed = 3, .step = 1, .micro_batch = 1},
        {.training = true, .seed = 3, .step = 2, .micro_batch = 1},
    };
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    drop(t, device, &options[0], 0.5f, 1, first);
    CHECK_HERE();
    for (int i = 0; i < 6; i++) {
        drop(t, device, &options[i < 5 ? i : 0], 0.5f, i < 5 ? 1 : 2, other);
        CHECK_HERE();
        int differ = 0;
        for (int e = 0; e < N; e++)
            differ += first[e] != other[e];
        if (i == 0)
            ASSERT_INT(differ, 0);
        else
            ASSERT_NEAR(differ, N / 2, 5 * sqrt(N / 4));
    }
    fsdp_device_destroy(device);
}

TEST(dropout_is_the_identity_unless_training)
{
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 1, (const int64_t[]){4}, 3);
    for (int training = 0; training < 2; training++) {
        fsdp_scope *s;
        ASSERT_OK(
            fsdp_scope_open(device, NULL, &(fsdp_scope_options){.training = training != 0}, &s));
        ASSERT(fsdp_dropout(s, x, 0.0f) == x);
        ASSERT((fsdp_dropout(s, x, 1.0f) == x) == !training);
        ASSERT_OK(fsdp_scope_status(s));
        fsdp_scope_close(s);
    }
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}

TEST(dropout_of_everything_is_zero)
{
    static float y[N];
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    drop(t, device, &(fsdp_scope_options){.training = true}, 1.0f, 1, y);
    CHECK_HERE();
    for (int e = 0; e < N; e++)
        ASSERT_F32(y[e], 0.0f);
    fsdp_device_destroy(device);
}

/* x + dropout(y), as one operation or as two: the result, and the gradients of x and y. */
static void add_and_drop(fsdp_test *t, fsdp_dtype dtype, fsdp_dtype y_dtype, float p, bool fused,
                         float out[3][N])
{
    const int64_t n = N;
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(
        fsdp_scope_open(device, tape, &(fsdp_scope_options){.training = true, .seed = 5}, &s));
    fsdp_tensor *x = op_random_tensor(t, device, dtype, 1, &n, 3);
    fsdp_tensor *y = op_random_tensor(t, device, y_dtype, 1, &n, 4);
    fsdp_tensor *d_sum = op_random_tensor(t, device, dtype, 1, &n, 5);
    CHECK_HERE();
    ASSERT_OK(fsdp_tensor_set_requires_grad(x, true));
    ASSERT_OK(fsdp_tensor_set_requires_grad(y, true));
    fsdp_tensor *twice_x = fsdp_scale(s, x, 2.0f), *twice_y = fsdp_scale(s, y, 2.0f);
    fsdp_tensor *sum = fused ? fsdp_add_dropout_(s, twice_x, twice_y, p)
                             : fsdp_add(s, twice_x, fsdp_dropout(s, twice_y, p));
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_tensor_to_floats(sum, out[0]));
    ASSERT_OK(fsdp_backward(tape, &sum, &d_sum, 1));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(x), out[1]));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(y), out[2]));
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(d_sum);
    fsdp_tensor_release(y);
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}

TEST(a_sum_with_dropout_has_the_bits_of_two_operations)
{
    static float one[3][N], two[3][N];
    const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};
    for (int i = 0; i < 12; i++) {
        const float p = (float[]){0.0f, 0.3f, 1.0f}[i / 4];
        /* The last case has a float32 x and a bfloat16 y. */
        const fsdp_dtype dtype = dtypes[i % 4 % 3], y_dtype = i % 4 == 3 ? dtypes[1] : dtype;
        add_and_drop(t, dtype, y_dtype, p, true, one);
        CHECK_HERE();
        add_and_drop(t, dtype, y_dtype, p, false, two);
        CHECK_HERE();
        ASSERT(memcmp(one, two, sizeof one) == 0);
        int kept = 0;
        for (int e = 0; e < N; e++)
            kept += one[2][e] != 0.0f;
        ASSERT(p == 0.3f ? kept > N / 2 && kept < N : kept == (p == 0.0f ? N : 0));
    }
}

/* An activation followed by dropout, as one operation or as two: relu, geglu, swiglu, or a gate of
 * tanh. */
static fsdp_tensor *activate_and_drop(fsdp_scope *s, fsdp_tensor *x, int kind, bool fused, float p)
{
    fsdp_tensor *up = fsdp_scale(s, x, 0.5f);
    switch (kind) {
    case 0:
        return fused ? fsdp_relu_dropout_(s, x, p) : fsdp_dropout(s, fsdp_relu(s, x), p);
    case 1:
        return fused ? fsdp_geglu_dropout(s, x, up, p) : fsdp_dropout(s, fsdp_geglu(s, x, up), p);
    case 2:
        return fused ? fsdp_gated_dropout(s, FSDP_ACTIVATION_SILU, x, up, p)
                     : fsdp_dropout(s, fsdp_swiglu(s, x, up), p);
    default:
        return fused ? fsdp_gated_dropout(s, FSDP_ACTIVATION_TANH, x, up, p)
                     : fsdp_dropout(s, fsdp_gated_dropout(s, FSDP_ACTIVATION_TANH, x, up, 0), p);
    }
}

/* One call on a new tape: the result, and the gradient of x for a gradient of the result with both
 * signs. */
static void run_and_drop(fsdp_test *t, fsdp_dtype dtype, float p, int kind, bool fused, float *out,
                         float *gradient)
{
    const int64_t n = N;
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(
        fsdp_scope_open(device, tape, &(fsdp_scope_options){.training = true, .seed = 5}, &s));
    fsdp_tensor *x = op_random_tensor(t, device, dtype, 1, &n, 3);
    fsdp_tensor *dy = op_random_tensor(t, device, dtype, 1, &n, 4);
    CHECK_HERE();
    ASSERT_OK(fsdp_tensor_set_requires_grad(x, true));
    fsdp_tensor *before = fsdp_scale(s, x, -2.0f);
    fsdp_tensor *y = activate_and_drop(s, before, kind, fused, p);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT((fsdp_tensor_ptr(y) == fsdp_tensor_ptr(before)) == (fused && kind == 0));
    ASSERT_OK(fsdp_tensor_to_floats(y, out));
    ASSERT_OK(fsdp_backward(tape, &y, &dy, 1));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(x), gradient));
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(dy);
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}

TEST(an_activation_with_dropout_has_the_bits_of_two_operations)
{
    static float y[2][N], dx[2][N];
    const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (int k = 0; k < 12; k++) {
            const float p = (float[]){0.0f, 0.3f, 1.0f}[k % 3];
            const int kind = k / 3;
            const double share = (double)p + (kind ? 0.0 : 0.5 * (1.0 - (double)p));
            int zeros = 0;
            for (int fused = 0; fused < 2; fused++) {
                run_and_drop(t, dtypes[i], p, kind, fused, y[fused], dx[fused]);
                CHECK_HERE();
            }
            ASSERT(memcmp(y[0], y[1], sizeof y[0]) == 0);
            for (int e = 0; e < N; e++) {
                ASSERT(dx[0][e] == dx[1][e]);
                zeros += dx[1][e] == 0.0f;
            }
            ASSERT_NEAR(zeros, N * share, 5 * sqrt(N / 4.0));
        }
}

/* --- misuse --- */

TEST(pointwise_operations_name_what_does_not_fit)
{
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){2, 3}, 1);
    fsdp_tensor *y = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){3, 2}, 1);
    fsdp_tensor *z = op_random_tensor(t, device, FSDP_DTYPE_BF16, 2, (const int64_t[]){2, 3}, 1);
    fsdp_tensor *turned;
    ASSERT_OK(fsdp_tensor_transpose(y, 0, 1, &turned));
    for (int i = 0; i < 9; i++) {
        fsdp_scope *s;
        ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
        static const char *const messages[] = {
            "add: x is [2, 3] but y is [3, 2]",
            "geglu: gate is float32 but up is bfloat16",
            "geglu: gate is [2, 3] but up is",
            "add: input 1 is not contiguous",
            "relu: input 0 is NULL",
            "dropout: p is 1.5, not in [0, 1]",
            "dropout: p is nan, not in [0, 1]",
            "swiglu: gate is [2, 3] but up is [3, 2]",
            "gelu: input 0 is NULL",
        };
        fsdp_tensor *out = i == 0   ? fsdp_add(s, x, y)
                           : i == 1 ? fsdp_geglu(s, x, z)
                           : i == 2 ? fsdp_geglu(s, x, y)
                           : i == 3 ? fsdp_add(s, x, turned)
                           : i == 4 ? fsdp_relu(s, NULL)
                           : i == 5 ? fsdp_dropout(s, x, 1.5f)
                           : i == 6 ? fsdp_dropout(s, x, NAN)
                           : i == 7 ? fsdp_swiglu(s, x, y)
                                    : fsdp_gelu(s, NULL);
        ASSERT(!out);
        ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, messages[i]);
        fsdp_scope_close(s);
    }
    fsdp_tensor_release(turned);
    fsdp_tensor_release(x);
    fsdp_tensor_release(y);
    fsdp_tensor_release(z);
    fsdp_device_destroy(device);
}

/* In place if nothing else holds x's memory; the gradient is relu's in both cases. */
TEST(relu_in_place_reuses_unshared_memory)
{
    enum {
        COUNT = 21
    };
    float plain[COUNT], in_place[COUNT];
    for (int i = 0; i < 3; i++) {
        const bool is_leaf = i == 1, is_saved = i == 2;
        const int64_t n = COUNT;
        fsdp_device *device;
        fsdp_tape *tape;
        fsdp_scope *s;
        ASSERT_OK(fsdp_device_create(NULL, &device));
        ASSERT_OK(fsdp_tape_create(&tape));
        ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
        fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 1, &n, 3), *y[2];
        CHECK_HERE();
        ASSERT_OK(fsdp_tensor_set_requires_grad(x, true));
        for (int k = 0; k < 2; k++) {
            fsdp_tensor *before = is_leaf ? x : fsdp_scale(s, x, -2.0f);
            fsdp_tensor *saver = is_saved ? fsdp_gelu(s, before) : NULL;
            y[k] = k ? fsdp_relu_(s, before) : fsdp_relu(s, before);
            ASSERT_OK(fsdp_scope_status(s));
            ASSERT(!saver == !is_saved);
            ASSERT((fsdp_tensor_ptr(y[k]) == fsdp_tensor_ptr(before)) == (k == 1 && i == 0));
        }
        ASSERT_OK(fsdp_tensor_to_floats(y[0], plain));
        ASSERT_OK(fsdp_tensor_to_floats(y[1], in_place));
        ASSERT(memcmp(plain, in_place, sizeof plain) == 0);
        fsdp_tensor *difference = fsdp_add(s, y[0], fsdp_scale(s, y[1], -1.0f));
        fsdp_tensor *loss = fsdp_sum(s, difference);
        ASSERT_OK(fsdp_backward(tape, &loss, NULL, 1));
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(x), plain));
        for (int j = 0; j < COUNT; j++)
            ASSERT(plain[j] == 0.0f);
        fsdp_scope_close(s);
        fsdp_tape_destroy(tape);
        fsdp_tensor_release(x);
        fsdp_device_destroy(device);
    }
}
