/* linear, conv1d: see gradcheck.h for what each op_check tests. */
#include "src/tensor/tensor.h"
#include "tests/autograd/gradcheck.h"

static fsdp_tensor *run_linear(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_linear(s, in[0], in[1], in[2]);
}

static void naive_linear(const op_case *c, const double *const *in, double *out)
{
    const int64_t n_out = op_size(c, 1, 0), n_in = op_size(c, 1, 1), rows = op_numel(c, 0) / n_in;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t n = 0; n < n_out; n++) {
            double sum = c->n_in > 2 ? in[2][n] : 0.0;
            for (int64_t k = 0; k < n_in; k++)
                sum += in[0][r * n_in + k] * in[1][n * n_in + k];
            out[r * n_out + n] = sum;
        }
}

TEST(linear_equals_loops_and_differences)
{
    op_check(t, &(op_case){.name = "linear",
                           .run = run_linear,
                           .naive = naive_linear,
                           .n_in = 2,
                           .in = {{2, {5, 7}}, {2, {3, 7}}}});
}

TEST(linear_with_bias_equals_loops_and_differences)
{
    op_check(t, &(op_case){.name = "linear with bias",
                           .run = run_linear,
                           .naive = naive_linear,
                           .n_in = 3,
                           .in = {{2, {17, 4}}, {2, {6, 4}}, {1, {6}}}});
}

TEST(linear_keeps_leading_dimensions)
{
    op_check(t, &(op_case){.name = "linear of a vector",
                           .run = run_linear,
                           .naive = naive_linear,
                           .n_in = 3,
                           .in = {{1, {4}}, {2, {3, 4}}, {1, {3}}}});
    CHECK_HERE();
    op_check(t, &(op_case){.name = "linear of three dimensions",
                           .run = run_linear,
                           .naive = naive_linear,
                           .n_in = 2,
                           .in = {{3, {2, 3, 4}}, {2, {3, 4}}}});
}

static fsdp_tensor *run_conv1d(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_conv1d(s, in[0], in[1], in[2]);
}

static void naive_conv1d(const op_case *c, const double *const *in, double *out)
{
    const int64_t n_in = op_size(c, 1, 0), n_out = op_size(c, 1, 1), rows = op_numel(c, 0) / n_in;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t n = 0; n < n_out; n++) {
            double sum = c->n_in > 2 ? in[2][n] : 0.0;
            for (int64_t k = 0; k < n_in; k++)
                sum += in[0][r * n_in + k] * in[1][k * n_out + n];
            out[r * n_out + n] = sum;
        }
}

TEST(conv1d_equals_loops_and_differences)
{
    static const op_case cases[] = {
        {.name = "conv1d", .n_in = 3, .in = {{2, {5, 7}}, {2, {7, 3}}, {1, {3}}}},
        {.name = "conv1d without bias", .n_in = 2, .in = {{2, {17, 4}}, {2, {4, 6}}}},
        {.name = "conv1d of a vector", .n_in = 3, .in = {{1, {4}}, {2, {4, 3}}, {1, {3}}}},
        {.name = "conv1d of three dimensions", .n_in = 2, .in = {{3, {2, 3, 4}}, {2, {4, 1}}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        op_case c = cases[i];
        c.run = run_conv1d;
        c.naive = naive_conv1d;
        op_check(t, &c);
        CHECK_HERE();
    }
}

/* No rows: results are empty, and the gradient of the weight is all zero (a first contribution sets
 * every element). */
TEST(linear_of_no_rows_gives_zero_weight_gradients)
{
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){0, 4}, 1);
    fsdp_tensor *w = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){3, 4}, 2);
    fsdp_tensor *b = op_random_tensor(t, device, FSDP_DTYPE_F32, 1, (const int64_t[]){3}, 2);
    ASSERT_OK(fsdp_tensor_set_requires_grad(x, true));
    ASSERT_OK(fsdp_tensor_set_requires_grad(w, true));
    ASSERT_OK(fsdp_tensor_set_requires_grad(b, true));
    fsdp_tensor *y = fsdp_linear(s, x, w, b);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_INT(fsdp_tensor_size(y, 0), 0);
    ASSERT_INT(fsdp_tensor_size(y, 1), 3);
    ASSERT_OK(fsdp_backward(tape, &y, &y, 1));
    float values[12];
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(w), values));
    for (int i = 0; i < 12; i++)
        ASSERT_F32(values[i], 0.0f);
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(b), values));
    for (int i = 0; i < 3; i++)
        ASSERT_F32(values[i], 0.0f);
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(x);
    fsdp_tensor_release(w);
    fsdp_tensor_release(b);
    fsdp_device_destroy(device);
}

typedef struct misuse {
    bool conv1d;
    fsdp_dtype x_dtype;
    int64_t x[2], w[2], bias;
    const char *message;
} misuse;

TEST(linear_names_what_does_not_fit)
{
    static const misuse cases[] = {
        {false, FSDP_DTYPE_F32, {3, 5}, {4, 6}, 0, "linear: x is [3, 5] but w is [4, 6]"},
        {false, FSDP_DTYPE_F32, {3, 6}, {4, 6}, 5, "linear: w is [4, 6] but bias is [5], not [4]"},
        {false, FSDP_DTYPE_BF16, {3, 6}, {4, 6}, 0, "linear: x is bfloat16 but w is float32"},
        {false, FSDP_DTYPE_I32, {3, 6}, {4, 6}, 0, "linear: x is int32, not float32"},
        {true, FSDP_DTYPE_F32, {3, 6}, {4, 6}, 0, "conv1d: x is [3, 6] but w is [4, 6]"},
        {true, FSDP_DTYPE_F32, {3, 4}, {4, 6}, 4, "conv1d: w is [4, 6] but bias is [4], not [6]"},
    };
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const misuse *m = &cases[i];
        fsdp_scope *s;
        fsdp_tensor *x, *w, *bias = NULL;
        ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
        ASSERT_OK(fsdp_tensor_create(device, m->x_dtype, 2, m->x, FSDP_TAG_DATA, &x));
        ASSERT_OK(fsdp_tensor_create(device, FSDP_DTYPE_F32, 2, m->w, FSDP_TAG_DATA, &w));
        if (m->bias)
            ASSERT_OK(
                fsdp_tensor_create(device, FSDP_DTYPE_F32, 1, &m->bias, FSDP_TAG_DATA, &bias));
        ASSERT(!(m->conv1d ? fsdp_conv1d(s, x, w, bias) : fsdp_linear(s, x, w, bias)));
        ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, m->message);
        /* The failure stays, and later operations do nothing. */
        ASSERT(!fsdp_linear(s, w, w, NULL));
        ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, m->message);
        fsdp_scope_close(s);
        fsdp_tensor_release(x);
        fsdp_tensor_release(w);
        fsdp_tensor_release(bias);
    }
    fsdp_device_destroy(device);
}
