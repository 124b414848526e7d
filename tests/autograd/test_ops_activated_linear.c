/* A linear layer of an activation as one operation: against loops, and with the same bits as two
 * operations, as a whole and in parts. */
#include <math.h>

#include "src/autograd/activated_linear.h"
#include "src/autograd/checkpoint.h"
#include "src/base/alloc.h"
#include "src/base/philox.h"
#include "tests/autograd/gradcheck.h"

/* --- against loops --- */

typedef struct kind {
    const char *name;
    fsdp_activation activation;
    bool gated, transposed, relu_in_place;
    float p;
} kind;

/* in: x, (up,) w, (bias). */
static fsdp_tensor *run_kind(fsdp_scope *s, const kind *k, fsdp_tensor *const *in,
                             fsdp_tensor *bias)
{
    fsdp_tensor *w = in[1 + k->gated];
    if (k->relu_in_place)
        return fsdp_relu_dropout_linear_(s, in[0], k->p, w, bias);
    return fsdp_activated_linear(s, k->activation, in[0], k->gated ? in[1] : NULL, w, bias,
                                 k->transposed);
}

static fsdp_tensor *run_with_bias(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    const kind *k = arg;
    return run_kind(s, k, in, in[2 + k->gated]);
}

static fsdp_tensor *run_without_bias(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    return run_kind(s, arg, in, NULL);
}

static double activation_of(fsdp_activation a, double x)
{
    switch (a) {
    case FSDP_ACTIVATION_RELU:
        return x > 0.0 ? x : 0.0;
    case FSDP_ACTIVATION_GELU_TANH:
        return 0.5 * x * (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
    case FSDP_ACTIVATION_GELU_ERF:
        return 0.5 * x * (1.0 + erf(x / sqrt(2.0)));
    case FSDP_ACTIVATION_SILU:
        return x / (1.0 + exp(-x));
    default:
        return x;
    }
}

static void naive(const op_case *c, const double *const *in, double *out)
{
    const kind *k = c->arg;
    const int weight = 1 + k->gated;
    const int64_t n_in = op_size(c, weight, !k->transposed);
    const int64_t n_out = op_size(c, weight, k->transposed), rows = op_numel(c, 0) / n_in;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t n = 0; n < n_out; n++) {
            double sum = c->n_in > weight + 1 ? in[weight + 1][n] : 0.0;
            for (int64_t d = 0; d < n_in; d++) {
                const double up = k->gated ? in[1][r * n_in + d] : 1.0;
                const double w = in[weight][k->transposed ? d * n_out + n : n * n_in + d];
                sum += activation_of(k->activation, in[0][r * n_in + d]) * up * w;
            }
            out[r * n_out + n] = sum;
        }
}

static const kind kinds[] = {
    {.name = "gelu", .activation = FSDP_ACTIVATION_GELU_ERF},
    {.name = "gelu_new, conv1d", .activation = FSDP_ACTIVATION_GELU_TANH, .transposed = true},
    {.name = "swiglu", .activation = FSDP_ACTIVATION_SILU, .gated = true},
    {.name = "geglu, conv1d",
     .activation = FSDP_ACTIVATION_GELU_TANH,
     .gated = true,
     .transposed = true},
    {.name = "relu in place", .activation = FSDP_ACTIVATION_RELU, .relu_in_place = true},
};
enum {
    N_KINDS = sizeof kinds / sizeof *kinds
};

/* x [5, 7], w of 3 features, with a bias or without. */
static op_case case_of(const kind *k, bool bias)
{
    op_case c = {.name = k->name,
                 .arg = k,
                 .run = bias ? run_with_bias : run_without_bias,
                 .naive = naive,
                 .in = {{2, {5, 7}}}};
    int n = 1;
    if (k->gated) {
        c.in[n].ndim = 2;
        memcpy(c.in[n++].shape, (int64_t[3]){5, 7}, sizeof c.in[0].shape);
    }
    c.in[n].ndim = 2;
    memcpy(c.in[n++].shape, k->transposed ? (int64_t[3]){7, 3} : (int64_t[3]){3, 7},
           sizeof c.in[0].shape);
    if (bias) {
        c.in[n].ndim = 1;
        c.in[n++].shape[0] = 3;
    }
    c.n_in = n;
    return c;
}

TEST(activated_linears_equal_loops_and_differences)
{
    for (int i = 0; i < 2 * N_KINDS; i++) {
        const op_case c = case_of(&kinds[i / 2], i % 2 == 1);
        op_check(t, &c);
        CHECK_HERE();
    }
}

/* --- against two operations --- */

enum {
    WIDTH = 8,
    WIDE = 640,
    MOST_ROWS = 4200,
    MOST_LEAVES = 5
};

