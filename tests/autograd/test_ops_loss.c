/* linear_cross_entropy: see gradcheck.h for what each op_check tests. */
#include <stdlib.h>

#include "src/base/alloc.h"
#include "src/tensor/tensor.h"
#include "tests/autograd/gradcheck.h"

typedef struct loss_arg {
    const int32_t *labels;
    float factor;
} loss_arg;

static fsdp_tensor *run_loss(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    const loss_arg *a = arg;
    return fsdp_linear_cross_entropy(s, in[0], in[1], a->labels, a->factor);
}

static fsdp_tensor *run_biased_loss(fsdp_scope *s, fsdp_tensor *const *in, const void *arg)
{
    const loss_arg *a = arg;
    return fsdp_linear_cross_entropy_bias_(s, in[0], in[1], in[2], a->labels, a->factor);
}

static void naive_loss(const op_case *c, const double *const *in, double *out)
{
    const loss_arg *a = c->arg;
    const int64_t rows = op_size(c, 0, 0), width = op_size(c, 0, 1), vocab = op_size(c, 1, 0);
    out[0] = 0.0;
    for (int64_t r = 0; r < rows; r++) {
        double sum = 0.0, picked = 0.0, mean = 0.0;
        for (int64_t v = 0; v < vocab; v++) {
            double logit = 0.0;
            for (int64_t d = 0; d < width; d++)
                logit += in[0][r * width + d] * in[1][v * width + d];
            logit += c->n_in > 2 ? in[2][v] : 0.0;
            sum += exp(logit);
            mean += logit / (double)vocab;
            picked = v == a->labels[r] ? logit : picked;
        }
        if (a->labels[r] >= 0)
            out[0] += (log(sum) - picked - (double)c->label_smoothing * (mean - picked)) *
                      (double)a->factor;
    }
}

TEST(loss_equals_loops_and_differences)
{
    static const int32_t all[] = {0, 6, 3, 3, 1}, some[] = {-100, 6, -1, 3, -100},
                         none[] = {-100, -100, -100, -100, -100};
    static const loss_arg args[] = {{all, 1.0f}, {all, 0.2f}, {some, 0.5f}, {none, 1.0f}};
    for (int i = 0; i < 8; i++) {
        op_check(
            t, &(op_case){.name = i < 4 ? "linear_cross_entropy" : "linear_cross_entropy, smoothed",
                          .run = run_loss,
                          .naive = naive_loss,
                          .arg = &args[i % 4],
                          .label_smoothing = i < 4 ? 0.0f : 0.1f,
                          .n_in = 2,
                          .in = {{2, {5, 4}}, {2, {7, 4}}}});
        CHECK_HERE();
        op_check(t, &(op_case){.name = "linear_cross_entropy with a bias",
                               .run = run_biased_loss,
                               .naive = naive_loss,
                               .arg = &args[i % 4],
                               .label_smoothing = i < 4 ? 0.0f : 0.1f,
                               .n_in = 3,
                               .in = {{2, {5, 4}}, {2, {7, 4}}, {1, {7}}}});
        CHECK_HERE();
    }
}

/* --- several chunks --- */

enum {
    ROWS = 1301, /* 1111 of them have labels: three chunks */
    WIDTH = 5,
    VOCAB = 11
};

typedef struct big {
    float x[ROWS * WIDTH], w[VOCAB * WIDTH], dx[ROWS * WIDTH], dw[VOCAB * WIDTH];
    int32_t labels[ROWS];
} big;

/* The gradients of softmax cross-entropy in closed form, in double. */
static double naive_big(const big *b, double factor, double *dx, double *dw)
{
    double loss = 0.0, p[VOCAB];
    for (int r = 0; r < ROWS; r++) {
        double sum = 0.0;
        if (b->labels[r] < 0)
            continue;
        for (int v = 0; v < VOCAB; v++) {
            p[v] = 0.0;
            for (int d = 0; d < WIDTH; d++)
                p[v] += (double)b->x[r * WIDTH + d] * (double)b->w[v * WIDTH + d];
            sum += p[v] = exp(p[v]);
        }
        loss += log(sum) - log(p[b->labels[r]]);
        for (int v = 0; v < VOCAB; v++) {
            double g = (p[v] / sum - (v == b->labels[r])) * factor;
            for (int d = 0; d < WIDTH; d++) {
                dx[r * WIDTH + d] += g * (double)b->w[v * WIDTH + d];
                dw[v * WIDTH + d] += g * (double)b->x[r * WIDTH + d];
            }
        }
    }
    return loss * factor;
}

