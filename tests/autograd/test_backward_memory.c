/* The largest memory of backward in addition to what forward left. Gradients reuse the memory of
 * tensors that no operation reads any more, and have the same values as if all of them were
 * held. */
#include "src/autograd/checkpoint.h"
#include "src/tensor/device.h"
#include "tests/autograd/gradcheck.h"

enum {
    ROWS = 96,
    WIDTH = 64, /* a result of ROWS x WIDTH is not small for the allocator */
    LEAVES = 4
};
static const int64_t BYTES = ROWS * WIDTH * 4;

/* Leaves x [ROWS, WIDTH] and three weights [WIDTH, WIDTH]. */
typedef struct bench {
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    fsdp_tensor *leaves[LEAVES];
    fsdp_kernels kernels; /* the device's, with a `gated` that counts its calls */
} bench;

enum {
    X,
    W_GATE,
    W_UP,
    W_DOWN
};

static void open_bench(fsdp_test *t, bench *b)
{
    static const int64_t shape[LEAVES][2] = {
        {ROWS, WIDTH}, {WIDTH, WIDTH}, {WIDTH, WIDTH}, {WIDTH, WIDTH}};
    ASSERT_OK(fsdp_device_create(NULL, &b->device));
    ASSERT_OK(fsdp_tape_create(&b->tape));
    ASSERT_OK(fsdp_scope_open(b->device, b->tape, NULL, &b->s));
    for (int i = 0; i < LEAVES; i++) {
        b->leaves[i] = op_random_tensor(t, b->device, FSDP_DTYPE_F32, 2, shape[i], (uint64_t)i + 1);
        CHECK_HERE();
        ASSERT_OK(fsdp_tensor_set_requires_grad(b->leaves[i], true));
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

/* Bytes of activations, now or the largest since the peak was reset. */
static int64_t activations(const bench *b, bool at_most)
{
    fsdp_memory_stats stats;
    fsdp_device_memory(b->device, &stats);
    return at_most ? stats.tag_peak[FSDP_TAG_ACTIVATION] : stats.tag_allocated[FSDP_TAG_ACTIVATION];
}

/* Backward of `root`: the gradients of all leaves, zeros for leaves without one, and the growth of
 * activations during backward. */
static void run_backward(fsdp_test *t, const bench *b, fsdp_tensor *root,
                         float grads[LEAVES][ROWS * WIDTH], int64_t *growth)
{
    memset(grads, 0, sizeof(float[LEAVES][ROWS * WIDTH]));
    ASSERT_OK(fsdp_scope_status(b->s));
    fsdp_tensor *grad =
        op_random_tensor(t, b->device, FSDP_DTYPE_F32, 2, (const int64_t[]){ROWS, WIDTH}, 9);
    CHECK_HERE();
    const int64_t before = activations(b, false);
    fsdp_device_reset_peak_memory(b->device);
    ASSERT_OK(fsdp_backward(b->tape, &root, &grad, 1));
    *growth = activations(b, true) - before;
    for (int i = 0; i < LEAVES; i++)
        if (fsdp_tensor_grad(b->leaves[i]))
            ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(b->leaves[i]), grads[i]));
    fsdp_tensor_release(grad);
}

/* Drop an intermediate result of forward, unless it must be held. */
static void drop_unless_held(fsdp_scope *s, bool held, fsdp_tensor *y)
{
    if (!held)
        fsdp_drop(s, y);
}

typedef fsdp_tensor *part_fn(bench *b, bool held);

static fsdp_tensor *one_linear(bench *b, bool held)
{
    fsdp_tensor *x = fsdp_scale(b->s, b->leaves[X], 2.0f);
    fsdp_tensor *y = fsdp_linear(b->s, x, b->leaves[W_DOWN], NULL);
    drop_unless_held(b->s, held, x);
    return y;
}