/* Leaves x [rows, WIDTH], w_x and w_up [WIDE, WIDTH], w and its bias. */
typedef struct bench {
    const kind *kind;
    bool fused;
    int64_t rows;
    fsdp_tensor *leaves[MOST_LEAVES];
} bench;

static fsdp_tensor *apart(fsdp_scope *s, const bench *b, fsdp_tensor *x, fsdp_tensor *up)
{
    const kind *k = b->kind;
    fsdp_tensor *w = b->leaves[3], *bias = b->leaves[4], *hidden;
    if (k->relu_in_place)
        hidden = fsdp_relu_dropout_(s, x, k->p);
    else if (k->activation == FSDP_ACTIVATION_SILU)
        hidden = fsdp_swiglu(s, x, up);
    else if (k->gated)
        hidden = fsdp_geglu(s, x, up);
    else
        hidden = k->activation == FSDP_ACTIVATION_GELU_ERF ? fsdp_gelu(s, x) : fsdp_gelu_new(s, x);
    fsdp_tensor *y =
        k->transposed ? fsdp_conv1d(s, hidden, w, bias) : fsdp_linear(s, hidden, w, bias);
    fsdp_drop(s, hidden);
    return y;
}

static void part(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    const bench *b = *(const bench *const *)self;
    fsdp_tensor *x = fsdp_linear(s, in->t[0], b->leaves[1], NULL);
    fsdp_tensor *up = b->kind->gated ? fsdp_linear(s, in->t[0], b->leaves[2], NULL) : NULL, *y;
    if (b->fused) {
        fsdp_tensor *of[] = {x, b->kind->gated ? up : b->leaves[3], b->leaves[3]};
        y = run_kind(s, b->kind, of, b->leaves[4]);
    } else {
        y = apart(s, b, x, up);
    }
    fsdp_drop(s, x);
    fsdp_drop(s, up);
    *out = (fsdp_args){.t = {y}, .n = 1};
}

typedef struct result {
    float y[MOST_ROWS * WIDTH], grads[MOST_LEAVES][MOST_ROWS * WIDTH];
    int64_t growth; /* growth of activations in backward */
} result;

static void run(fsdp_test *t, bench *b, fsdp_dtype dtype, bool checkpointed, result *r)
{
    const int64_t shapes[MOST_LEAVES][2] = {
        {b->rows, WIDTH},
        {WIDE, WIDTH},
        {WIDE, WIDTH},
        {b->kind->transposed ? WIDE : WIDTH, b->kind->transposed ? WIDTH : WIDE},
        {WIDTH, 0}};
    const bench *self = b;
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    fsdp_memory_stats before, after;
    memset(r, 0, sizeof *r);
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(
        fsdp_scope_open(device, tape, &(fsdp_scope_options){.training = true, .seed = 3}, &s));
    for (int i = 0; i < MOST_LEAVES; i++) {
        b->leaves[i] =
            op_random_tensor(t, device, dtype, i == 4 ? 1 : 2, shapes[i], (uint64_t)i + 1);
        CHECK_HERE();
        ASSERT_OK(fsdp_tensor_set_requires_grad(b->leaves[i], true));
    }
    fsdp_tensor *dy = op_random_tensor(t, device, dtype, 2, shapes[0], 9);
    fsdp_args in = {.t = {fsdp_scale(s, b->leaves[0], 0.5f)}, .n = 1}, out = {.n = 0};
    if (checkpointed)
        fsdp_checkpoint(s, NULL, part, &self, sizeof self, &in, &out);
    else
        part(s, &self, &in, &out);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_tensor_to_floats(out.t[0], r->y));
    fsdp_device_reset_peak_memory(device);
    fsdp_device_memory(device, &before);
    ASSERT_OK(fsdp_backward(tape, out.t, &dy, 1));
    fsdp_device_memory(device, &after);
    r->growth = after.tag_peak[FSDP_TAG_ACTIVATION] - before.tag_allocated[FSDP_TAG_ACTIVATION];
    for (int i = 0; i < MOST_LEAVES; i++)
        if (fsdp_tensor_grad(b->leaves[i]))
            ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(b->leaves[i]), r->grads[i]));
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(dy);
    for (int i = 0; i < MOST_LEAVES; i++)
        fsdp_tensor_release(b->leaves[i]);
    ASSERT_INT(op_allocated(device), 0);
    fsdp_device_destroy(device);
}

static void check_same(fsdp_test *t, const char *what, const result *a, const result *b)
{
    if (memcmp(a->y, b->y, sizeof a->y) != 0)
        FAIL("%s: another result", what);
    for (int i = 0; i < MOST_LEAVES; i++)
        if (memcmp(a->grads[i], b->grads[i], sizeof a->grads[i]) != 0)
            FAIL("%s: another gradient of leaf %d", what, i);
    ASSERT(a->grads[0][0] != 0.0f);
    ASSERT(a->grads[3][0] != 0.0f);
}