TEST(loss_of_several_chunks_is_that_of_one)
{
    static big b;
    static double dx[ROWS * WIDTH], dw[VOCAB * WIDTH];
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_tensor *x =
        op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){ROWS, WIDTH}, 1);
    fsdp_tensor *w =
        op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){VOCAB, WIDTH}, 2);
    ASSERT_OK(fsdp_tensor_set_requires_grad(x, true));
    ASSERT_OK(fsdp_tensor_set_requires_grad(w, true));
    ASSERT_OK(fsdp_tensor_to_floats(x, b.x));
    ASSERT_OK(fsdp_tensor_to_floats(w, b.w));
    for (int r = 0; r < ROWS; r++)
        b.labels[r] = r % 7 == 3 ? -100 : r * 5 % VOCAB;
    int64_t before = op_allocated(device);
    fsdp_tensor *loss = fsdp_linear_cross_entropy(s, x, w, b.labels, 0.25f);
    ASSERT_OK(fsdp_scope_status(s));
    double value, expected = naive_big(&b, 0.25, dx, dw);
    ASSERT_OK(fsdp_tensor_item(loss, &value));
    ASSERT_NEAR(value, expected, 1e-5 * expected);
    /* Memory that remains: the loss, dx of the labelled rows, the gradient of w. */
    int labelled = 0;
    for (int r = 0; r < ROWS; r++)
        labelled += b.labels[r] >= 0;
    ASSERT_INT(op_allocated(device) - before, 4 + 4 * WIDTH * (labelled + VOCAB));
    /* Temporary memory: logits of one chunk of rows, with their losses and rows of x. */
    const fsdp_device_traits *traits = device->traits;
    const int64_t rows = labelled < traits->loss_rows ? labelled : traits->loss_rows;
    const int64_t columns = VOCAB + traits->loss_columns - 1;
    fsdp_memory_stats stats;
    fsdp_device_memory(device, &stats);
    ASSERT(stats.allocated_peak - op_allocated(device) <= 4 * rows * (columns + 1 + WIDTH));
    ASSERT_OK(fsdp_backward(tape, &loss, NULL, 1));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(x), b.dx));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(w), b.dw));
    for (int i = 0; i < ROWS * WIDTH; i++)
        ASSERT_NEAR(b.dx[i], dx[i], 1e-6);
    for (int i = 0; i < VOCAB * WIDTH; i++)
        ASSERT_NEAR(b.dw[i], dw[i], 2e-4);
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(x);
    fsdp_tensor_release(w);
    fsdp_device_destroy(device);
}

static fsdp_tensor *tensor_of(fsdp_test *t, fsdp_device *device, int ndim, const int64_t *shape,
                              const float *values)
{
    fsdp_tensor *x = NULL;
    if (fsdp_tensor_create(device, FSDP_DTYPE_F32, ndim, shape, FSDP_TAG_ACTIVATION, &x) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "no tensor");
    else
        fsdp_device_from_host(device, fsdp_tensor_ptr(x), values,
                              (size_t)fsdp_tensor_numel(x) * sizeof *values);
    return x;
}

/* A bias is the weight of one more feature, which is 1 in every row: its gradient is a column of
 * dw. */
TEST(the_gradient_of_a_bias_is_that_of_a_feature_of_ones)
{
    enum {
        WIDE = WIDTH + 1
    };
    static float x[ROWS * WIDE], w[VOCAB * WIDE], narrow_x[ROWS * WIDTH], narrow_w[VOCAB * WIDTH];
    static float bias[VOCAB], dw[VOCAB * WIDE], narrow_dw[VOCAB * WIDTH], db[VOCAB];
    static int32_t labels[ROWS];
    double loss[2];
    for (int r = 0; r < ROWS; r++) {
        labels[r] = r % 7 == 3 ? -100 : r * 5 % VOCAB;
        for (int d = 0; d < WIDE; d++)
            x[r * WIDE + d] = d < WIDTH ? sinf((float)(r * WIDTH + d)) : 1.0f;
        memcpy(narrow_x + r * WIDTH, x + r * WIDE, WIDTH * sizeof *x);
    }
    for (int v = 0; v < VOCAB; v++) {
        for (int d = 0; d < WIDE; d++)
            w[v * WIDE + d] = cosf((float)(v * WIDE + d));
        memcpy(narrow_w + v * WIDTH, w + v * WIDE, WIDTH * sizeof *w);
        bias[v] = w[v * WIDE + WIDTH];
    }
    for (int biased = 0; biased < 2; biased++) {
        fsdp_device *device;
        fsdp_tape *tape;
        fsdp_scope *s;
        fsdp_tensor *in[3];
        const int64_t d = biased ? WIDTH : WIDE, vocab = VOCAB;
        ASSERT_OK(fsdp_device_create(NULL, &device));
        ASSERT_OK(fsdp_tape_create(&tape));
        ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
        in[0] = tensor_of(t, device, 2, (const int64_t[]){ROWS, d}, biased ? narrow_x : x);
        in[1] = tensor_of(t, device, 2, (const int64_t[]){VOCAB, d}, biased ? narrow_w : w);
        in[2] = tensor_of(t, device, 1, &vocab, bias);
        CHECK_HERE();
        for (int i = 0; i < 3; i++)
            ASSERT_OK(fsdp_tensor_set_requires_grad(in[i], true));
        fsdp_tensor *value =
            fsdp_linear_cross_entropy_bias_(s, in[0], in[1], biased ? in[2] : NULL, labels, 0.25f);
        ASSERT_OK(fsdp_scope_status(s));
        ASSERT_OK(fsdp_tensor_item(value, &loss[biased]));
        ASSERT_OK(fsdp_backward(tape, &value, NULL, 1));
        ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(in[1]), biased ? narrow_dw : dw));
        if (biased)
            ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(in[2]), db));
        fsdp_scope_close(s);
        fsdp_tape_destroy(tape);
        for (int i = 0; i < 3; i++)
            fsdp_tensor_release(in[i]);
        fsdp_device_destroy(device);
    }
    ASSERT_NEAR(loss[0], loss[1], 1e-4);
    for (int v = 0; v < VOCAB; v++) {
        ASSERT_NEAR(db[v], dw[v * WIDE + WIDTH], 2e-4);
        ASSERT_NEAR(narrow_dw[v * WIDTH], dw[v * WIDE], 2e-4);
    }
}

