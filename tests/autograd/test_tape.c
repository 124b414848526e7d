/* The tape: what it keeps, how gradients are added, and errors for misuse. */
#include "src/autograd/autograd.h"
#include "tests/autograd/gradcheck.h"

typedef struct bench {
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    fsdp_tensor *x, *w; /* leaves [3, 4] and [4, 4] */
    int64_t base;       /* bytes allocated with only the leaves */
} bench;

static void open_bench(fsdp_test *t, bench *b)
{
    ASSERT_OK(fsdp_device_create(NULL, &b->device));
    ASSERT_OK(fsdp_tape_create(&b->tape));
    ASSERT_OK(fsdp_scope_open(b->device, b->tape, NULL, &b->s));
    b->x = op_random_tensor(t, b->device, FSDP_DTYPE_F32, 2, (const int64_t[]){3, 4}, 1);
    b->w = op_random_tensor(t, b->device, FSDP_DTYPE_F32, 2, (const int64_t[]){4, 4}, 2);
    CHECK_HERE();
    ASSERT_OK(fsdp_tensor_set_requires_grad(b->x, true));
    ASSERT_OK(fsdp_tensor_set_requires_grad(b->w, true));
    b->base = op_allocated(b->device);
}

static void close_bench(fsdp_test *t, bench *b)
{
    fsdp_scope_close(b->s);
    fsdp_tape_destroy(b->tape);
    fsdp_tensor_release(b->x);
    fsdp_tensor_release(b->w);
    if (op_allocated(b->device))
        fsdp_test_fail(t, __FILE__, __LINE__, "%lld bytes leak",
                       (long long)op_allocated(b->device));
    fsdp_device_destroy(b->device);
}

/* The gradient of `leaf` is `expected` at every element. */
static void assert_grad(fsdp_test *t, const fsdp_tensor *leaf, float expected)
{
    float grad[16];
    ASSERT(fsdp_tensor_grad(leaf));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(leaf), grad));
    for (int64_t i = 0; i < fsdp_tensor_numel(leaf); i++)
        ASSERT_NEAR(grad[i], expected, 1e-6);
}

static fsdp_tensor *ones_like(fsdp_test *t, bench *b, fsdp_tensor *like)
{
    float ones[16];
    for (int i = 0; i < 16; i++)
        ones[i] = 1.0f;
    fsdp_tensor *out = NULL;
    fsdp_status status = fsdp_tensor_from_data(b->device, FSDP_DTYPE_F32, like->ndim, like->shape,
                                               ones, FSDP_TAG_DATA, &out);
    if (status != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return fsdp_scope_own(b->s, out);
}

/* y = 2x; the gradient of y + y + 3y is 10, in whichever order the parts are added. */
TEST(a_tensor_used_several_times_gets_the_sum)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_tensor *y = fsdp_scale(b.s, b.x, 2.0f);
    fsdp_tensor *z = fsdp_add(b.s, fsdp_add(b.s, y, y), fsdp_scale(b.s, y, 3.0f));
    fsdp_tensor *grad = ones_like(t, &b, b.x);
    ASSERT_OK(fsdp_scope_status(b.s));
    ASSERT_OK(fsdp_backward(b.tape, &z, &grad, 1));
    assert_grad(t, b.x, 10.0f);
    /* The gradient that was passed belongs to the caller and is unchanged. */
    float given[12];
    ASSERT_OK(fsdp_tensor_to_floats(grad, given));
    for (int i = 0; i < 12; i++)
        ASSERT_F32(given[i], 1.0f);
    close_bench(t, &b);
}

/* The leaf gets a gradient directly from add, one through scale, and both again from a second
 * backward. */
TEST(a_leaf_used_by_two_operations_gets_the_sum)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    for (int step = 1; step <= 2; step++) {
        fsdp_tensor *z = fsdp_add(b.s, b.x, fsdp_scale(b.s, b.x, -4.0f));
        fsdp_tensor *grad = ones_like(t, &b, b.x);
        ASSERT_OK(fsdp_scope_status(b.s));
        ASSERT_OK(fsdp_backward(b.tape, &z, &grad, 1));
        assert_grad(t, b.x, -3.0f * (float)step);
    }
    fsdp_tensor_zero_grad(b.x);
    ASSERT(!fsdp_tensor_grad(b.x));
    ASSERT(!fsdp_tensor_grad(b.w));
    close_bench(t, &b);
}

