/* cast: see gradcheck.h for what op_check tests. */
#include "src/autograd/autograd.h"
#include "tests/autograd/gradcheck.h"

typedef struct casts {
    fsdp_dtype through[2]; /* two casts, one after the other */
} casts;

static fsdp_tensor *run_casts(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    const casts *c = arg;
    fsdp_tensor *between = fsdp_cast(s, in[0], c->through[0]);
    fsdp_tensor *out = fsdp_cast(s, between, c->through[1]);
    if (between != in[0] && between != out)
        fsdp_drop(s, between);
    return out;
}

static void naive_identity(const op_case *c, const double *const *in, double *out)
{
    for (int64_t i = 0; i < op_numel(c, 0); i++)
        out[i] = in[0][i];
}

/* Values that bfloat16 can represent are unchanged after two casts; gradients are rounded by each.
 * float16 is the finer of the two. */
TEST(casts_only_round)
{
    static const casts cases[] = {
        {{FSDP_DTYPE_BF16, FSDP_DTYPE_F32}}, {{FSDP_DTYPE_F16, FSDP_DTYPE_F32}},
        {{FSDP_DTYPE_F32, FSDP_DTYPE_BF16}}, {{FSDP_DTYPE_F32, FSDP_DTYPE_F16}},
        {{FSDP_DTYPE_F16, FSDP_DTYPE_BF16}},
    };
    static const int64_t rows[] = {0, 1, 3, 17};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            op_check(t, &(op_case){.name = "cast",
                                   .run = run_casts,
                                   .naive = naive_identity,
                                   .arg = &cases[i],
                                   .n_in = 1,
                                   .in = {{2, {rows[r], 5}}},
                                   .tolerance = 0x1p-8});
            CHECK_HERE();
        }
}

/* float16 ends at 65504, but a larger sum reaches its target without overflow. */
TEST(the_gradient_of_a_leaf_is_not_rounded)
{
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    float grad[2];
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F16, 1, (const int64_t[]){2}, 1);
    fsdp_tensor *dy = op_random_tensor(t, device, FSDP_DTYPE_F32, 1, (const int64_t[]){2}, 1);
    CHECK_HERE();
    float *values = fsdp_tensor_data(dy);
    values[0] = 131072.0f;
    values[1] = 1.0f + 0x1p-20f;
    ASSERT_OK(fsdp_tensor_set_requires_grad(x, true));
    for (int times = 1; times <= 2; times++) { /* the second backward adds */
        ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
        fsdp_tensor *y = fsdp_cast(s, x, FSDP_DTYPE_F32);
        ASSERT_OK(fsdp_backward(tape, &y, &dy, 1));
        fsdp_scope_close(s);
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(x), grad));
        ASSERT_F32(grad[0], 131072.0f * (float)times);
        ASSERT_F32(grad[1], (1.0f + 0x1p-20f) * (float)times);
    }
    fsdp_tensor_release(dy);
    fsdp_tensor_release(x);
    fsdp_tape_destroy(tape);
    fsdp_device_destroy(device);
}

TEST(a_cast_to_the_same_dtype_is_the_tensor_itself)
{
    fsdp_device *device;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    fsdp_tensor *x = fsdp_new(s, FSDP_DTYPE_F16, 1, (const int64_t[]){3});
    ASSERT(fsdp_cast(s, x, FSDP_DTYPE_F16) == x);
    ASSERT(!fsdp_cast(s, x, FSDP_DTYPE_I32));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "to int32, not float32");
    fsdp_scope_close(s);
    fsdp_device_destroy(device);
}

/* Values beyond float16 become infinite; values below its smallest subnormal become 0. */
TEST(a_cast_to_float16_overflows_to_infinity)
{
    static const float values[] = {65519.0f, 65520.0f, -1e30f, 0x1p-24f, 0x1p-26f, 0x1.8p-25f};
    static const float want[] = {65504.0f, (float)INFINITY, -(float)INFINITY, 0x1p-24f,
                                 0.0f,     0x1p-24f};
    float got[6];
    fsdp_device *device;
    fsdp_scope *s;
    fsdp_tensor *x;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 1, (const int64_t[]){6}, values,
                                    FSDP_TAG_DATA, &x));
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_cast(s, x, FSDP_DTYPE_F16), got));
    for (int i = 0; i < 6; i++)
        ASSERT(got[i] == want[i]);
    fsdp_scope_close(s);
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}