static fsdp_tensor *two_readers(bench *b, bool held)
{
    fsdp_tensor *x = fsdp_gelu(b->s, b->leaves[X]);
    fsdp_tensor *first = fsdp_linear(b->s, x, b->leaves[W_GATE], NULL);
    fsdp_tensor *second = fsdp_linear(b->s, x, b->leaves[W_UP], NULL);
    drop_unless_held(b->s, held, x);
    fsdp_tensor *y = fsdp_add(b->s, first, second);
    drop_unless_held(b->s, held, first);
    drop_unless_held(b->s, held, second);
    return y;
}

static fsdp_tensor *feed_forward(fsdp_scope *s, const bench *b, fsdp_tensor *x, bool held)
{
    fsdp_tensor *gate = fsdp_linear(s, x, b->leaves[W_GATE], NULL);
    fsdp_tensor *up = fsdp_linear(s, x, b->leaves[W_UP], NULL);
    fsdp_tensor *hidden = fsdp_swiglu(s, gate, up);
    drop_unless_held(s, held, gate);
    drop_unless_held(s, held, up);
    fsdp_tensor *y = fsdp_linear(s, hidden, b->leaves[W_DOWN], NULL);
    drop_unless_held(s, held, hidden);
    return y;
}

static fsdp_tensor *gated_feed_forward(bench *b, bool held)
{
    return feed_forward(b->s, b, b->leaves[X], held);
}

/* `up` has another reader, whose backward runs later. */
static fsdp_tensor *up_read_twice(bench *b, bool held)
{
    fsdp_tensor *gate = fsdp_linear(b->s, b->leaves[X], b->leaves[W_GATE], NULL);
    fsdp_tensor *up = fsdp_linear(b->s, b->leaves[X], b->leaves[W_UP], NULL);
    fsdp_tensor *square = fsdp_mul(b->s, up, up);
    fsdp_tensor *hidden = fsdp_geglu(b->s, gate, up);
    drop_unless_held(b->s, held, gate);
    drop_unless_held(b->s, held, up);
    fsdp_tensor *y = fsdp_add(b->s, hidden, square);
    drop_unless_held(b->s, held, hidden);
    drop_unless_held(b->s, held, square);
    return y;
}

/* gate and up are the same tensor: both gradients must be computed from its old values. */
static fsdp_tensor *gate_is_up(bench *b, bool held)
{
    fsdp_tensor *both = fsdp_linear(b->s, b->leaves[X], b->leaves[W_UP], NULL);
    fsdp_tensor *y = fsdp_swiglu(b->s, both, both);
    drop_unless_held(b->s, held, both);
    return y;
}

/* `up` is a leaf: only the caller may write to it. */
static fsdp_tensor *up_is_a_leaf(bench *b, bool held)
{
    fsdp_tensor *gate = fsdp_linear(b->s, b->leaves[X], b->leaves[W_GATE], NULL);
    fsdp_tensor *y = fsdp_swiglu(b->s, gate, b->leaves[X]);
    drop_unless_held(b->s, held, gate);
    return y;
}

static const struct {
    part_fn *run;
    int most; /* number of results that backward needs in addition to what forward left */
} parts[] = {
    {one_linear, 0},         /* dx reuses the memory of x */
    {two_readers, 2},        /* x, recomputed, and one dx; two of these once x has been read */
    {gated_feed_forward, 1}, /* hidden, then its gradient and d_gate; d_up reuses the memory of
                                up */
    {up_read_twice, 3},      {gate_is_up, 3}, {up_is_a_leaf, 2},
};

TEST(gradients_reuse_memory_that_was_read)
{
    static float held[LEAVES][ROWS * WIDTH], dropped[LEAVES][ROWS * WIDTH];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        bench b;
        int64_t growth;
        for (int hold = 1; hold >= 0; hold--) {
            open_bench(t, &b);
            CHECK_HERE();
            fsdp_tensor *y = parts[i].run(&b, hold);
            run_backward(t, &b, y, hold ? held : dropped, &growth);
            CHECK_HERE();
            close_bench(t, &b);
        }
        if (growth > parts[i].most * BYTES)
            FAIL("part %zu: backward takes %lld bytes more, not %lld", i, (long long)growth,
                 (long long)(parts[i].most * BYTES));
        ASSERT(memcmp(held, dropped, sizeof held) == 0);
        ASSERT(held[X][0] != 0.0f);
    }
}