/* x is the result of a node. Computes the gradients of x and w for a loss of several chunks, and
 * the memory that is allocated after x is released. */
static void run_big(fsdp_test *t, const int32_t *labels, bool in_place, bool held, big *b,
                    int64_t *left)
{
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_tensor *leaf =
        op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){ROWS, WIDTH}, 1);
    fsdp_tensor *w =
        op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){VOCAB, WIDTH}, 2);
    ASSERT_OK(fsdp_tensor_set_requires_grad(leaf, true));
    ASSERT_OK(fsdp_tensor_set_requires_grad(w, true));
    const int64_t before = op_allocated(device);
    fsdp_tensor *x = fsdp_scale(s, leaf, 0.5f), *holder = held ? fsdp_tensor_retain(x) : NULL;
    fsdp_tensor *loss = in_place ? fsdp_linear_cross_entropy_(s, x, w, labels, 0.25f)
                                 : fsdp_linear_cross_entropy(s, x, w, labels, 0.25f);
    ASSERT_OK(fsdp_scope_status(s));
    if (held) /* x must be unchanged */
        ASSERT_OK(fsdp_tensor_to_floats(holder, b->x));
    fsdp_tensor_release(holder);
    fsdp_drop(s, x);
    *left = op_allocated(device) - before;
    ASSERT_OK(fsdp_backward(tape, &loss, NULL, 1));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(leaf), b->dx));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(w), b->dw));
    if (held) {
        static float values[ROWS * WIDTH];
        ASSERT_OK(fsdp_tensor_to_floats(leaf, values));
        for (int i = 0; i < ROWS * WIDTH; i++)
            ASSERT_F32(b->x[i], 0.5f * values[i]);
    }
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(leaf);
    fsdp_tensor_release(w);
    fsdp_device_destroy(device);
}

/* dx overwrites x if most rows have a gradient: the gradients are the same, and no second tensor
 * exists besides x. If something else holds x, it is unchanged. */
TEST(the_gradient_of_x_may_reuse_its_memory)
{
    static big apart, in_place;
    int64_t left[2];
    for (int ignored = 0; ignored < 3; ignored++) {
        for (int r = 0; r < ROWS; r++) {
            const bool first_half = ignored == 2 && r < ROWS - ROWS / 2;
            apart.labels[r] = (ignored == 1 && r % 7 == 3) || first_half ? -100 : r * 5 % VOCAB;
        }
        run_big(t, apart.labels, false, false, &apart, &left[0]);
        CHECK_HERE();
        for (int held = 0; held < 2; held++) {
            run_big(t, apart.labels, true, held, &in_place, &left[1]);
            CHECK_HERE();
            ASSERT(memcmp(apart.dx, in_place.dx, sizeof apart.dx) == 0);
            ASSERT(memcmp(apart.dw, in_place.dw, sizeof apart.dw) == 0);
            ASSERT(in_place.dx[(ROWS - 1) * WIDTH] != 0.0f);
            if (!held && ignored < 2) /* includes the rows without gradient */
                ASSERT_INT(left[1], 4 + 4 * WIDTH * (ROWS + VOCAB));
            else
                ASSERT_INT(left[1], left[0]);
        }
    }
}

