/* The second run of a checkpointed part stops after the last operation that backward needs, and not
 * before. */
#include "src/autograd/checkpoint.h"
#include "src/base/alloc.h"
#include "tests/autograd/gradcheck.h"

enum {
    ROWS = 5,
    WIDTH = 6,
    MARKS = 4,
    LEAVES = 4
};

/* Leaves x [ROWS, WIDTH], w1, w2 [WIDTH, WIDTH], scale [WIDTH]. has_data records which marked
 * results of the part have values, in each run. */
typedef struct bench {
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    fsdp_tensor *leaves[LEAVES];
    const int32_t *labels; /* labels of a head, [ROWS] */
    int runs;
    bool has_data[2][MARKS];
    fsdp_status read; /* status of reading the part's result in the second run */
} bench;

enum {
    X,
    W1,
    W2,
    SCALE
};

static const int32_t some_labels[ROWS] = {0, 5, -100, 2, 2},
                     no_labels[ROWS] = {-100, -100, -100, -100, -100};

static void open_bench(fsdp_test *t, bench *b, bool needs_grad)
{
    static const int64_t shape[LEAVES][2] = {
        {ROWS, WIDTH}, {WIDTH, WIDTH}, {WIDTH, WIDTH}, {WIDTH, 0}};
    *b = (bench){.labels = some_labels};
    ASSERT_OK(fsdp_device_create(NULL, &b->device));
    ASSERT_OK(fsdp_tape_create(&b->tape));
    ASSERT_OK(fsdp_scope_open(b->device, b->tape, &(fsdp_scope_options){.training = true}, &b->s));
    for (int i = 0; i < LEAVES; i++) {
        b->leaves[i] = op_random_tensor(t, b->device, FSDP_DTYPE_F32, i == SCALE ? 1 : 2, shape[i],
                                        (uint64_t)i + 1);
        CHECK_HERE();
        ASSERT_OK(fsdp_tensor_set_requires_grad(b->leaves[i], i == X || needs_grad));
    }
}

static void close_bench(fsdp_test *t, bench *b)
{
    fsdp_scope_close(b->s);
    fsdp_tape_destroy(b->tape);
    for (int i = 0; i < LEAVES; i++)
        fsdp_tensor_release(b->leaves[i]);
    ASSERT_INT(op_allocated(b->device), 0);
    fsdp_device_destroy(b->device);
}

/* Mark `y` as result i of the part. */
static fsdp_tensor *mark_result(bench *b, int i, fsdp_tensor *y)
{
    if (y && b->runs < 2)
        b->has_data[b->runs][i] = fsdp_tensor_has_data(y);
    return y;
}

static bench *self_of(const void *self)
{
    return *(bench *const *)self;
}

/* --- parts --- */

/* The second half of a block: x + dropout(w2 relu(w1 norm(x))). */
static void feed_forward(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    bench *b = self_of(self);
    fsdp_tensor *const *leaves = b->leaves;
    fsdp_tensor *normed = fsdp_rms_norm(s, in->t[0], leaves[SCALE], 1e-6f);
    fsdp_tensor *wide = fsdp_linear(s, mark_result(b, 0, normed), leaves[W1], NULL);
    fsdp_tensor *hidden = fsdp_relu_(s, wide);
    fsdp_tensor *y = fsdp_linear(s, mark_result(b, 1, hidden), leaves[W2], NULL);
    fsdp_tensor *dropped = fsdp_dropout(s, mark_result(b, 2, y), 0.25f);
    *out = (fsdp_args){.t = {mark_result(b, 3, fsdp_add(s, in->t[0], dropped))}, .n = 1};
    b->runs++;
}

