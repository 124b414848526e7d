/* cross_entropy: see gradcheck.h for what each op_check tests. */
#include "src/tensor/tensor.h"
#include "tests/autograd/gradcheck.h"

typedef struct loss_arg {
    const int32_t *labels;
    float factor, after; /* after: factor applied to the loss, so its gradient is not 1 */
} loss_arg;

static fsdp_tensor *run_loss(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    const loss_arg *a = arg;
    fsdp_tensor *loss = fsdp_cross_entropy(s, in[0], a->labels, a->factor);
    fsdp_tensor *out = fsdp_scale(s, loss, a->after);
    fsdp_drop(s, loss);
    return out;
}

static void naive_loss(const op_case *c, const double *const *in, double *out)
{
    const loss_arg *a = c->arg;
    const int64_t rows = op_size(c, 0, 0), classes = op_size(c, 0, 1);
    out[0] = 0.0;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0, mean = 0.0;
        for (int64_t v = 0; v < classes; v++) {
            sum += exp(in[0][r * classes + v]);
            mean += in[0][r * classes + v] / (double)classes;
        }
        if (a->labels[r] >= 0)
            out[0] +=
                (log(sum) - (1.0 - (double)c->label_smoothing) * in[0][r * classes + a->labels[r]] -
                 (double)c->label_smoothing * mean) *
                (double)a->factor * (double)a->after;
    }
}

TEST(cross_entropy_equals_loops_and_differences)
{
    static const int32_t all[] = {0, 2, 1, 1, 0}, some[] = {-100, 2, -1, 1, -100},
                         none[] = {-100, -100, -100, -100, -100}, zero[] = {0, 0, 0, 0, 0};
    static const loss_arg args[] = {
        {all, 1.0f, 1.0f}, {all, 0.2f, -1.5f}, {some, 0.5f, 0.25f}, {none, 1.0f, 2.0f}};
    for (int i = 0; i < 8; i++) {
        op_check(t, &(op_case){.name = i < 4 ? "cross_entropy" : "cross_entropy, smoothed",
                               .run = run_loss,
                               .naive = naive_loss,
                               .arg = &args[i % 4],
                               .label_smoothing = i < 4 ? 0.0f : 0.25f,
                               .n_in = 1,
                               .in = {{2, {5, 3}}}});
        CHECK_HERE();
    }
    op_check(t, &(op_case){.name = "cross_entropy of one class",
                           .run = run_loss,
                           .naive = naive_loss,
                           .arg = &(loss_arg){zero, 1.0f, 1.0f},
                           .n_in = 1,
                           .in = {{2, {5, 1}}}});
}

/* The values are those of transformers' LabelSmoother(epsilon=0.1), in float64. */
TEST(smoothed_labels_give_the_loss_of_transformers)
{
    static const float logits[] = {0.5f, -1.0f, 2.0f, 0.25f, 1.5f, 0.0f, -0.5f, 3.0f};
    static const int64_t shape[] = {2, 4};
    static const int32_t labels[] = {2, 0};
    static const float grad[] = {0.0646174126f, 0.00470722063f, -0.116883735f,    0.0475591014f,
                                 -0.376885827f, 0.00660310418f, -0.000913381622f, 0.371196104f};
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    fsdp_tensor *x;
    float found[8];
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, &(fsdp_scope_options){.label_smoothing = 0.1f}, &s));
    ASSERT_OK(
        fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, shape, logits, FSDP_TAG_ACTIVATION, &x));
    ASSERT_OK(fsdp_tensor_set_requires_grad(x, true));
    fsdp_tensor *loss = fsdp_cross_entropy(s, x, labels, 0.5f);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_tensor_to_floats(loss, found));
    ASSERT_NEAR(found[0], 1.170143126, 1e-6);
    ASSERT_OK(fsdp_backward(tape, &loss, NULL, 1));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(x), found));
    for (int i = 0; i < 8; i++)
        ASSERT_NEAR(found[i], grad[i], 1e-6);
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}

/* The caller may reuse its labels between forward and backward, and the logits are not changed. */
TEST(cross_entropy_copies_labels_and_leaves_logits)
{
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    float before[4], after[4];
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){2, 2}, 2);
    ASSERT_OK(fsdp_tensor_set_requires_grad(x, true));
    ASSERT_OK(fsdp_tensor_to_floats(x, before));
    int32_t labels[2] = {1, 0};
    fsdp_tensor *loss = fsdp_cross_entropy(s, x, labels, 1.0f);
    labels[0] = labels[1] = 999;
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_backward(tape, &loss, NULL, 1));
    ASSERT_OK(fsdp_tensor_to_floats(x, after));
    ASSERT(memcmp(before, after, sizeof before) == 0);
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(x), after));
    ASSERT(after[0] > 0.0f && after[1] < 0.0f && after[2] < 0.0f && after[3] > 0.0f);
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}

TEST(cross_entropy_names_the_wrong_label_and_shape)
{
    static const int32_t labels[] = {0, 6, 7};
    fsdp_device *device;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){3, 7}, 1);
    fsdp_tensor *flat = op_random_tensor(t, device, FSDP_DTYPE_F32, 1, (const int64_t[]){7}, 2);
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    ASSERT(!fsdp_cross_entropy(s, x, labels, 1.0f));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID,
                 "cross_entropy: label 7 at row 2 is not below the 7 classes");
    fsdp_scope_close(s);
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    ASSERT(!fsdp_cross_entropy(s, flat, labels, 1.0f));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID,
                 "cross_entropy: logits is [7], not [T, V]");
    fsdp_scope_close(s);
    fsdp_tensor_release(x);
    fsdp_tensor_release(flat);
    fsdp_device_destroy(device);
}