/* x [rows, WIDE] is 5 MiB, which is more than one part. */
TEST(parts_have_the_bits_of_two_operations)
{
    static result apart_, fused, again;
    kind with_dropout = kinds[N_KINDS - 1];
    with_dropout.p = 0.25f;
    for (int i = 0; i < 2 * (N_KINDS + 1); i++) {
        const kind *k = i / 2 < N_KINDS ? &kinds[i / 2] : &with_dropout;
        const fsdp_dtype dtype = i % 2 ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32;
        bench b = {.kind = k, .rows = i % 2 ? MOST_ROWS : MOST_ROWS / 2};
        run(t, &b, dtype, false, &apart_);
        CHECK_HERE();
        b.fused = true;
        run(t, &b, dtype, false, &fused);
        CHECK_HERE();
        check_same(t, k->name, &apart_, &fused);
        CHECK_HERE();
        run(t, &b, dtype, true, &again);
        CHECK_HERE();
        check_same(t, "checkpointed", &apart_, &again);
        CHECK_HERE();
    }
}

/* Without a tape the activation is computed for some rows at a time, here in 129 parts. A part of
 * only six rows would use another kernel, which adds in another order. */
TEST(parts_of_rows_have_nearly_equal_lengths)
{
    enum {
        ROWS = 128 * 128 + 6,
        FEATURES = 2500,
        OUT = 64
    };
    static float y[2][ROWS * OUT];
    if (UNDER_SANITIZER)
        SKIP("few rows make the same accesses");
    fsdp_device *device;
    fsdp_tape *tape;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    float *values = fsdp_calloc((size_t)ROWS * FEATURES, sizeof *values);
    ASSERT(values);
    for (size_t i = 0; i < (size_t)ROWS * FEATURES; i++)
        values[i] = (float)(fsdp_mix64(i) % 2001) * 1e-3f - 1.0f;
    fsdp_tensor *x;
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, (const int64_t[]){ROWS, FEATURES},
                                    values, FSDP_TAG_DATA, &x));
    fsdp_free(values);
    fsdp_tensor *w =
        op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){OUT, FEATURES}, 2);
    CHECK_HERE();
    ASSERT_OK(fsdp_tensor_set_requires_grad(w, true));
    for (int i = 0; i < 2; i++) {
        fsdp_scope *s;
        ASSERT_OK(fsdp_scope_open(device, i ? NULL : tape, NULL, &s));
        fsdp_tensor *of =
            fsdp_activated_linear(s, FSDP_ACTIVATION_GELU_ERF, x, NULL, w, NULL, false);
        ASSERT_OK(fsdp_scope_status(s));
        ASSERT_OK(fsdp_tensor_to_floats(of, y[i]));
        fsdp_scope_close(s);
    }
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(x);
    fsdp_tensor_release(w);
    ASSERT(memcmp(y[0], y[1], sizeof y[0]) == 0);
    ASSERT_INT(op_allocated(device), 0);
    fsdp_device_destroy(device);
}

/* Gradients of x and up reuse the memory of x and up. Backward needs memory for a part of the
 * activation and little else. */
TEST(backward_holds_only_a_part_of_the_activation)
{
    static result r;
    for (int i = 0; i < N_KINDS; i++) {
        bench b = {.kind = &kinds[i], .fused = true, .rows = MOST_ROWS / 2};
        run(t, &b, FSDP_DTYPE_F32, false, &r);
        CHECK_HERE();
        const int64_t half = b.rows * WIDE / 2 * (int64_t)sizeof(float);
        if (r.growth > half + half / 8)
            FAIL("%s: %lld bytes more, where half of x is %lld", kinds[i].name, (long long)r.growth,
                 (long long)half);
    }
}

/* --- the second run --- */

static int gemms;
static const fsdp_kernels *real_kernels;

static fsdp_status counted_gemm(fsdp_kernel_context *c, const fsdp_gemm_args *args)
{
    gemms++;
    return real_kernels->gemm(c, args);
}