/* The same without the addition and with a norm at the end, as in BERT: everything is read. */
static void ends_in_a_norm(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    bench *b = self_of(self);
    fsdp_tensor *const *leaves = b->leaves;
    fsdp_tensor *hidden = fsdp_gelu(s, fsdp_linear(s, in->t[0], leaves[W1], NULL));
    fsdp_tensor *y = fsdp_linear(s, mark_result(b, 1, hidden), leaves[W2], NULL);
    *out = (fsdp_args){.t = {fsdp_rms_norm(s, mark_result(b, 2, y), leaves[SCALE], 1e-6f)}, .n = 1};
    mark_result(b, 3, out->t[0]);
    b->runs++;
}

/* The same with a norm of which backward reads the moments, but not the result. */
static void ends_in_a_layer_norm(fsdp_scope *s, const void *self, const fsdp_args *in,
                                 fsdp_args *out)
{
    bench *b = self_of(self);
    fsdp_tensor *const *leaves = b->leaves;
    fsdp_tensor *y = fsdp_linear(s, in->t[0], leaves[W1], NULL);
    fsdp_tensor *normed = fsdp_layer_norm(s, mark_result(b, 2, y), leaves[SCALE], NULL, 1e-6f);
    *out = (fsdp_args){.t = {mark_result(b, 3, normed)}, .n = 1};
    b->runs++;
}

/* Here a product reads the norm's result. */
static void continues_after_a_layer_norm(fsdp_scope *s, const void *self, const fsdp_args *in,
                                         fsdp_args *out)
{
    bench *b = self_of(self);
    fsdp_tensor *const *leaves = b->leaves;
    fsdp_tensor *y = fsdp_linear(s, in->t[0], leaves[W1], NULL);
    fsdp_tensor *normed = fsdp_layer_norm(s, y, leaves[SCALE], NULL, 1e-6f);
    fsdp_tensor *z = fsdp_linear(s, mark_result(b, 2, normed), leaves[W2], NULL);
    *out = (fsdp_args){.t = {mark_result(b, 3, z)}, .n = 1};
    b->runs++;
}

/* One product, of a tensor that is kept anyway. */
static void one_product(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    bench *b = self_of(self);
    *out = (fsdp_args){.t = {mark_result(b, 3, fsdp_linear(s, in->t[0], b->leaves[W1], NULL))},
                       .n = 1};
    b->runs++;
}

/* A part within the part. */
static void nested(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    bench *b = self_of(self);
    fsdp_args before = {.t = {mark_result(b, 0, fsdp_scale(s, in->t[0], 0.5f))}, .n = 1}, after;
    fsdp_checkpoint(s, NULL, feed_forward, &b, sizeof b, &before, &after);
    *out = (fsdp_args){.t = {fsdp_linear(s, after.t[0], b->leaves[W2], NULL)}, .n = 1};
}

/* A head with its loss, whose forward computes the gradients. */
static void head(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    bench *b = self_of(self);
    *out = (fsdp_args){
        .t = {fsdp_linear_cross_entropy(s, in->t[0], b->leaves[W1], b->labels, 0.5f)}, .n = 1};
    b->runs++;
}

static void norm_and_head(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    bench *b = self_of(self);
    fsdp_tensor *normed = fsdp_rms_norm(s, in->t[0], b->leaves[SCALE], 1e-6f);
    head(s, self, &(fsdp_args){.t = {normed}, .n = 1}, out);
}

/* The part's own code reads its result. */
static void reads_its_result(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    bench *b = self_of(self);
    double value;
    *out = (fsdp_args){.t = {fsdp_sum(s, fsdp_linear(s, in->t[0], b->leaves[W1], NULL))}, .n = 1};
    b->read = b->runs++ ? fsdp_tensor_item(out->t[0], &value) : FSDP_OK;
}

/* Computes more in the second run than in the first. */
static void fickle(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    bench *b = self_of(self);
    fsdp_tensor *y = fsdp_linear(s, in->t[0], b->leaves[W1], NULL);
    *out = (fsdp_args){.t = {b->runs++ ? fsdp_gelu(s, y) : y}, .n = 1};
}

/* --- tests of the parts --- */

