/* clamp_infinite_: values and gradients equal those of torch.clamp in transformers' T5Block. */
#include "src/tensor/tensor.h"
#include "tests/autograd/gradcheck.h"

enum {
    N = 9
};

/* 64512 is finfo.max - 1000 in float16. Larger values are clamped, because an element is infinite.
 * At the bound itself, half of the gradient passes. Values computed by torch 2.15. */
static const float with_infinite[N] = {(float)INFINITY,  1.0f,      64512.0f, 64544.0f, -65504.0f,
                                       (float)-INFINITY, -64512.0f, 0.0f,     -3.0f};
static const float clamped[N] = {64512.0f,  1.0f,      64512.0f, 64512.0f, -64512.0f,
                                 -64512.0f, -64512.0f, 0.0f,     -3.0f};
static const float passes[N] = {0, 1, 0.5f, 0, 0, 0, 0.5f, 1, 1};
static const float at_most_largest[N] = {65504.0f,  1.0f, 64512.0f, 64544.0f,
                                         -65504.0f, 2.0f, 0.0f,     -9.0f};

typedef struct run {
    float y[N], dx[N];
    bool in_place, is_x;
} run;

/* The gradient of the sum of y. x is a leaf, or a tensor that nothing else holds. */
static void run_op(fsdp_test *t, fsdp_dtype dtype, const float *values, bool leaf, run *r)
{
    const int64_t n = N;
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    fsdp_tensor *given;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    ASSERT_OK(fsdp_tensor_create(device, dtype, 1, &n, FSDP_TAG_PARAM, &given));
    ASSERT_OK(fsdp_tensor_from_host(given, 0, values, FSDP_DTYPE_F32, n));
    ASSERT_OK(fsdp_tensor_set_requires_grad(given, true));
    fsdp_tensor *x = leaf ? given : fsdp_scale(s, given, 1.0f);
    fsdp_tensor *y = fsdp_clamp_infinite_(s, x);
    ASSERT_OK(fsdp_scope_status(s));
    r->is_x = x == y;
    r->in_place = fsdp_tensor_ptr(x) == fsdp_tensor_ptr(y);
    ASSERT_OK(fsdp_tensor_to_floats(y, r->y));
    fsdp_tensor *sum = fsdp_sum(s, y);
    ASSERT_OK(fsdp_backward(tape, &sum, NULL, 1));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(given), r->dx));
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(given);
    fsdp_device_destroy(device);
}

TEST(infinite_values_are_clamped_and_pass_no_gradient)
{
    for (int leaf = 0; leaf < 2; leaf++) {
        run r;
        run_op(t, FSDP_DTYPE_F16, with_infinite, leaf, &r);
        CHECK_HERE();
        ASSERT(r.in_place == !leaf && !r.is_x);
        for (int i = 0; i < N; i++) {
            ASSERT_F32(r.y[i], clamped[i]);
            ASSERT_F32(r.dx[i], passes[i]);
        }
    }
}

TEST(finite_values_are_unchanged)
{
    run r;
    run_op(t, FSDP_DTYPE_F16, at_most_largest, false, &r);
    CHECK_HERE();
    for (int i = 0; i < N; i++) {
        ASSERT_F32(r.y[i], at_most_largest[i]);
        ASSERT_F32(r.dx[i], fabsf(at_most_largest[i]) == 65504.0f ? 0.5f : 1.0f);
    }
}

TEST(other_dtypes_are_not_clamped)
{
    static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16};
    for (int i = 0; i < 2; i++) {
        run r;
        run_op(t, dtypes[i], with_infinite, false, &r);
        CHECK_HERE();
        ASSERT(r.is_x);
        ASSERT_F32(r.y[0], (float)INFINITY);
    }
}

static fsdp_tensor *run_clamp(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    (void)arg;
    return fsdp_clamp_infinite_(s, fsdp_scale(s, in[0], 1.0f));
}

static void naive_clamp(const op_case *c, const double *const *in, double *out)
{
    for (int64_t i = 0; i < op_numel(c, 0); i++)
        out[i] = in[0][i];
}

TEST(clamp_infinite_keeps_what_operations_promise)
{
    op_check(t, &(op_case){.name = "clamp_infinite",
                           .run = run_clamp,
                           .naive = naive_clamp,
                           .n_in = 1,
                           .in = {{2, {3, 7}}}});
}
