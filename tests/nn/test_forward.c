/* Custom modules written with the public headers: forwards, layers, errors without memory. */
#include <fsdp.h>

#include "src/tensor/device.h"
#include "tests/test.h"

typedef struct head {
    fsdp_module *norm, *linear;
    int calls;
} head;

static void head_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    head *m = fsdp_module_impl(self);
    m->calls++;
    fsdp_tensor *x = fsdp_layer_norm_forward(s, m->norm, in->t[0], 1e-5f);
    *out = (fsdp_args){.t = {fsdp_linear_forward(s, m->linear, x)}, .n = 1};
}

static void embed_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    static const int32_t ids[] = {2, 0};
    (void)in;
    *out = (fsdp_args){.t = {fsdp_embedding_forward(s, self, ids, 2)}, .n = 1};
}

static fsdp_status build(head *impl, bool bias, fsdp_module **root)
{
    const fsdp_init ones = {.mean = 1.0f};
    FSDP_TRY(fsdp_module_create("Head", root));
    fsdp_module_set_forward(*root, head_forward, impl, NULL);
    FSDP_TRY(fsdp_layer_norm_create(2, &impl->norm));
    FSDP_TRY(fsdp_module_add_child(*root, "norm", impl->norm));
    FSDP_TRY(fsdp_linear_create(2, 3, bias, ones, &impl->linear));
    return fsdp_module_add_child(*root, "linear", impl->linear);
}

TEST(a_custom_forward_computes_and_gets_gradients)
{
    head impl = {0};
    fsdp_module *m;
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    fsdp_tensor *x;
    float bias[3] = {1.0f, 2.0f, 4.0f}, y[6], grad[3];
    double sum;
    ASSERT_OK(build(&impl, true, &m));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_module_to_empty(m, device));
    ASSERT_OK(fsdp_module_init(m, 1));
    memcpy(fsdp_tensor_data(fsdp_parameter_data(fsdp_module_parameter(impl.linear, "bias"))), bias,
           sizeof bias);
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, (const int64_t[]){2, 2},
                                    (const float[]){1.0f, 3.0f, -5.0f, 9.0f}, FSDP_TAG_DATA, &x));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_tensor *out = fsdp_module_call1(s, m, x);
    fsdp_tensor *total = fsdp_sum(s, out);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_tensor_to_floats(out, y));
    for (int i = 0; i < 6; i++) /* a normalized pair adds up to 0: only the bias remains */
        ASSERT(y[i] > bias[i % 3] - 1e-5f && y[i] < bias[i % 3] + 1e-5f);
    ASSERT_OK(fsdp_tensor_item(total, &sum));
    ASSERT(sum > 14.0 - 1e-4 && sum < 14.0 + 1e-4);
    ASSERT_OK(fsdp_backward(tape, &total, NULL, 1));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_parameter_grad(fsdp_module_parameter(impl.linear, "bias")),
                                    grad));
    for (int i = 0; i < 3; i++)
        ASSERT(grad[i] == 2.0f);
    ASSERT_INT(impl.calls, 1);
    fsdp_scope_close(s);
    fsdp_tensor_release(x);
    fsdp_tape_destroy(tape);
    fsdp_module_destroy(m);
    fsdp_device_destroy(device);
}

TEST(a_layer_of_another_kind_is_an_error_that_names_it)
{
    fsdp_module *embedding, *empty;
    fsdp_device *device;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_embedding_create(3, 2, (fsdp_init){.mean = 0.5f}, &embedding));
    fsdp_module_set_forward(embedding, embed_forward, NULL, NULL);
    ASSERT_OK(fsdp_module_to_empty(embedding, device));
    ASSERT_OK(fsdp_module_init(embedding, 1));
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    fsdp_args out = fsdp_module_call(s, embedding, NULL, (fsdp_args){.n = 0});
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_INT(fsdp_tensor_numel(out.t[0]), 4);
    ASSERT_OK(fsdp_module_create("Dropout", &empty));
    ASSERT(!fsdp_linear_forward(s, empty, out.t[0]));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "Dropout: it has no parameter 'weight'");
    fsdp_scope_close(s);
    fsdp_module_destroy(empty);
    fsdp_module_destroy(embedding);
    fsdp_device_destroy(device);
}

TEST(a_forward_without_memory_names_the_parameter)
{
    head impl = {0};
    fsdp_module *m, *root;
    fsdp_device *device;
    fsdp_scope *s;
    fsdp_tensor *x;
    ASSERT_OK(fsdp_module_create("Model", &root));
    ASSERT_OK(build(&impl, false, &m));
    ASSERT_OK(fsdp_module_add_child(root, "head", m));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(
        fsdp_tensor_create(device, FSDP_DTYPE_F32, 2, (const int64_t[]){1, 2}, FSDP_TAG_DATA, &x));
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    ASSERT(!fsdp_module_call1(s, m, x));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_STATE,
                 "parameter 'head.norm.weight' has no memory yet: call fsdp_module_to_empty() or "
                 "fsdp_fully_shard(), then load or init");
    fsdp_scope_close(s);
    fsdp_tensor_release(x);
    fsdp_module_destroy(root);
    fsdp_device_destroy(device);
}

static void call_child(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    *out = (fsdp_args){.t = {fsdp_module_call1(s, fsdp_module_child(self, 0), in->t[0])}, .n = 1};
}

/* The message names the innermost module, once. */
TEST(missing_memory_names_the_module)
{
    const int64_t shape[] = {256, 2};
    head impl = {0};
    fsdp_module *outer, *m;
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    fsdp_tensor *x;
    ASSERT_OK(build(&impl, true, &m));
    ASSERT_OK(fsdp_module_create("Model", &outer));
    fsdp_module_set_forward(outer, call_child, NULL, NULL);
    ASSERT_OK(fsdp_module_add_child(outer, "head", m));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_module_to_empty(outer, device));
    ASSERT_OK(fsdp_module_init(outer, 1));
    float values[512] = {0};
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, shape, values, FSDP_TAG_DATA, &x));
    /* 1 KiB is not enough for the result of the norm, and 5 KiB not for that of linear. */
    for (int kib = 1; kib <= 5; kib += 4) {
        fsdp_memory_stats stats;
        fsdp_device_memory(device, &stats);
        fsdp_allocator_set_limit(device->allocator, stats.allocated + (kib << 10));
        ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
        (void)fsdp_module_call1(s, outer, x);
        ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_NOMEM, "forward of head: ");
        ASSERT(strstr(fsdp_last_error(), "(activation) on top of"));
        ASSERT(!strstr(fsdp_last_error() + 1, "forward of"));
        fsdp_scope_close(s);
        fsdp_allocator_set_limit(device->allocator, 0);
    }
    fsdp_tensor_release(x);
    fsdp_tape_destroy(tape);
    fsdp_module_destroy(outer);
    fsdp_device_destroy(device);
}