/* There is one product before the activation and none after it: backward does not read that one. */
TEST(the_second_run_skips_the_last_product)
{
    for (int i = 0; i < N_KINDS; i++) {
        const kind *k = &kinds[i];
        const int64_t shapes[MOST_LEAVES][2] = {{4, WIDTH}, {WIDE, WIDTH}, {WIDE, WIDTH}, {0}, {0}};
        bench b = {.kind = k, .fused = true, .rows = 4};
        const bench *self = &b;
        fsdp_device *device;
        fsdp_tape *tape;
        fsdp_scope *s;
        ASSERT_OK(fsdp_device_create(NULL, &device));
        ASSERT_OK(fsdp_tape_create(&tape));
        ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
        for (int l = 0; l < 3; l++)
            b.leaves[l] =
                op_random_tensor(t, device, FSDP_DTYPE_F32, 2, shapes[l], (uint64_t)l + 1);
        b.leaves[3] = op_random_tensor(
            t, device, FSDP_DTYPE_F32, 2,
            k->transposed ? (int64_t[]){WIDE, WIDTH} : (int64_t[]){WIDTH, WIDE}, 4);
        fsdp_tensor *dy = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, shapes[0], 9);
        CHECK_HERE();
        for (int l = 0; l < 4; l++)
            ASSERT_OK(fsdp_tensor_set_requires_grad(b.leaves[l], true));
        fsdp_kernels kernels = *(real_kernels = device->kernels);
        kernels.gemm = counted_gemm;
        device->kernels = &kernels;
        fsdp_args in = {.t = {b.leaves[0]}, .n = 1}, out = {.n = 0};
        fsdp_checkpoint(s, NULL, part, &self, sizeof self, &in, &out);
        ASSERT_OK(fsdp_scope_status(s));
        gemms = 0;
        ASSERT_OK(fsdp_backward(tape, out.t, &dy, 1));
        /* The second run computes x and up; after that each linear layer has two gradients. */
        ASSERT_INT(gemms, 3 * (1 + k->gated) + 2);
        device->kernels = real_kernels;
        fsdp_scope_close(s);
        fsdp_tape_destroy(tape);
        fsdp_tensor_release(dy);
        for (int l = 0; l < 4; l++)
            fsdp_tensor_release(b.leaves[l]);
        fsdp_device_destroy(device);
    }
}

/* --- a leaf --- */

typedef struct leaf_part {
    fsdp_tensor *x, *w;
} leaf_part;

static void relu_of_a_leaf(fsdp_scope *s, const void *self, const fsdp_args *in, fsdp_args *out)
{
    const leaf_part *p = self;
    fsdp_tensor *hidden = fsdp_linear(s, in->t[0], p->w, NULL);
    fsdp_tensor *y = fsdp_relu_dropout_linear_(s, p->x, 0.25f, p->w, NULL);
    *out = (fsdp_args){.t = {fsdp_add(s, hidden, y)}, .n = 1};
}

/* The leaf's memory is not overwritten, and both runs keep the same results. */
TEST(relu_of_a_leaf_is_not_in_place)
{
    enum {
        SIDE = 6
    };
    static const fsdp_checkpoint_options options[] = {{0}, {.keeps_results = true}};
    static const int64_t shape[] = {SIDE, SIDE};
    float x[SIDE * SIDE], after[SIDE * SIDE], want[2][SIDE * SIDE], got[2][SIDE * SIDE];
    for (int i = 0; i < 3; i++) {
        fsdp_device *device;
        fsdp_tape *tape;
        fsdp_scope *s;
        ASSERT_OK(fsdp_device_create(NULL, &device));
        ASSERT_OK(fsdp_tape_create(&tape));
        ASSERT_OK(fsdp_scope_open(device, tape, &(fsdp_scope_options){.training = true}, &s));
        leaf_part p = {.x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, shape, 1),
                       .w = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, shape, 2)};
        fsdp_tensor *dy = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, shape, 3);
        CHECK_HERE();
        ASSERT_OK(fsdp_tensor_set_requires_grad(p.x, true));
        ASSERT_OK(fsdp_tensor_set_requires_grad(p.w, true));
        ASSERT_OK(fsdp_tensor_to_floats(p.x, x));
        fsdp_args in = {.t = {fsdp_scale(s, p.w, 0.5f)}, .n = 1}, out = {.n = 0};
        if (i)
            fsdp_checkpoint(s, &options[i - 1], relu_of_a_leaf, &p, sizeof p, &in, &out);
        else
            relu_of_a_leaf(s, &p, &in, &out);
        ASSERT_OK(fsdp_scope_status(s));
        ASSERT_OK(fsdp_backward(tape, out.t, &dy, 1));
        ASSERT_OK(fsdp_tensor_to_floats(p.x, after));
        ASSERT(memcmp(x, after, sizeof x) == 0);
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(p.x), i ? got[0] : want[0]));
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(p.w), i ? got[1] : want[1]));
        ASSERT(i == 0 || memcmp(got, want, sizeof want) == 0);
        fsdp_scope_close(s);
        fsdp_tape_destroy(tape);
        fsdp_tensor_release(dy);
        fsdp_tensor_release(p.x);
        fsdp_tensor_release(p.w);
        fsdp_device_destroy(device);
    }
}
