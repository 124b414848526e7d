/* mse_loss and binary_cross_entropy_with_logits: see gradcheck.h for what each op_check tests. */
#include "src/tensor/tensor.h"
#include "tests/autograd/gradcheck.h"

typedef struct loss_arg {
    const float *targets;
    bool binary;
    float factor, after; /* after: factor applied to the loss, so its gradient is not 1 */
} loss_arg;

static fsdp_tensor *apply(fsdp_scope *s, fsdp_tensor *x, const loss_arg *a)
{
    return a->binary ? fsdp_binary_cross_entropy_with_logits(s, x, a->targets, a->factor)
                     : fsdp_mse_loss(s, x, a->targets, a->factor);
}

static fsdp_tensor *run_loss(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    const loss_arg *a = arg;
    fsdp_tensor *x = fsdp_cast(s, in[0], FSDP_DTYPE_F32);
    fsdp_tensor *loss = apply(s, x, a);
    fsdp_tensor *out = fsdp_scale(s, loss, a->after);
    if (x != in[0])
        fsdp_drop(s, x);
    fsdp_drop(s, loss);
    return out;
}

static void naive_loss(const op_case *c, const double *const *in, double *out)
{
    const loss_arg *a = c->arg;
    const int64_t rows = op_size(c, 0, 0), width = op_size(c, 0, 1);
    out[0] = 0.0;
    for (int64_t i = 0; i < rows * width; i++) {
        const double x = in[0][i], t = (double)a->targets[i], p = 1.0 / (1.0 + exp(-x));
        if (isnan(a->targets[i - i % width]))
            continue;
        out[0] += (a->binary ? -t * log(p) - (1.0 - t) * log(1.0 - p) : (x - t) * (x - t)) /
                  (double)width * (double)a->factor * (double)a->after;
    }
}

TEST(losses_of_numbers_equal_loops_and_differences)
{
    static const float all[] = {0, 1, 0.25f, 1, 0, 0, 1, 1, 0, 0.5f, 0, 1},
                       some[] = {0, 1, 1, NAN, NAN, NAN, 1, 0, 0.5f, NAN, NAN, NAN};
    for (int i = 0; i < 8; i++) {
        const loss_arg arg = {i & 1 ? some : all, (i & 2) != 0, i & 4 ? 0.25f : 1.0f,
                              i & 4 ? -1.5f : 1.0f};
        op_check(t, &(op_case){.name = arg.binary ? "binary_cross_entropy" : "mse_loss",
                               .run = run_loss,
                               .naive = naive_loss,
                               .arg = &arg,
                               .n_in = 1,
                               .in = {{2, {4, 3}}}});
        CHECK_HERE();
    }
    op_check(t, &(op_case){.name = "mse_loss of one label",
                           .run = run_loss,
                           .naive = naive_loss,
                           .arg = &(loss_arg){all, false, 0.5f, 1.0f},
                           .n_in = 1,
                           .in = {{2, {5, 1}}}});
}

/* Large logits do not overflow: the loss of 1000 is 1000 for target 0, and 0 for target 1. */
TEST(large_logits_have_a_finite_loss)
{
    static const float logits[] = {1000, -1000, 1000, -1000}, targets[] = {0, 1, 1, 0};
    static const int64_t shape[] = {4, 1};
    fsdp_device *device;
    fsdp_scope *s;
    fsdp_tensor *x, *loss;
    double value;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(
        fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, shape, logits, FSDP_TAG_ACTIVATION, &x));
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    loss = fsdp_binary_cross_entropy_with_logits(s, x, targets, 1.0f);
    ASSERT(loss);
    ASSERT_OK(fsdp_tensor_item(loss, &value));
    ASSERT_F32(value, 2000);
    fsdp_scope_close(s);
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}

TEST(losses_of_numbers_name_a_wrong_shape_and_dtype)
{
    static const float targets[21] = {0};
    fsdp_device *device;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_tensor *half = op_random_tensor(t, device, FSDP_DTYPE_BF16, 2, (const int64_t[]){3, 7}, 1);
    fsdp_tensor *flat = op_random_tensor(t, device, FSDP_DTYPE_F32, 1, (const int64_t[]){7}, 2);
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    ASSERT(!fsdp_mse_loss(s, half, targets, 1.0f));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "mse_loss: logits is not float32");
    fsdp_scope_close(s);
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    ASSERT(!fsdp_binary_cross_entropy_with_logits(s, flat, targets, 1.0f));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID,
                 "binary_cross_entropy_with_logits: logits is [7], not [T, V]");
    fsdp_scope_close(s);
    fsdp_tensor_release(half);
    fsdp_tensor_release(flat);
    fsdp_device_destroy(device);
}