/* loss = sum(part(x)); the gradients of all leaves go to `grads`. */
static fsdp_status train(bench *b, fsdp_segment_fn *part, const fsdp_checkpoint_options *options,
                         float grads[LEAVES][WIDTH * WIDTH])
{
    const fsdp_args in = {.t = {b->leaves[X]}, .n = 1};
    fsdp_args out = {.n = 0};
    if (options)
        fsdp_checkpoint(b->s, options, part, &b, sizeof b, &in, &out);
    else
        part(b->s, &b, &in, &out);
    fsdp_tensor *loss = fsdp_sum(b->s, out.t[0]);
    FSDP_TRY(fsdp_scope_status(b->s));
    FSDP_TRY(fsdp_backward(b->tape, &loss, NULL, 1));
    for (int i = 0; i < LEAVES; i++)
        if (fsdp_tensor_grad(b->leaves[i]))
            FSDP_TRY(fsdp_tensor_to_floats(fsdp_tensor_grad(b->leaves[i]), grads[i]));
    return FSDP_OK;
}

/* Train `part` with and without checkpointing. `has_data` is that of the second run. */
static void compare(fsdp_test *t, fsdp_segment_fn *part, const fsdp_checkpoint_options *options,
                    bool needs_grad, bool has_data[MARKS])
{
    float plain[LEAVES][WIDTH * WIDTH] = {0}, again[LEAVES][WIDTH * WIDTH] = {0};
    bench b;
    open_bench(t, &b, needs_grad);
    CHECK_HERE();
    ASSERT_OK(train(&b, part, NULL, plain));
    close_bench(t, &b);
    CHECK_HERE();
    open_bench(t, &b, needs_grad);
    CHECK_HERE();
    ASSERT_OK(train(&b, part, options, again));
    ASSERT_INT(b.runs, 2);
    memcpy(has_data, b.has_data[1], sizeof b.has_data[1]);
    close_bench(t, &b);
    CHECK_HERE();
    ASSERT(memcmp(plain, again, sizeof plain) == 0);
    ASSERT(plain[X][0] != 0.0f);
}

static const fsdp_checkpoint_options full = {0}, op = {.keeps_results = true},
                                     all = {.no_early_stop = true};

TEST(the_last_product_and_its_addition_are_skipped)
{
    bool has_data[MARKS];
    for (int kind = 0; kind < 2; kind++) {
        compare(t, feed_forward, kind ? &op : &full, true, has_data);
        CHECK_HERE();
        ASSERT(has_data[0]);
        ASSERT(has_data[1]);
        ASSERT(!has_data[2]);
        ASSERT(!has_data[3]);
    }
    compare(t, one_product, &full, true, has_data);
    CHECK_HERE();
    ASSERT(!has_data[3]);
}

TEST(a_norm_at_the_end_computes_only_its_moments)
{
    bool has_data[MARKS];
    compare(t, ends_in_a_layer_norm, &full, true, has_data);
    CHECK_HERE();
    ASSERT(has_data[2]);
    ASSERT(!has_data[3]);
    compare(t, ends_in_a_layer_norm, &all, true, has_data);
    CHECK_HERE();
    ASSERT(has_data[3]);
    compare(t, continues_after_a_layer_norm, &full, true, has_data);
    CHECK_HERE();
    ASSERT(has_data[2]);
    ASSERT(!has_data[3]);
}

/* It is unknown which operation made the factor of a frozen weight, so everything is computed. */
TEST(results_that_may_be_needed_are_computed)
{
    bool has_data[MARKS];
    compare(t, ends_in_a_norm, &full, true, has_data);
    CHECK_HERE();
    ASSERT(has_data[1]);
    ASSERT(has_data[2]);
    ASSERT(has_data[3]);
    compare(t, feed_forward, &full, false, has_data);
    CHECK_HERE();
    ASSERT(has_data[1]);
}

