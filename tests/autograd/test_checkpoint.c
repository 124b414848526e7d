/* Parts that run a second time in backward: gradients have the same bits as without a second run,
 * even if inputs or results of the part are the same tensor or leaves. */
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

/* Its results are a product and the weight of that product. */
static void returns_its_weight(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    const leaves *l = self_of(self);
    *out = (fsdp_args){.t = {fsdp_linear(s, in->t[0], l->w[1], NULL), l->w[1]}, .n = 2};
}

/* Reads the two inputs alternately, so the order of additions matters if they are one tensor. */
static void reads_in_turn(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    const leaves *l = self_of(self);
    fsdp_tensor *a = fsdp_linear(s, in->t[0], l->w[1], NULL);
    fsdp_tensor *b = fsdp_linear(s, in->t[1], l->w[2], NULL);
    fsdp_tensor *c = fsdp_tanh(s, fsdp_linear(s, in->t[0], l->w[3], NULL));
    *out = (fsdp_args){.t = {fsdp_add(s, fsdp_add(s, a, b), c)}, .n = 1};
}

/* It has two sums: one of a product that nothing else holds, and one of a product that tanh saved.
 * Records which of them reused the product's memory, in the first and in the second run. */
static struct {
    int runs;
    bool in_place[2][2];
} sums;

static fsdp_tensor *add_and_record(fsdp_scope *s, fsdp_tensor *product, fsdp_tensor *to, int which)
{
    fsdp_tensor *sum = fsdp_add_(s, product, to);
    if (sum && sums.runs < 2)
        sums.in_place[sums.runs][which] = fsdp_tensor_data(sum) == fsdp_tensor_data(product);
    return sum;
}

static void adds_in_place(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    const leaves *l = self_of(self);
    fsdp_tensor *alone = fsdp_linear(s, in->t[0], l->w[1], NULL);
    fsdp_tensor *saved = fsdp_linear(s, in->t[0], l->w[2], NULL), *bent = fsdp_gelu(s, saved);
    fsdp_tensor *a = add_and_record(s, alone, in->t[0], 0), *b = add_and_record(s, saved, bent, 1);
    sums.runs++;
    fsdp_tensor *y = fsdp_linear(s, fsdp_mul(s, a, b), l->w[3], NULL);
    *out = (fsdp_args){.t = {fsdp_scale(s, y, 0.01f)}, .n = 1}; /* otherwise the slope of tanh
                                                                   would be 0 */
}

/* loss = sum(tanh(part(w[0] x, ...)) w^T), where w is the part's second result or w[0]. */
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

/* A weight that is a result of the part remains the same leaf for its readers after the part. */
TEST(a_returned_weight_gets_the_gradients_of_both_uses)
{
    compare(t, returns_its_weight, 1);
}

TEST(one_tensor_as_two_inputs_gets_the_same_gradient)
{
    compare(t, reads_in_turn, 2);
}

TEST(a_sum_in_the_second_run_reuses_the_memory_of_a_product)
{
    sums.runs = 0;
    compare(t, adds_in_place, 1);
    CHECK_HERE();
    sums.runs = 0;
    float grads[LEAVES][ROWS * WIDTH];
    train(t, adds_in_place, 1, true, grads);
    CHECK_HERE();
    ASSERT_INT(sums.runs, 2);
    ASSERT(!sums.in_place[0][0] && !sums.in_place[0][1]);
    ASSERT(sums.in_place[1][0] && !sums.in_place[1][1]);
}

/* A part that looks up rows. The owner of their gradients knows about the lookup from the first run
 * on, and no lookup is counted twice. */
static void looks_up(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    static const int32_t ids[ROWS] = {3, 1, 4, 1, 5, 2, 6, 5, 3, 5};
    fsdp_tensor *const *table = self;
    (void)in;
    *out = (fsdp_args){.t = {fsdp_tanh(s, fsdp_embedding(s, ids, ROWS, *table, -1))}, .n = 1};
}

TEST(a_lookup_in_a_part_is_known_from_its_first_run)
{
    const int64_t shape[2] = {WIDTH, WIDTH};
    float grads[2][WIDTH * WIDTH];
    for (int again = 0; again < 2; again++) {
        fsdp_device *device;
        fsdp_tape *tape;
        fsdp_scope *s;
        fsdp_args none = {.n = 0}, out = {.n = 0};
        ASSERT_OK(fsdp_device_create(NULL, &device));
        ASSERT_OK(fsdp_tape_create(&tape));
        ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
        fsdp_tensor *table = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, shape, 1);
        CHECK_HERE();
        ASSERT_OK(fsdp_tensor_set_requires_grad(table, true));
        if (again)
            fsdp_checkpoint(s, NULL, looks_up, &table, sizeof table, &none, &out);
        else
            looks_up(s, &table, &none, &out);
        fsdp_tensor *loss = fsdp_sum(s, fsdp_mul(s, out.t[0], out.t[0]));
        ASSERT_OK(fsdp_scope_status(s));
        const fsdp_grad_sink *sink = table->sink;
        for (int after = 0; after < 2; after++) {
            ASSERT(sink->looked_up && !sink->read_whole);
            ASSERT_INT(sink->lookups, ROWS);
            ASSERT_INT(sink->n_readers, !after);
            if (!after)
                ASSERT_OK(fsdp_backward(tape, &loss, NULL, 1));
        }
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(table), grads[again]));
        fsdp_scope_close(s);
        fsdp_tape_destroy(tape);
        fsdp_tensor_release(table);
        fsdp_device_destroy(device);
    }
    ASSERT(memcmp(grads[0], grads[1], sizeof grads[0]) == 0 && grads[0][WIDTH] != 0.0f);
}