/* --- a weight that is a leaf --- */

enum {
    FEW = 3,
    CLASSES = 7,
    DEPTH = 4
};

/* Backward of the loss, or with `unused` of sum(2 w). `grad` is what it adds to w's gradient. */
static void train(fsdp_test *t, fsdp_scope *s, fsdp_tape *tape, fsdp_tensor *const xw[2],
                  bool unused, float grad[CLASSES * DEPTH])
{
    static const int32_t labels[FEW] = {0, 6, 3};
    fsdp_tensor *loss = fsdp_linear_cross_entropy(s, xw[0], xw[1], labels, 1.0f);
    fsdp_tensor *root = unused ? fsdp_sum(s, fsdp_scale(s, xw[1], 2.0f)) : loss;
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_OK(fsdp_backward(tape, &root, NULL, 1));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_tensor_grad(xw[1]), grad));
}

TEST(a_loss_without_backward_leaves_no_gradient)
{
    static const int32_t labels[FEW] = {0, 6, 3};
    float want[CLASSES * DEPTH], got[CLASSES * DEPTH];
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_tensor *xw[2] = {
        op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){FEW, DEPTH}, 1),
        op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){CLASSES, DEPTH}, 2)};
    CHECK_HERE();
    ASSERT_OK(fsdp_tensor_set_requires_grad(xw[1], true));
    train(t, s, tape, xw, false, want);
    CHECK_HERE();
    fsdp_tensor_zero_grad(xw[1]);
    for (int reset = 0; reset < 2; reset++) {
        ASSERT(fsdp_linear_cross_entropy(s, xw[0], xw[1], labels, 1.0f));
        ASSERT(!fsdp_tensor_grad(xw[1]));
        if (reset)
            fsdp_tape_reset(tape);
        train(t, s, tape, xw, false, got);
        CHECK_HERE();
        ASSERT(memcmp(got, want, sizeof want) == 0);
        fsdp_tensor_zero_grad(xw[1]);
    }
    train(t, s, tape, xw, true, got);
    CHECK_HERE();
    for (int i = 0; i < CLASSES * DEPTH; i++)
        ASSERT_F32(got[i], 2.0f);
    /* It adds to an existing gradient. */
    train(t, s, tape, xw, false, got);
    CHECK_HERE();
    for (int i = 0; i < CLASSES * DEPTH; i++)
        ASSERT_F32(got[i], 2.0f + want[i]);
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(xw[0]);
    fsdp_tensor_release(xw[1]);
    ASSERT_INT(op_allocated(device), 0);
    fsdp_device_destroy(device);
}

/* --- misuse --- */

TEST(loss_names_the_wrong_label_and_shape)
{
    static const int32_t labels[] = {0, 6, 7}, fine[] = {0, 0, 0};
    fsdp_device *device;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){3, 4}, 1);
    fsdp_tensor *w = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){7, 4}, 2);
    fsdp_tensor *wide = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){7, 5}, 2);
    fsdp_scope *s;
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    ASSERT(!fsdp_linear_cross_entropy(s, x, w, labels, 1.0f));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID,
                 "label 7 at row 2 is not below the 7 classes");
    fsdp_scope_close(s);
    ASSERT_OK(fsdp_scope_open(device, NULL, NULL, &s));
    ASSERT(!fsdp_linear_cross_entropy(s, x, wide, fine, 1.0f));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "x is [3, 4] but w is [7, 5]");
    fsdp_scope_close(s);
    fsdp_tensor_release(x);
    fsdp_tensor_release(w);
    fsdp_tensor_release(wide);
    fsdp_device_destroy(device);
}

TEST(loss_refuses_a_gradient_other_than_one)
{
    static const int32_t labels[] = {0, 6, 3};
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_scope *s;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
    fsdp_tensor *x = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){3, 4}, 1);
    fsdp_tensor *w = op_random_tensor(t, device, FSDP_DTYPE_F32, 2, (const int64_t[]){7, 4}, 2);
    ASSERT_OK(fsdp_tensor_set_requires_grad(x, true));
    fsdp_tensor *half = fsdp_scale(s, fsdp_linear_cross_entropy(s, x, w, labels, 1.0f), 0.5f);
    ASSERT_OK(fsdp_scope_status(s));
    ASSERT_ERROR(fsdp_backward(tape, &half, NULL, 1), FSDP_ERR_UNSUPPORTED,
                 "the gradient of the loss is 0.5, not 1");
    fsdp_scope_close(s);
    fsdp_tape_destroy(tape);
    fsdp_tensor_release(x);
    fsdp_tensor_release(w);
    fsdp_device_destroy(device);
}