/* T5's tied embedding: rows by id at one end, the weight of the head at the other. */
TEST(a_weight_tied_between_embedding_and_head_gets_both_gradients)
{
    static const int32_t ids[] = {0, 3, 3}, labels[] = {1, -100, 2};
    float tied[16], apart[2][16];
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_tensor *copy;
    ASSERT_OK(fsdp_tensor_to(b.w, FSDP_DTYPE_F32, FSDP_TAG_PARAM, &copy));
    ASSERT_OK(fsdp_tensor_set_requires_grad(copy, true));
    for (int i = 0; i < 2; i++) {
        fsdp_tensor *head = i ? copy : b.w;
        fsdp_tensor *loss = fsdp_linear_cross_entropy(b.s, fsdp_embedding(b.s, ids, 3, b.w, -1),
                                                      head, labels, 1.0f);
        ASSERT_OK(fsdp_scope_status(b.s));
        ASSERT_OK(fsdp_backward(b.tape, &loss, NULL, 1));
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(b.w), i ? apart[0] : tied));
        fsdp_tensor_zero_grad(b.w);
    }
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(copy), apart[1]));
    for (int i = 0; i < 16; i++)
        ASSERT_NEAR(tied[i], apart[0][i] + apart[1][i], 1e-6);
    fsdp_tensor_release(copy);
    close_bench(t, &b);
}

TEST(several_roots_add_up)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_tensor *y = fsdp_scale(b.s, b.x, 2.0f);
    fsdp_tensor *roots[] = {y, fsdp_scale(b.s, y, 3.0f), y};
    fsdp_tensor *one = ones_like(t, &b, b.x), *grads[] = {one, one, one};
    ASSERT_OK(fsdp_scope_status(b.s));
    ASSERT_OK(fsdp_backward(b.tape, roots, grads, 3));
    assert_grad(t, b.x, 10.0f);
    close_bench(t, &b);
}

/* Results that no root depends on are skipped by the sweep; their saved tensors are released
 * too. */
TEST(unused_results_get_no_gradient)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_tensor *used = fsdp_scale(b.s, b.x, 2.0f), *grad = ones_like(t, &b, b.x);
    ASSERT(fsdp_linear(b.s, b.x, b.w, NULL));
    ASSERT_OK(fsdp_scope_status(b.s));
    ASSERT_OK(fsdp_backward(b.tape, &used, &grad, 1));
    assert_grad(t, b.x, 2.0f);
    ASSERT(!fsdp_tensor_grad(b.w));
    fsdp_tensor_zero_grad(b.x);
    fsdp_scope_close(b.s);
    b.s = NULL;
    ASSERT_INT(op_allocated(b.device), b.base);
    close_bench(t, &b);
}

TEST(resetting_the_tape_releases_what_it_saved)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_tensor *y = fsdp_relu(b.s, fsdp_linear(b.s, b.x, b.w, NULL));
    ASSERT(y);
    fsdp_scope_close(b.s);
    b.s = NULL;
    ASSERT(op_allocated(b.device) > b.base);
    fsdp_tape_reset(b.tape);
    ASSERT_INT(op_allocated(b.device), b.base);
    ASSERT(!fsdp_tensor_grad(b.w));
    close_bench(t, &b);
}

/* After backward a result is a constant: gradients of a new forward do not flow through it. */
TEST(results_of_an_earlier_tape_are_constants)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_tensor *y = fsdp_scale(b.s, b.x, 2.0f), *grad = ones_like(t, &b, b.x);
    ASSERT_OK(fsdp_backward(b.tape, &y, &grad, 1));
    ASSERT_ERROR(fsdp_backward(b.tape, &y, &grad, 1), FSDP_ERR_INVALID,
                 "root 0 is not on the tape");
    fsdp_tensor *z = fsdp_mul(b.s, y, y);
    ASSERT_OK(fsdp_scope_status(b.s));
    ASSERT(!fsdp_needs_grad(b.s, z));
    ASSERT_INT(b.tape->n_nodes, 0);
    assert_grad(t, b.x, 2.0f);
    close_bench(t, &b);
}

