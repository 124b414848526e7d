/* rms_norm, layer_norm: see gradcheck.h for what each op_check tests. */
#include "src/tensor/tensor.h"
#include "tests/autograd/gradcheck.h"

static const float eps = 1e-6f;

static fsdp_tensor *run_rms_norm(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_rms_norm(s, in[0], in[1], eps);
}

static void naive_rms_norm(const op_case *c, const double *const *in, double *out)
{
    const int64_t width = op_numel(c, 1), rows = op_numel(c, 0) / width;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = in[0] + r * width;
        double squares = 0.0;
        for (int64_t d = 0; d < width; d++)
            squares += x[d] * x[d];
        for (int64_t d = 0; d < width; d++)
            out[r * width + d] = x[d] / sqrt(squares / (double)width + (double)eps) * in[1][d];
    }
}

TEST(rms_norm_equals_loops_and_differences)
{
    op_check(t, &(op_case){.name = "rms_norm",
                           .run = run_rms_norm,
                           .naive = naive_rms_norm,
                           .n_in = 2,
                           .in = {{2, {6, 7}}, {1, {7}}}});
    CHECK_HERE();
    op_check(t, &(op_case){.name = "rms_norm of three dimensions",
                           .run = run_rms_norm,
                           .naive = naive_rms_norm,
                           .n_in = 2,
                           .in = {{3, {2, 3, 4}}, {1, {4}}}});
    CHECK_HERE();
    op_check(t, &(op_case){.name = "rms_norm of each third of a row",
                           .run = run_rms_norm,
                           .naive = naive_rms_norm,
                           .n_in = 2,
                           .in = {{2, {5, 21}}, {1, {7}}}});
}

/* Norm weights are often kept in float32 with bfloat16 activations. */
TEST(rms_norm_takes_a_weight_of_its_own_dtype)
{
    op_check(t, &(op_case){.name = "rms_norm, float32 weight",
                           .run = run_rms_norm,
                           .naive = naive_rms_norm,
                           .n_in = 2,

                           .in = {{2, {6, 7}}, {1, {7}}},
                           .f32 = 1u << 1});
}

TEST(rms_norm_names_what_does_not_fit)
{
    fsdp_device *device;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){6, 2}, 2);
    fsdp_tensor *w = op_random_tensor(t, device, FSDP_DTYPE_F32, 1, (const int64_t[]){3}, 2);
    ASSERT(!fsdp_rms_norm(s, x, w, eps));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "rms_norm: x is [6, 2] but w is [3]");
    fsdp_scope_close(s);
    fsdp_tensor_release(x);
    fsdp_tensor_release(w);
    fsdp_device_destroy(device);
}

/* --- layer_norm --- */

static const float layer_eps = 1e-5f;

static fsdp_tensor *run_layer_norm(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_layer_norm(s, in[0], in[1], in[2], layer_eps);
}

static void naive_layer_norm(const op_case *c, const double *const *in, double *out)
{
    const int64_t width = op_numel(c, 1), rows = op_numel(c, 0) / width;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = in[0] + r * width;
        double mean = 0.0, variance = 0.0;
        for (int64_t d = 0; d < width; d++)
            mean += x[d] / (double)width;
        for (int64_t d = 0; d < width; d++)
            variance += (x[d] - mean) * (x[d] - mean) / (double)width;
        for (int64_t d = 0; d < width; d++)
            out[r * width + d] = (x[d] - mean) / sqrt(variance + (double)layer_eps) * in[1][d] +
                                 (c->n_in > 2 ? in[2][d] : 0.0);
    }
}

TEST(layer_norm_equals_loops_and_differences)
{
    op_check(t, &(op_case){.name = "layer_norm",
                           .run = run_layer_norm,
                           .naive = naive_layer_norm,
                           .n_in = 3,
                           .in = {{2, {6, 7}}, {1, {7}}, {1, {7}}}});
    CHECK_HERE();
    op_check(t, &(op_case){.name = "layer_norm without bias",
                           .run = run_layer_norm,
                           .naive = naive_layer_norm,
                           .n_in = 2,
                           .in = {{2, {3, 17}}, {1, {17}}}});
    CHECK_HERE();
    op_check(t, &(op_case){.name = "layer_norm of three dimensions",
                           .run = run_layer_norm,
                           .naive = naive_layer_norm,
                           .n_in = 3,
                           .in = {{3, {2, 3, 5}}, {1, {5}}, {1, {5}}}});
    CHECK_HERE();
    op_check(t, &(op_case){.name = "layer_norm, float32 weight and bias",
                           .run = run_layer_norm,
                           .naive = naive_layer_norm,
                           .n_in = 3,
                           .in = {{2, {6, 7}}, {1, {7}}, {1, {7}}},
                           .f32 = 1u << 1 | 1u << 2});
}

/* A row of one element is its own mean: the result is the bias, whatever x is. */
TEST(layer_norm_of_one_element_is_the_bias)
{
    op_check(t, &(op_case){.name = "layer_norm of one element",
                           .run = run_layer_norm,
                           .naive = naive_layer_norm,
                           .n_in = 3,
                           .in = {{2, {4, 1}}, {1, {1}}, {1, {1}}}});
}

TEST(layer_norm_of_no_rows_gives_zero_weight_gradients)
{
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){0, 3}, 1);
    fsdp_tensor *w = op_random_tensor(t, device, FSDP_DTYPE_F32, 1, (const int64_t[]){3}, 2);
    fsdp_tensor *bias = op_random_tensor(t, device, FSDP_DTYPE_F32, 1, (const int64_t[]){3}, 3);
    ASSERT_OK(fsdp_tensor_set_requires_grad(w, true));
    ASSERT_OK(fsdp_tensor_set_requires_grad(bias, true));
    fsdp_tensor *y = fsdp_layer_norm(s, x, w, bias, layer_eps);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_backward(tape, &y, &y, 1));
    float values[6];
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(w), values));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(bias), values + 3));
    for (int i = 0; i < 6; i++)
        ASSERT_F32(values[i], 0.0f);
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(x);
    fsdp_tensor_release(w);
    fsdp_tensor_release(bias);
    fsdp_device_destroy(device);
}

TEST(layer_norm_names_what_does_not_fit)
{
    static const char *const messages[] = {
        "layer_norm: x is [6, 2] but w is [3]",
        "layer_norm: w is [2] but bias is [3]",
        "layer_norm: w is float32 but bias is bfloat16",
        "layer_norm: input 0 is NULL",
    };
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){6, 2}, 2);
    fsdp_tensor *two = op_random_tensor(t, device, FSDP_DTYPE_F32, 1, (const int64_t[]){2}, 2);
    fsdp_tensor *half = op_random_tensor(t, device, FSDP_DTYPE_BF16, 1, (const int64_t[]){2}, 2);
    fsdp_tensor *three = op_random_tensor(t, device, FSDP_DTYPE_F32, 1, (const int64_t[]){3}, 2);
    for (int i = 0; i < 4; i++) {
        fsdp_scope *s;
        ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
        ASSERT(!fsdp_layer_norm(s, i == 3 ? NULL : x, i == 0 ? three : two,
                                i == 1   ? three
                                : i == 2 ? half
                                         : NULL,
                                layer_eps));
        ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, messages[i]);
        fsdp_scope_close(s);
    }
    fsdp_tensor_release(x);
    fsdp_tensor_release(two);
    fsdp_tensor_release(half);
    fsdp_tensor_release(three);
    fsdp_device_destroy(device);
}
