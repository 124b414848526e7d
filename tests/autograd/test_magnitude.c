/* weight_norm and scale_to_magnitudes, the operations of DoRA: see gradcheck.h for what op_check
 * tests. */
#include "src/autograd/magnitude.h"
#include "src/tensor/tensor.h"
#include "tests/autograd/gradcheck.h"

/* --- scale_to_magnitudes --- */

/* The norm of column j: not equal to the magnitudes, and not the same for all columns. */
static float norm_of(int64_t j)
{
    return 0.5f + 0.25f * (float)j;
}

static fsdp_tensor *run_scale(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    const int64_t width = in[1] ? in[1]->shape[0] : 0;
    float values[OP_MAX_NUMEL];
    fsdp_tensor *norms;
    for (int64_t j = 0; j < width; j++)
        values[j] = norm_of(j);
    if (!fsdp_scope_check(s, fsdp_tensor_from_data(fsdp_scope_device(s), FSDP_DTYPE_F32, 1, &width,
                                                   values, FSDP_TAG_ACTIVATION, &norms)))
        return NULL;
    norms = fsdp_scope_own(s, norms);
    fsdp_tensor *y = fsdp_scale_to_magnitudes(s, in[0], in[1], norms, arg ? in[2] : NULL);
    fsdp_drop(s, norms);
    return y;
}

static void naive_scale(const op_case *c, const double *const *in, double *out)
{
    const int64_t width = op_numel(c, 1), n = op_numel(c, 0);
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = i % width;
        out[i] = in[0][i] * in[1][j] / (double)norm_of(j) + (c->arg ? in[2][j] : 0.0);
    }
}

TEST(scale_to_magnitudes_equals_loops_and_differences)
{
    op_check(t, &(op_case){.name = "scale_to_magnitudes",
                           .run = run_scale,
                           .naive = naive_scale,
                           .arg = "with a bias",
                           .n_in = 3,
                           .in = {{2, {6, 7}}, {1, {7}}, {1, {7}}}});
    CHECK_HERE();
    op_check(t, &(op_case){.name = "scale_to_magnitudes without bias",
                           .run = run_scale,
                           .naive = naive_scale,
                           .n_in = 2,
                           .in = {{2, {5, 19}}, {1, {19}}}});
    CHECK_HERE();
    op_check(t, &(op_case){.name = "scale_to_magnitudes of three dimensions",
                           .run = run_scale,
                           .naive = naive_scale,
                           .n_in = 2,
                           .in = {{3, {2, 3, 4}}, {1, {4}}}});
}

/* --- weight_norm --- */

enum {
    MAX_VALUES = 1100 * 1000
};

typedef struct norm_case {
    int64_t out, in, rank; /* rank 0: no adapter */
    bool transposed;
    fsdp_dtype dtype;
} norm_case;

/* Set *values [numel] to the values of the tensor. */
static void values_of(fsdp_test *t, const fsdp_tensor *tensor, float *values)
{
    ASSERT_OK(fsdp_tensor_to_floats(tensor, values));
}

/* Create a tensor of random values of `dtype`, and set *values [numel] to them. */
static void random_tensor(fsdp_test *t, fsdp_device *device, fsdp_dtype dtype, const int64_t *shape,
                          uint64_t seed, float *values, fsdp_tensor **tensor)
{
    fsdp_tensor *wide;
    op_random(values, shape[0] * shape[1], seed);
    ASSERT_OK(
        fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, shape, values, FSDP_TAG_PARAM, &wide));
    ASSERT_OK(fsdp_tensor_to(wide, dtype, FSDP_TAG_PARAM, tensor));
    fsdp_tensor_release(wide);
    values_of(t, *tensor, values);
}

/* Compare the norms with sums of squares in double. They are rounded to the dtype of the weight. */
static void check_norms(fsdp_test *t, const norm_case *c, const float *w, const float *a,
                        const float *b, float scaling, const float *norms)
{
    const double rounding = c->dtype == FSDP_DTYPE_BF16 ? 0x1p-8 : 4e-7;
    for (int64_t i = 0; i < c->out; i++) {
        double squares = 0.0;
        for (int64_t j = 0; j < c->in; j++) {
            double value = (double)w[c->transposed ? j * c->out + i : i * c->in + j];
            for (int64_t k = 0; k < c->rank; k++)
                value += (double)scaling * (double)b[i * c->rank + k] * (double)a[k * c->in + j];
            squares += value * value;
        }
        ASSERT_NEAR((double)norms[i], sqrt(squares), rounding * sqrt(squares));
    }
}

