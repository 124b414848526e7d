/* rms_norm: see gradcheck.h for what each op_check tests. */
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
}

/* Norm weights are often kept in float32 beside bfloat16 activations. */
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