TEST(a_leaf_switched_off_gets_no_gradient)
{
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    ASSERT_OK(fsdp_tensor_set_requires_grad(b.x, false));
    fsdp_tensor *y = fsdp_linear(b.s, b.x, b.w, NULL), *grad = ones_like(t, &b, b.x);
    ASSERT_OK(fsdp_scope_status(b.s));
    ASSERT_OK(fsdp_backward(b.tape, &y, &grad, 1));
    ASSERT(!fsdp_tensor_grad(b.x));
    ASSERT(fsdp_tensor_grad(b.w));
    fsdp_tensor *ids;
    ASSERT_OK(fsdp_tensor_create(b.device, FSDP_DTYPE_I32, 0, NULL, FSDP_TAG_DATA, &ids));
    ASSERT_ERROR(fsdp_tensor_set_requires_grad(ids, true), FSDP_ERR_INVALID, "int32");
    fsdp_tensor_release(ids);
    close_bench(t, &b);
}

/* Two steps of a deep chain. Each node's saved tensors are released directly after its backward, so
 * backward needs no more than forward's memory and two gradients. */
TEST(backward_releases_saved_tensors_as_it_goes)
{
    enum {
        DEPTH = 200
    };
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_tensor *y = b.x;
    for (int i = 0; i < DEPTH; i++) {
        fsdp_tensor *next = fsdp_relu(b.s, y);
        if (y != b.x)
            fsdp_drop(b.s, y);
        y = next;
    }
    fsdp_tensor *grad = ones_like(t, &b, b.x);
    ASSERT_OK(fsdp_scope_status(b.s));
    int64_t saved = op_allocated(b.device);
    ASSERT_INT(saved - b.base, (DEPTH + 1) * 48);
    fsdp_device_reset_peak_memory(b.device);
    ASSERT_OK(fsdp_backward(b.tape, &y, &grad, 1));
    fsdp_memory_stats stats;
    fsdp_device_memory(b.device, &stats);
    ASSERT(stats.allocated_peak <= saved + 2 * 48);
    ASSERT_INT(stats.allocated - b.base, 3 * 48); /* y, grad and the leaf's gradient */
    close_bench(t, &b);
}

/* A weight whose data was released (resharded) is an error when it is read, not a crash. */
TEST(a_resharded_weight_is_an_error_in_forward_and_backward)
{
    static const int64_t shape[] = {4, 4};
    float values[16] = {0};
    bench b;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_storage *storage;
    fsdp_tensor *w, *grad = ones_like(t, &b, b.x);
    ASSERT_OK(fsdp_storage_from_memory(b.device, values, sizeof values, &storage));
    ASSERT_OK(fsdp_tensor_over(storage, FSDP_DTYPE_F32, 2, shape, 0, &w));
    fsdp_tensor *y = fsdp_linear(b.s, b.x, w, NULL);
    ASSERT_OK(fsdp_scope_status(b.s));
    fsdp_storage_set_data(storage, NULL);
    ASSERT_ERROR(fsdp_backward(b.tape, &y, &grad, 1), FSDP_ERR_INVALID,
                 "backward of linear: linear: input 0 has no data");
    ASSERT_INT(b.tape->n_nodes, 0);
    ASSERT(!fsdp_linear(b.s, b.x, w, NULL));
    ASSERT_ERROR(fsdp_scope_status(b.s), FSDP_ERR_INVALID, "linear: input 1 has no data");
    fsdp_tensor_release(w);
    fsdp_storage_release(storage);
    close_bench(t, &b);
}

TEST(backward_names_wrong_roots_and_gradients)
{
    for (int i = 0; i < 5; i++) {
        static const char *const messages[] = {
            "backward: no roots",
            "root 0 is not on the tape",
            "root 0 is [3, 4], not a scalar, and no gradient was passed",
            "gradient 0 is [4, 4] of float32 but its root [3, 4] of float32",
            "gradient 0 is [3, 4] of bfloat16 but its root [3, 4] of float32",
        };
        bench b;
        open_bench(t, &b);
        CHECK_HERE();
        fsdp_tensor *y = fsdp_scale(b.s, b.x, 2.0f), *half;
        ASSERT_OK(fsdp_scope_status(b.s));
        ASSERT_OK(fsdp_tensor_to(b.x, FSDP_DTYPE_BF16, FSDP_TAG_DATA, &half));
        fsdp_tensor *grads[] = {NULL, NULL, NULL, b.w, half};
        ASSERT_ERROR(fsdp_backward(b.tape, i == 1 ? &b.x : &y, &grads[i], i ? 1 : 0),
                     FSDP_ERR_INVALID, messages[i]);
        ASSERT_INT(b.tape->n_nodes, 0); /* as after every backward */
        ASSERT(!fsdp_tensor_grad(b.x));
        fsdp_tensor_release(half);
        close_bench(t, &b);
    }
}
