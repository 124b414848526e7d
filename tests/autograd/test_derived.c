/* Results that backward recomputes: what is kept instead, and that the gradients are the same. */
#include "src/autograd/autograd.h"
#include "src/tensor/allocator.h"
#include "tests/autograd/gradcheck.h"

enum {
    ROWS = 96,
    WIDTH = 64, /* a result of ROWS x WIDTH is not small for the allocator */
    LEAVES = 4
};

/* x and y [ROWS, WIDTH], w [WIDTH, WIDTH], a norm's weight and bias [WIDTH]. */
typedef struct bench {
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    fsdp_dtype dtype;
    fsdp_tensor *x, *y, *w, *scale, *bias;
} bench;

typedef fsdp_tensor *derived_fn(bench *b);

static fsdp_tensor *leaf(fsdp_test *t, const bench *b, int ndim, const int64_t *shape, int seed)
{
    fsdp_tensor *leaf = op_random_tensor(t, b->device, b->dtype, ndim, shape, seed);
    if (!t->failed && fsdp_tensor_set_requires_grad(leaf, true) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return leaf;
}

static void open_bench(fsdp_test *t, bench *b, fsdp_dtype dtype)
{
    static const int64_t rows[] = {ROWS, WIDTH}, square[] = {WIDTH, WIDTH}, width = WIDTH;
    b->dtype = dtype;
    ASSERT_OK(fsdp_device_create(NULL, &b->device));
    ASSERT_OK(fsdp_tape_create(&b->tape));
    ASSERT_OK(fsdp_scope_open(b->device, b->tape, NULL, &b->s));
    b->x = leaf(t, b, 2, rows, 1);
    b->y = leaf(t, b, 2, rows, 2);
    b->w = leaf(t, b, 2, square, 3);
    b->scale = leaf(t, b, 1, &width, 4);
    b->bias = leaf(t, b, 1, &width, 5);
}

static void close_bench(fsdp_test *t, bench *b)
{
    fsdp_scope_close(b->s);
    fsdp_tape_destroy(b->tape);
    fsdp_tensor_release(b->x);
    fsdp_tensor_release(b->y);
    fsdp_tensor_release(b->w);
    fsdp_tensor_release(b->scale);
    fsdp_tensor_release(b->bias);
    if (op_allocated(b->device))
        fsdp_test_fail(t, __FILE__, __LINE__, "%lld bytes leak",
                       (long long)op_allocated(b->device));
    fsdp_device_destroy(b->device);
}

static fsdp_tensor *of_rms_norm(bench *b)
{
    return fsdp_rms_norm(b->s, b->x, b->scale, 1e-6f);
}
static fsdp_tensor *of_layer_norm(bench *b)
{
    return fsdp_layer_norm(b->s, b->x, b->scale, b->bias, 1e-5f);
}
static fsdp_tensor *of_layer_norm_without_bias(bench *b)
{
    return fsdp_layer_norm(b->s, b->x, b->scale, NULL, 1e-5f);
}
static fsdp_tensor *of_gelu(bench *b)
{
    return fsdp_gelu(b->s, b->x);
}
static fsdp_tensor *of_gelu_new(bench *b)
{
    return fsdp_gelu_new(b->s, b->x);
}
static fsdp_tensor *of_silu(bench *b)
{
    return fsdp_silu(b->s, b->x);
}
static fsdp_tensor *of_tanh(bench *b)
{
    return fsdp_tanh(b->s, b->x);
}
static fsdp_tensor *of_geglu(bench *b)
{
    return fsdp_geglu(b->s, b->x, b->y);
}
static fsdp_tensor *of_swiglu(bench *b)
{
    return fsdp_swiglu(b->s, b->x, b->y);
}
static derived_fn *const derived_results[] = {
    of_rms_norm, of_layer_norm, of_layer_norm_without_bias, of_gelu, of_gelu_new, of_silu, of_tanh,
    of_geglu,    of_swiglu,
};

typedef enum fate {
    HELD,    /* until after backward */
    DROPPED, /* after forward: backward makes the result again */
    CHANGED  /* dropped, and the norm's weight and bias have changed before backward */
} fate;

static void zero(fsdp_test *t, fsdp_tensor *leaf)
{
    void *data = fsdp_tensor_data(leaf);
    ASSERT(data);
    memset(data, 0, (size_t)fsdp_tensor_numel(leaf) * fsdp_dtype_size(fsdp_tensor_dtype(leaf)));
}

/* The gradients of x, w, scale and y for sum(w (result(x, y))), where two linear operations read
 * the result. */
static void run(fsdp_test *t, fsdp_dtype dtype, derived_fn *of, fate how,
                float grads[LEAVES][ROWS * WIDTH], int64_t *kept)
{
    bench b;
    open_bench(t, &b, dtype);
    CHECK_HERE();
    fsdp_tensor *result = of(&b);
    fsdp_tensor *first = fsdp_linear(b.s, result, b.w, NULL);
    fsdp_tensor *second = fsdp_linear(b.s, result, b.w, NULL);
    fsdp_tensor *sum = fsdp_add(b.s, first, second);
    fsdp_tensor *grad = op_random_tensor(t, b.device, dtype, 2, (const int64_t[]){ROWS, WIDTH}, 6);
    ASSERT_OK(fsdp_scope_status(b.s));
    const int64_t before = op_allocated(b.device);
    if (how != HELD)
        fsdp_drop(b.s, result);
    *kept = op_allocated(b.device) - before;
    if (how == CHANGED) {
        zero(t, b.scale);
        zero(t, b.bias);
        CHECK_HERE();
    }
    ASSERT_OK(fsdp_backward(b.tape, &sum, &grad, 1));
    fsdp_tensor *const leaves[LEAVES] = {b.x, b.w, b.scale, b.y};
    for (int i = 0; i < LEAVES; i++)
        if (fsdp_tensor_grad(leaves[i]))
            ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(leaves[i]), grads[i]));
    fsdp_tensor_release(grad);
    close_bench(t, &b);
}

