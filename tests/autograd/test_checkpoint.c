/* Parts that run a second time in backward: gradients have the bits of a run without that, also
 * where the part's inputs and results are not each a tensor of its own. */
#include "src/autograd/checkpoint.h"
#include "tests/autograd/gradcheck.h"

enum {
    ROWS = 16,
    WIDTH = 8,
    LEAVES = 5
};

/* x [ROWS, WIDTH] and weights [WIDTH, WIDTH]. */
typedef struct leaves {
    fsdp_tensor *x, *w[LEAVES - 1];
} leaves;

static const leaves *self_of(const void *self)
{
    return *(const leaves *const *)self;
}

/* Its results are a product and the weight of it. */
static void returns_its_weight(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    const leaves *l = self_of(self);
    *out = (fsdp_args){.t = {fsdp_linear(s, in->t[0], l->w[1], NULL), l->w[1]}, .n = 2};
}

/* Reads both inputs in turn, so that the order of adding shows where they are one tensor. */
static void reads_in_turn(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    const leaves *l = self_of(self);
    fsdp_tensor *a = fsdp_linear(s, in->t[0], l->w[1], NULL);
    fsdp_tensor *b = fsdp_linear(s, in->t[1], l->w[2], NULL);
    fsdp_tensor *c = fsdp_tanh(s, fsdp_linear(s, in->t[0], l->w[3], NULL));
    *out = (fsdp_args){.t = {fsdp_add(s, fsdp_add(s, a, b), c)}, .n = 1};
}

/* loss = sum(tanh(part(w[0] x, ...)) w^T), w the part's second result or w[0]. */
static void train(fsdp_test *t, fsdp_segment_fn *part, int n_in, bool is_checkpointed,
                  float grads[LEAVES][ROWS * WIDTH])
{
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    leaves l, *self = &l;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_tensor **all[LEAVES] = {&l.x, &l.w[0], &l.w[1], &l.w[2], &l.w[3]};
    for (int i = 0; i < LEAVES; i++) {
        const int64_t shape[2] = {i ? WIDTH : ROWS, WIDTH};
        *all[i] = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, shape, (uint64_t)i + 1);
        CHECK_HERE();
        ASSERT_OK(fsdp_tensor_set_requires_grad(*all[i], true));
    }
    fsdp_tensor *h = fsdp_linear(s, l.x, l.w[0], NULL);
    const fsdp_args in = {.t = {h, h}, .n = n_in};
    fsdp_args out = {.n = 0};
    if (is_checkpointed)
        fsdp_checkpoint(s, NULL, part, &self, sizeof self, &in, &out);
    else
        part(s, &self, &in, &out);
    fsdp_tensor *last = out.n > 1 ? out.t[1] : l.w[0];
    fsdp_tensor *loss = fsdp_sum(s, fsdp_linear(s, fsdp_tanh(s, out.t[0]), last, NULL));
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_backward(tape, &loss, NULL, 1));
    for (int i = 0; i < LEAVES; i++)
        if (fsdp_tensor_grad(*all[i]))
            ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(*all[i]), grads[i]));
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    for (int i = 0; i < LEAVES; i++)
        fsdp_tensor_release(*all[i]);
    ASSERT_INT(op_allocated(device), 0);
    fsdp_device_destroy(device);
}

static void compare(fsdp_test *t, fsdp_segment_fn *part, int n_in)
{
    float plain[LEAVES][ROWS * WIDTH] = {0}, again[LEAVES][ROWS * WIDTH] = {0};
    train(t, part, n_in, false, plain);
    CHECK_HERE();
    train(t, part, n_in, true, again);
    CHECK_HERE();
    for (int i = 0; i < LEAVES; i++)
        for (int k = 0; k < ROWS * WIDTH; k++)
            ASSERT_F32(again[i][k], plain[i][k]);
    ASSERT(plain[0][0] != 0.0f && plain[1][0] != 0.0f && plain[2][0] != 0.0f);
}

/* What is read after the part as a result of it is the weight all the same. */
TEST(a_weight_that_is_returned_gets_the_gradient_of_both_uses)
{
    compare(t, returns_its_weight, 1);
}

TEST(one_tensor_as_two_inputs_is_added_to_as_without_a_second_run)
{
    compare(t, reads_in_turn, 2);
}