static void check_weight_norm(fsdp_test *t, fsdp_device *device, const norm_case *c)
{
    static float w_values[MAX_VALUES], a_values[8192], b_values[8192], norms[4096];
    const float scaling = 0.75f;
    const int64_t w_shape[] = {c->transposed ? c->in : c->out, c->transposed ? c->out : c->in};
    fsdp_adapted_weight weight = {.scaling = scaling, .transposed = c->transposed};
    fsdp_scope *s;
    random_tensor(t, device, c->dtype, w_shape, 1, w_values, &weight.w);
    CHECK_HERE();
    if (c->rank) {
        const int64_t a_shape[] = {c->rank, c->in}, b_shape[] = {c->out, c->rank};
        random_tensor(t, device, c->dtype, a_shape, 2, a_values, &weight.a);
        CHECK_HERE();
        random_tensor(t, device, c->dtype, b_shape, 3, b_values, &weight.b);
        CHECK_HERE();
    }
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    fsdp_tensor *result = fsdp_weight_norm(s, &weight);
    ASSERT_OK(fsdp_scope_status(s));
    values_of(t, result, norms);
    check_norms(t, c, w_values, a_values, b_values, scaling, norms);
    fsdp_scope_close(s);
    fsdp_tensor_release(weight.w);
    fsdp_tensor_release(weight.a);
    fsdp_tensor_release(weight.b);
}

/* The case with 1000 columns has more than 2^20 elements, so its rows are in two pieces. */
TEST(weight_norm_equals_loops)
{
    static const norm_case cases[] = {
        {5, 7, 0, false, FSDP_DTYPE_F32},      {5, 7, 2, false, FSDP_DTYPE_F32},
        {7, 5, 3, true, FSDP_DTYPE_F32},       {7, 5, 0, true, FSDP_DTYPE_F32},
        {33, 65, 4, false, FSDP_DTYPE_BF16},   {33, 65, 4, true, FSDP_DTYPE_BF16},
        {1100, 1000, 1, false, FSDP_DTYPE_F32}};
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_weight_norm(t, device, &cases[i]);
        CHECK_HERE();
    }
    fsdp_device_destroy(device);
}

/* A row of zeros has the norm 0. The result is then the bias instead of NaN. */
TEST(a_row_of_zeros_gives_the_bias)
{
    const int64_t shape[] = {2, 3};
    const float zeros[6] = {0}, bias_values[] = {1.5f, -2.0f};
    fsdp_device *device;
    fsdp_scope *s;
    fsdp_tensor *w, *x, *bias;
    float values[6];
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, shape, zeros, FSDP_TAG_PARAM, &w));
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 1, shape, bias_values, FSDP_TAG_PARAM,
                                    &bias));
    x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){3, 2}, 4);
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    fsdp_tensor *norms = fsdp_weight_norm(s, &(fsdp_adapted_weight){.w = w});
    fsdp_tensor *y = fsdp_scale_to_magnitudes(s, x, norms, norms, bias);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_tensor_to_floats(y, values));
    for (int i = 0; i < 6; i++)
        ASSERT_F32(values[i], bias_values[i % 2]);
    fsdp_scope_close(s);
    fsdp_tensor_release(w);
    fsdp_tensor_release(x);
    fsdp_tensor_release(bias);
    fsdp_device_destroy(device);
}

TEST(what_does_not_fit_is_named)
{
    fsdp_device *device;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_tensor *w = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){4, 3}, 1);
    fsdp_tensor *a = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){2, 4}, 2);
    fsdp_tensor *m = op_random_tensor(t, device, FSDP_DTYPE_F32, 1, (const int64_t[]){4}, 3);
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    ASSERT(!fsdp_weight_norm(s, &(fsdp_adapted_weight){.w = w, .a = a, .b = a}));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID,
                 "weight_norm: w is [4, 3], a is [2, 4] and b is [2, 4]");
    fsdp_scope_close(s);
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    ASSERT(!fsdp_scale_to_magnitudes(s, w, m, m, NULL));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID,
                 "scale_to_magnitudes: x is [4, 3] but magnitudes is [4]");
    fsdp_scope_close(s);
    fsdp_tensor_release(w);
    fsdp_tensor_release(a);
    fsdp_tensor_release(m);
    fsdp_device_destroy(device);
}