TEST(no_early_stop_computes_everything)
{
    bool has_data[MARKS];
    compare(t, feed_forward, &all, true, has_data);
    CHECK_HERE();
    for (int i = 0; i < MARKS; i++)
        ASSERT(has_data[i]);
}

/* A part that contains another runs to its end. The inner one, which then runs for the third time,
 * stops. */
TEST(a_part_that_contains_another_does_not_stop)
{
    float plain[LEAVES][WIDTH * WIDTH] = {0}, again[LEAVES][WIDTH * WIDTH] = {0};
    bench b;
    open_bench(t, &b, true);
    CHECK_HERE();
    ASSERT_OK(train(&b, nested, NULL, plain));
    close_bench(t, &b);
    CHECK_HERE();
    open_bench(t, &b, true);
    CHECK_HERE();
    ASSERT_OK(train(&b, nested, &full, again));
    ASSERT_INT(b.runs, 3);
    for (int i = 0; i < MARKS; i++)
        ASSERT(b.has_data[1][i]);
    close_bench(t, &b);
    CHECK_HERE();
    ASSERT(memcmp(plain, again, sizeof plain) == 0);
}

TEST(a_skipped_value_cannot_be_read)
{
    float grads[LEAVES][WIDTH * WIDTH];
    bench b;
    open_bench(t, &b, true);
    CHECK_HERE();
    ASSERT_OK(train(&b, reads_its_result, &full, grads));
    ASSERT_ERROR(b.read, FSDP_ERR_STATE, "no_early_stop");
    close_bench(t, &b);
    CHECK_HERE();
    open_bench(t, &b, true);
    CHECK_HERE();
    ASSERT_OK(train(&b, reads_its_result, &all, grads));
    ASSERT_OK(b.read);
    close_bench(t, &b);
}

TEST(a_different_computation_in_the_second_run_is_an_error)
{
    float grads[LEAVES][WIDTH * WIDTH];
    bench b;
    open_bench(t, &b, true);
    CHECK_HERE();
    ASSERT_ERROR(train(&b, fickle, &full, grads), FSDP_ERR_INVALID,
                 "gelu: its checkpointed module computed something else the first time");
    close_bench(t, &b);
}

/* Fill memory that will be reused, so elements of a gradient which are never written are
 * noticed. */
static void dirty(fsdp_test *t, const bench *b)
{
    const int64_t shape[2] = {WIDTH, WIDTH};
    fsdp_tensor *used[8];
    for (int i = 0; i < 8; i++)
        used[i] = op_random_tensor(t, b->device, FSDP_DTYPE_F32, 2, shape, 9);
    for (int i = 0; i < 8; i++)
        fsdp_tensor_release(used[i]);
}

/* The loss of a head, alone and after a norm, with a frozen body, and with rows without labels. */
TEST(a_loss_is_computed_again)
{
    static fsdp_segment_fn *const parts[] = {head, norm_and_head};
    for (int i = 0; i < 8; i++) {
        float grads[2][LEAVES][WIDTH * WIDTH] = {0};
        const bool is_frozen = i & 2;
        for (int again = 0; again < 2; again++) {
            bench b;
            open_bench(t, &b, true);
            CHECK_HERE();
            b.labels = i & 4 ? no_labels : some_labels;
            ASSERT_OK(fsdp_tensor_set_requires_grad(b.leaves[X], !is_frozen));
            ASSERT_OK(fsdp_tensor_set_requires_grad(b.leaves[SCALE], !is_frozen));
            dirty(t, &b);
            ASSERT_OK(train(&b, parts[i & 1], again ? &full : NULL, grads[again]));
            close_bench(t, &b);
            CHECK_HERE();
        }
        ASSERT(memcmp(grads[0], grads[1], sizeof grads[0]) == 0);
        for (int k = 0; k < WIDTH * WIDTH && i & 4; k++)
            ASSERT(grads[1][W1][k] == 0.0f);
        ASSERT((grads[1][W1][0] != 0.0f) == !(i & 4));
    }
}