/* A tensor that the caller holds is the same after backward. */
TEST(tensors_that_are_held_are_not_overwritten)
{
    static float before[ROWS * WIDTH], after[ROWS * WIDTH], grads[LEAVES][ROWS * WIDTH];
    bench b;
    int64_t growth;
    open_bench(t, &b);
    CHECK_HERE();
    fsdp_tensor *gate = fsdp_linear(b.s, b.leaves[X], b.leaves[W_GATE], NULL);
    fsdp_tensor *up = fsdp_linear(b.s, b.leaves[X], b.leaves[W_UP], NULL);
    fsdp_tensor *y = fsdp_swiglu(b.s, gate, up);
    ASSERT_OK(fsdp_tensor_to_floats(up, before));
    run_backward(t, &b, y, grads, &growth);
    CHECK_HERE();
    ASSERT_OK(fsdp_tensor_to_floats(up, after));
    ASSERT(memcmp(before, after, sizeof before) == 0);
    close_bench(t, &b);
}

/* A result is recomputed for the reader that the root depends on; the backward of the other one
 * never runs. */
TEST(a_reader_that_no_root_depends_on_is_ignored)
{
    static float alone[LEAVES][ROWS * WIDTH], with_unused[LEAVES][ROWS * WIDTH];
    for (int unused = 0; unused < 2; unused++) {
        bench b;
        int64_t growth;
        open_bench(t, &b);
        CHECK_HERE();
        fsdp_tensor *x = fsdp_gelu(b.s, b.leaves[X]);
        fsdp_tensor *y = fsdp_linear(b.s, x, b.leaves[W_GATE], NULL);
        if (unused)
            ASSERT(fsdp_linear(b.s, x, b.leaves[W_UP], NULL));
        fsdp_drop(b.s, x);
        run_backward(t, &b, y, unused ? with_unused : alone, &growth);
        CHECK_HERE();
        close_bench(t, &b);
    }
    ASSERT(memcmp(alone, with_unused, sizeof alone) == 0);
    ASSERT(alone[X][0] != 0.0f);
}

/* --- checkpointed --- */

static const fsdp_kernels *real_kernels;
static int gated_calls;

static void counted_gated(fsdp_kernel_context *c, fsdp_activation a, void *out, const void *gate,
                          const void *up, fsdp_dtype dtype, int64_t n)
{
    gated_calls++;
    real_kernels->gated(c, a, out, gate, up, dtype, n);
}

static void run_part(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    const bench *b = *(bench *const *)self;
    *out = (fsdp_args){.t = {feed_forward(s, b, in->t[0], false)}, .n = 1};
}

/* The second run stops at the activation, and backward reads that result itself. So it is computed
 * twice in all, and backward never holds more than gate, up, and either the activation or a
 * gradient. */
TEST(the_result_at_which_a_second_run_stops_is_not_recomputed)
{
    static float plain[LEAVES][ROWS * WIDTH], again[LEAVES][ROWS * WIDTH];
    bench b, *self = &b;
    int64_t growth;
    open_bench(t, &b);
    CHECK_HERE();
    run_backward(t, &b, gated_feed_forward(&b, false), plain, &growth);
    CHECK_HERE();
    close_bench(t, &b);

    open_bench(t, &b);
    CHECK_HERE();
    real_kernels = b.device->kernels;
    b.kernels = *real_kernels;
    b.kernels.gated = counted_gated;
    b.device->kernels = &b.kernels;
    gated_calls = 0;
    fsdp_args in = {.t = {b.leaves[X]}, .n = 1}, out = {.n = 0};
    fsdp_checkpoint(b.s, NULL, run_part, &self, sizeof self, &in, &out);
    run_backward(t, &b, out.t[0], again, &growth);
    CHECK_HERE();
    ASSERT_INT(gated_calls, 2);
    if (growth > 3 * BYTES)
        FAIL("backward takes %lld bytes, not %lld", (long long)growth, (long long)(3 * BYTES));
    ASSERT(memcmp(plain, again, sizeof plain) == 0);
    b.device->kernels = real_kernels;
    close_bench(t, &b);
}