/* Dropping the result frees its memory immediately, and the gradients have the same bits. */
TEST(recomputed_results_give_the_same_gradients)
{
    static float held[LEAVES][ROWS * WIDTH], again[LEAVES][ROWS * WIDTH];
    static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16};
    for (size_t i = 0; i < sizeof derived_results / sizeof *derived_results; i++)
        for (size_t d = 0; d < 2; d++)
            for (fate how = DROPPED; how <= CHANGED; how++) {
                int64_t kept;
                memset(held, 0, sizeof held);
                memset(again, 0, sizeof again);
                run(t, dtypes[d], derived_results[i], HELD, held, &kept);
                CHECK_HERE();
                ASSERT_INT(kept, 0);
                run(t, dtypes[d], derived_results[i], how, again, &kept);
                CHECK_HERE();
                ASSERT_INT(kept, -(int64_t)(ROWS * WIDTH * fsdp_dtype_size(dtypes[d])));
                ASSERT(memcmp(held, again, sizeof held) == 0);
                ASSERT(held[0][0] != 0.0f);
                ASSERT(held[1][0] != 0.0f);
            }
}

/* relu's own backward reads its result, so the result is kept and not recomputed. */
TEST(a_relu_keeps_its_result_and_not_its_input)
{
    bench b;
    open_bench(t, &b, FSDP_DTYPE_F32);
    CHECK_HERE();
    fsdp_tensor *before = fsdp_scale(b.s, b.x, 2.0f);
    fsdp_tensor *result = fsdp_relu(b.s, before);
    ASSERT(fsdp_linear(b.s, result, b.w, NULL));
    const int64_t bytes = ROWS * WIDTH * 4, all = op_allocated(b.device);
    fsdp_drop(b.s, before);
    fsdp_drop(b.s, result);
    ASSERT_INT(all - op_allocated(b.device), bytes);
    close_bench(t, &b);
}

/* In gelu(gelu(...)) every other result is kept, so each of the others is recomputed from one that
 * exists. */
TEST(a_chain_is_not_recomputed_from_its_beginning)
{
    enum {
        DEPTH = 8
    };
    bench b;
    open_bench(t, &b, FSDP_DTYPE_F32);
    CHECK_HERE();
    const int64_t bytes = ROWS * WIDTH * 4, base = op_allocated(b.device);
    fsdp_tensor *y = b.x;
    for (int i = 0; i < DEPTH; i++) {
        fsdp_tensor *next = fsdp_gelu(b.s, y);
        if (y != b.x)
            fsdp_drop(b.s, y);
        y = next;
    }
    ASSERT_OK(fsdp_scope_status(b.s));
    ASSERT_INT(op_allocated(b.device) - base, DEPTH / 2 * bytes);
    fsdp_tensor *grad =
        op_random_tensor(t, b.device, FSDP_DTYPE_F32, 2, (const int64_t[]){ROWS, WIDTH}, 6);
    ASSERT_OK(fsdp_backward(b.tape, &y, &grad, 1));
    fsdp_tensor_release(grad);
    close_bench(t, &b);
}

/* If there is no memory for the second computation, the error names the operation, and nothing
 * leaks. */
TEST(no_memory_to_recompute_is_an_error)
{
    bench b;
    open_bench(t, &b, FSDP_DTYPE_F32);
    CHECK_HERE();
    fsdp_tensor *result = of_rms_norm(&b), *y = fsdp_linear(b.s, result, b.w, NULL);
    fsdp_tensor *grad =
        op_random_tensor(t, b.device, FSDP_DTYPE_F32, 2, (const int64_t[]){ROWS, WIDTH}, 6);
    fsdp_drop(b.s, result);
    fsdp_allocator_set_limit(b.device->allocator, op_allocated(b.device) + 1024);
    ASSERT_ERROR(fsdp_backward(b.tape, &y, &grad, 1), FSDP_ERR_NOMEM, "backward of linear");
    fsdp_allocator_set_limit(b.device->allocator, 0);
    fsdp_tensor_release(grad);
    close_bench(t, &b);
}
