/* Linear layers of the same input, joined and one by one. The fake device joins products
 * (Note [Joined products] in src/autograd/joined_linear.h), and the CPU does not. */
#include "src/autograd/joined_linear.h"
#include "src/tensor/device.h"
#include "tests/autograd/gradcheck.h"

enum {
    ROWS = 7,
    WIDTH = 24,
    FEATURES = 16,
    HEADS = 2
};

/* What one device computes from x, three weights and three biases, which are neighbors in memory.
 */
typedef struct results {
    float out[ROWS * FEATURES], dx[ROWS * WIDTH], dw[3 * FEATURES * WIDTH], db[3 * FEATURES];
} results;

static void read_grad(fsdp_test *t, const fsdp_tensor *leaf, float *to)
{
    ASSERT(fsdp_tensor_grad(leaf));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(leaf), to));
}

static void compute(fsdp_test *t, const char *name, bool has_bias, results *r)
{
    static const int32_t offsets[] = {0, 3, ROWS};
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = name}, &device));
    fsdp_tensor *x =
        op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){ROWS, WIDTH}, 1);
    fsdp_tensor *all_w =
        op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){3 * FEATURES, WIDTH}, 2);
    fsdp_tensor *all_b =
        op_random_tensor(t, device, FSDP_DTYPE_F32, 1, (const int64_t[]){3 * FEATURES}, 3);
    CHECK_HERE();
    fsdp_tensor *w[3], *b[3], *qkv[3];
    ASSERT_OK(fsdp_tensor_set_requires_grad(x, true));
    for (int i = 0; i < 3; i++) {
        ASSERT_OK(fsdp_tensor_narrow(all_w, i * FEATURES, (i + 1) * FEATURES, &w[i]));
        ASSERT_OK(fsdp_tensor_narrow(all_b, i * FEATURES, (i + 1) * FEATURES, &b[i]));
        ASSERT_OK(fsdp_tensor_set_requires_grad(w[i], true));
        ASSERT_OK(fsdp_tensor_set_requires_grad(b[i], true));
    }
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_joined_linear(s, x, w, has_bias ? b : NULL, 3, qkv);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT(fsdp_are_joined_columns(qkv, 3) == device->traits->joins_products);
    fsdp_tensor *out = fsdp_attention(
        s, qkv[0], qkv[1], qkv[2], NULL,
        &(fsdp_attention_options){.heads = HEADS, .n_sequences = 2, .q_offsets = offsets});
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_tensor_to_floats(out, r->out));
    fsdp_tensor *loss = fsdp_sum(s, fsdp_mul(s, out, out));
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_backward(tape, &loss, NULL, 1));
    read_grad(t, x, r->dx);
    for (int i = 0; i < 3; i++) {
        read_grad(t, w[i], r->dw + (size_t)i * FEATURES * WIDTH);
        if (has_bias)
            read_grad(t, b[i], r->db + (size_t)i * FEATURES);
    }
    CHECK_HERE();
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    for (int i = 0; i < 3; i++) {
        fsdp_tensor_release(w[i]);
        fsdp_tensor_release(b[i]);
    }
    fsdp_tensor_release(x);
    fsdp_tensor_release(all_w);
    fsdp_tensor_release(all_b);
    fsdp_device_destroy(device);
}

static void check_near(fsdp_test *t, const char *what, const float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(x[i] - y[i]) <= 1e-5f * (1.0f + fabsf(y[i]))))
            FAIL("%s[%zu] is %.9g, one by one %.9g", what, i, (double)x[i], (double)y[i]);
}

TEST(joined_layers_equal_layers_one_by_one)
{
    static results one, joined;
    for (int has_bias = 0; has_bias < 2; has_bias++) {
        compute(t, "cpu", has_bias, &one);
        compute(t, "fake", has_bias, &joined);
        CHECK_HERE();
        check_near(t, "out", joined.out, one.out, ROWS * FEATURES);
        check_near(t, "dx", joined.dx, one.dx, ROWS * WIDTH);
        check_near(t, "dw", joined.dw, one.dw, 3 * FEATURES * WIDTH);
        check_near(t, "db", joined.db, one.db, has_bias ? 3 * FEATURES : 0);
        CHECK_HERE();
    }
}
