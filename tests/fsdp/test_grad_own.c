/* Gradients of a group of one rank, which has no gradient buffer: Note [Gradients of one rank] in
 * src/fsdp/grad_own.h. */
#include <math.h>
#include <string.h>

#include "src/autograd/joined_linear.h"
#include "src/base/alloc.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/reader.h"
#include "tests/test.h"

/* --- nothing is copied --- */

enum {
    WIDTH = 64,
    BLOCKS = 4,
    BLOCK_NUMEL = WIDTH + 2 * WIDTH * WIDTH
};

static const int64_t all_gradients = (int64_t)BLOCKS * BLOCK_NUMEL * (int64_t)sizeof(float);
static const int64_t matrix = (int64_t)WIDTH * WIDTH * (int64_t)sizeof(float);

static fsdp_memory_stats memory(const trainee *m)
{
    fsdp_memory_stats stats;
    fsdp_device_memory(m->device, &stats);
    return stats;
}

static fsdp_status open_blocks(trainee *m)
{
    return trainee_open_blocks(NULL, NULL, BLOCKS, WIDTH, &(fsdp_fully_shard_options){0}, m);
}

static fsdp_status run_blocks(trainee *m, int micro_steps)
{
    for (int i = 0; i < micro_steps; i++)
        FSDP_TRY(tree_forward_backward(
            m, m->model,
            &(tree_call){.micro_batch = i, .micro_step = i, .n_micro_steps = micro_steps}));
    return FSDP_OK;
}

TEST(a_step_needs_memory_for_the_gradients_and_for_no_buffer)
{
    trainee m;
    ASSERT_OK(open_blocks(&m));
    for (int step = 0; step < 3; step++) {
        ASSERT_OK(run_blocks(&m, 1));
        ASSERT_INT(memory(&m).tag_allocated[FSDP_TAG_GRAD], all_gradients);
        ASSERT_INT(memory(&m).tag_peak[FSDP_TAG_GRAD], all_gradients);
        fsdp_module_zero_grad(m.model);
        ASSERT_INT(memory(&m).tag_allocated[FSDP_TAG_GRAD], 0);
    }
    ASSERT_OK(trainee_close(&m));
}

/* A gradient that is added to another one is released when the next one arrives. */
TEST(gradients_that_are_added_to_others_take_the_memory_of_two_matrices)
{
    trainee m;
    ASSERT_OK(open_blocks(&m));
    for (int step = 0; step < 3; step++)
        ASSERT_OK(run_blocks(&m, 1)); /* to the parameters' gradients */
    ASSERT(memory(&m).tag_peak[FSDP_TAG_GRAD] <= all_gradients + 2 * matrix);
    fsdp_module_zero_grad(m.model);
    fsdp_device_reset_peak_memory(m.device);
    ASSERT_OK(run_blocks(&m, 8)); /* to the sums of micro-steps */
    ASSERT(memory(&m).tag_peak[FSDP_TAG_GRAD] <= 3 * all_gradients + 2 * matrix);
    ASSERT_INT(memory(&m).tag_allocated[FSDP_TAG_GRAD], all_gradients);
    ASSERT_OK(trainee_close(&m));
}

/* The kernels of a device, with a count of the calls of two of them. */
static fsdp_kernels counting;
static const fsdp_kernels *counted;
static int tree_sums, copies;

static void count_tree_sum(fsdp_kernel_context *c, float *dst, const void *const *src, int sources,
                           fsdp_dtype dtype, int64_t n, float scale)
{
    tree_sums++;
    counted->tree_sum(c, dst, src, sources, dtype, n, scale);
}

static void count_scale(fsdp_kernel_context *c, void *out, const void *x, float factor,
                        fsdp_dtype dtype, int64_t n)
{
    copies++;
    counted->scale(c, out, x, factor, dtype, n);
}

TEST(a_step_adds_nothing_and_copies_nothing)
{
    trainee m;
    ASSERT_OK(open_blocks(&m));
    counted = m.device->kernels;
    counting = *counted;
    counting.tree_sum = count_tree_sum;
    counting.scale = count_scale;
    m.device->kernels = &counting;
    ASSERT_OK(run_blocks(&m, 1));
    ASSERT_INT(tree_sums, 0);
    ASSERT_INT(copies, 0);
    ASSERT_OK(run_blocks(&m, 1));
    ASSERT_INT(tree_sums, 3 * BLOCKS); /* each gradient is added once */
    ASSERT_INT(copies, 0);
    m.device->kernels = counted;
    ASSERT_OK(trainee_close(&m));
}

/* --- bits --- */

enum {
    NUMEL = READER_WIDTH * READER_WIDTH
};

static fsdp_status open_reader(trainee *m)
{
    FSDP_TRY(reader_open(NULL, NULL, false, m));
    reader_set(m, "AbaH", false);
    return FSDP_OK;
}

/* Set `gradient` to the gradient of "a" for one leaf. */
static fsdp_status leaf_gradient(int leaf, float gradient[NUMEL])
{
    trainee m;
    float *values = NULL;
    FSDP_TRY(open_reader(&m));
    FSDP_TRY(reader_step(&m, leaf));
    FSDP_TRY(tree_full_grad(reader_of(&m)->w[0], &values));
    memcpy(gradient, values, NUMEL * sizeof *gradient);
    fsdp_free(values);
    return trainee_close(&m);
}

static void compare(fsdp_test *t, const trainee *m, const float *want)
{
    float *got = NULL;
    ASSERT_OK(tree_full_grad(reader_of(m)->w[0], &got));
    ASSERT(got);
    for (int i = 0; i < NUMEL; i++)
        ASSERT(got[i] == want[i]);
    fsdp_free(got);
}

TEST(a_gradient_is_added_to_the_one_that_is_there)
{
    static float want[NUMEL], next[NUMEL];
    trainee m;
    ASSERT_OK(open_reader(&m));
    ASSERT_OK(leaf_gradient(0, want));
    ASSERT_OK(reader_step(&m, 0));
    compare(t, &m, want);
    for (int leaf = 1; leaf < 4; leaf++) {
        ASSERT_OK(leaf_gradient(leaf, next));
        for (int i = 0; i < NUMEL; i++)
            want[i] += next[i];
        ASSERT_OK(reader_step(&m, leaf));
        compare(t, &m, want);
        CHECK_HERE();
    }
    ASSERT_OK(trainee_close(&m));
}

/* The gradient is divided once, also if it is the only one or is not the first. */
TEST(a_gradient_is_divided_once)
{
    static float leaves[3][NUMEL], want[NUMEL];
    for (int leaf = 0; leaf < 3; leaf++)
        ASSERT_OK(leaf_gradient(leaf, leaves[leaf]));
    for (int micro_steps = 1; micro_steps <= 3; micro_steps++) {
        trainee m;
        ASSERT_OK(open_reader(&m));
        ASSERT_OK(fsdp_set_gradient_divide_factor(m.model, 3.0));
        for (int a = 0; a < micro_steps; a++)
            ASSERT_OK(reader_micro_step(
                &m, &(tree_call){.micro_batch = a, .micro_step = a, .n_micro_steps = micro_steps}));
        for (int i = 0; i < NUMEL; i++) {
            want[i] = leaves[0][i];
            for (int a = 1; a < micro_steps; a++)
                want[i] += leaves[a][i];
            want[i] *= (float)(1.0 / 3.0);
        }
        compare(t, &m, want);
        CHECK_HERE();
        ASSERT_OK(trainee_close(&m));
    }
}

static fsdp_status count_calls(fsdp_parameter *p, fsdp_tensor *grad, void *arg)
{
    (void)p, (void)grad;
    ++*(int *)arg;
    return FSDP_OK;
}

/* Several backward passes on one tape of two forwards, of which only the last one ends the step. */
TEST(several_backwards_of_a_step_add_up)
{
    static float want[NUMEL], next[NUMEL];
    trainee m;
    int calls = 0;
    ASSERT_OK(open_reader(&m));
    ASSERT_OK(fsdp_set_all_reduce_hook(m.model, count_calls, &calls));
    ASSERT_OK(leaf_gradient(0, want));
    ASSERT_OK(leaf_gradient(1, next));
    for (int i = 0; i < NUMEL; i++)
        want[i] += next[i];
    ASSERT_OK(fsdp_set_is_last_backward(m.model, false));
    ASSERT_OK(reader_step(&m, 0));
    ASSERT_OK(fsdp_set_is_last_backward(m.model, true));
    ASSERT_OK(reader_step(&m, 1));
    compare(t, &m, want);
    ASSERT_INT(calls, 8); /* "a", "b", "d" and the bias of "a", twice */
    ASSERT_OK(trainee_close(&m));
}

/* Without communication, gradients are added where they are, as those of a model without units. */
TEST(gradients_without_communication_are_added_where_they_are)
{
    trainee m, plain;
    float *want = NULL, *got = NULL;
    const tree_call calls[] = {{.micro_batch = 0}, {.micro_batch = 1}, {.micro_batch = 2}};
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &plain));
    ASSERT_OK(tree_example(WIDTH, &plain.model));
    ASSERT_OK(fsdp_module_to_empty(plain.model, plain.device));
    plain.plain = true;
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(WIDTH, &m.model));
    ASSERT_OK(tree_example_shard(m.model, NULL, m.device, &(fsdp_fully_shard_options){0}));
    ASSERT_OK(fsdp_module_init(plain.model, 5));
    ASSERT_OK(fsdp_module_init(m.model, 5));
    for (int i = 0; i < 3; i++)
        ASSERT_OK(tree_forward_backward(&plain, plain.model, &calls[i]));
    for (int step = 0; step < 2; step++) {
        fsdp_module_zero_grad(m.model);
        ASSERT_OK(fsdp_no_sync_begin(m.model));
        for (int i = 0; i < 2; i++)
            ASSERT_OK(tree_forward_backward(&m, m.model, &calls[i]));
        ASSERT_OK(fsdp_no_sync_end(m.model));
        ASSERT(!fsdp_parameter_grad(tree_of(m.model)->up));
        ASSERT_OK(tree_forward_backward(&m, m.model, &calls[2]));
        ASSERT_OK(tree_full_grad(tree_of(plain.model)->up, &want));
        ASSERT_OK(tree_full_grad(tree_of(m.model)->up, &got));
        ASSERT(memcmp(got, want,
                      (size_t)fsdp_parameter_numel(tree_of(m.model)->up) * sizeof *got) == 0);
        fsdp_free(want);
        fsdp_free(got);
    }
    ASSERT_OK(trainee_close(&m));
    ASSERT_OK(trainee_close(&plain));
}

/* --- failures --- */

/* zero_grad() drops the gradients that parameters got before the failure. All others are dropped at
 * once, and so are the sums of earlier micro-steps. */
TEST(a_step_that_fails_leaves_nothing)
{
    static float want[NUMEL];
    ASSERT_OK(leaf_gradient(2, want));
    for (int micro = 0; micro < 2; micro++) {
        trainee m;
        ASSERT_OK(open_reader(&m));
        if (micro)
            ASSERT_OK(reader_micro_step(&m, &(tree_call){.micro_step = 0, .n_micro_steps = 3}));
        reader_set(&m, "AcXba", false);
        ASSERT_ERROR(reader_micro_step(
                         &m, &(tree_call){.micro_step = micro, .n_micro_steps = micro ? 3 : 1}),
                     FSDP_ERR_INVALID, "on purpose");
        fsdp_module_zero_grad(m.model);
        ASSERT_INT(memory(&m).tag_allocated[FSDP_TAG_GRAD], 0);
        reader_set(&m, "AbaH", false);
        ASSERT_OK(reader_step(&m, 2));
        compare(t, &m, want);
        CHECK_HERE();
        ASSERT_OK(trainee_close(&m));
    }
}

/* --- adjacent gradients --- */

enum {
    TOKENS = 7,
    INPUTS = 24,
    FEATURES = 32,
    LAYERS = 3 /* query, key, value */
};

/* An attention whose linear layers may be one product. */
typedef struct joined {
    fsdp_parameter *w[LAYERS], *bias[LAYERS];
    bool one_by_one;
} joined;

static void joined_forward(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    static const int32_t offsets[] = {0, 3, TOKENS};
    const joined *m = self->impl;
    fsdp_tensor *w[LAYERS], *bias[LAYERS], *qkv[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        w[i] = fsdp_read(s, m->w[i]);
        bias[i] = fsdp_read(s, m->bias[i]);
    }
    if (m->one_by_one)
        for (int i = 0; i < LAYERS; i++)
            qkv[i] = fsdp_linear(s, in->t[0], w[i], bias[i]);
    else
        fsdp_joined_linear(s, in->t[0], w, bias, LAYERS, qkv);
    fsdp_tensor *y = fsdp_attention(
        s, qkv[0], qkv[1], qkv[2], NULL,
        &(fsdp_attention_options){.heads = 2, .n_sequences = 2, .q_offsets = offsets});
    out->t[out->n++] = fsdp_sum(s, fsdp_mul(s, y, y));
}

/* A unit on a device that joins products. */
static fsdp_status open_joined(fsdp_group *group, fsdp_device_traits *traits, trainee *m)
{
    const fsdp_init init = {.std = 0.3f};
    joined *j = fsdp_calloc(1, sizeof *j);
    FSDP_TRY(trainee_open(group, NULL, FSDP_DTYPE_F32, m));
    *traits = *m->device->traits;
    traits->joins_products = true;
    m->device->traits = traits;
    FSDP_TRY(fsdp_module_create("Joined", &m->model));
    fsdp_module_set_forward(m->model, joined_forward, j, fsdp_free);
    for (int i = 0; i < LAYERS; i++) {
        const char w[] = {"qkv"[i], 0}, bias[] = {"qkv"[i], '_', 'b', 0};
        const int64_t shape[] = {FEATURES, INPUTS};
        FSDP_TRY(fsdp_module_add_parameter(m->model, w, 2, shape, init, &j->w[i]));
        FSDP_TRY(fsdp_module_add_parameter(m->model, bias, 1, shape, init, &j->bias[i]));
    }
    FSDP_TRY(fsdp_fully_shard(m->model, group, m->device, &(fsdp_fully_shard_options){0}));
    return fsdp_module_init(m->model, 5);
}

static fsdp_status run_joined(trainee *m, int leaf)
{
    float values[TOKENS * INPUTS];
    fsdp_tensor *x;
    fsdp_scope *s;
    for (int i = 0; i < TOKENS * INPUTS; i++)
        values[i] = (float)((i * 7 + leaf) % 11) / 8.0f - 0.6f;
    FSDP_TRY(fsdp_tensor_from_data(m->device, FSDP_DTYPE_F32, 2, (const int64_t[]){TOKENS, INPUTS},
                                   values, FSDP_TAG_ACTIVATION, &x));
    fsdp_status status =
        tree_scope(m, m->tape, &(tree_call){.micro_batch = leaf, .n_micro_steps = 1}, &s);
    fsdp_tensor *loss = fsdp_module_call1(s, m->model, x);
    if (status == FSDP_OK)
        status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = fsdp_backward(m->tape, &loss, NULL, 1);
    fsdp_scope_close(s);
    fsdp_tensor_release(x);
    return status;
}

static void check_adjacent(fsdp_test *t, const fsdp_tensor *a, const fsdp_tensor *b)
{
    ASSERT(a->storage == b->storage);
    ASSERT_INT(b->offset, a->offset + fsdp_tensor_numel(a));
}

/* The gradients of the matrices are adjacent although there are vectors between the matrices, and
 * so are the gradients of the vectors. Their values are those of layers that are computed one by
 * one. */
TEST(gradients_of_joined_layers_are_adjacent)
{
    for (int step = 0; step < 2; step++) {
        fsdp_device_traits traits, other;
        trainee m, alone;
        float *got = NULL, *want = NULL;
        ASSERT_OK(open_joined(NULL, &traits, &m));
        ASSERT_OK(open_joined(NULL, &other, &alone));
        joined *j = m.model->impl, *one = alone.model->impl;
        one->one_by_one = true;
        for (int leaf = 0; leaf <= step; leaf++) {
            ASSERT_OK(run_joined(&m, leaf));
            ASSERT_OK(run_joined(&alone, leaf));
        }
        for (int i = 0; i < LAYERS; i++) {
            if (i + 1 < LAYERS) {
                check_adjacent(t, j->w[i]->sink.grad, j->w[i + 1]->sink.grad);
                check_adjacent(t, j->bias[i]->sink.grad, j->bias[i + 1]->sink.grad);
                CHECK_HERE();
            }
            ASSERT_OK(tree_full_grad(j->w[i], &got));
            ASSERT_OK(tree_full_grad(one->w[i], &want));
            for (int e = 0; e < FEATURES * INPUTS; e++)
                ASSERT_NEAR(got[e], want[e], 1e-5 * (1.0 + fabs((double)want[e])));
            fsdp_free(got);
            fsdp_free(want);
        }
        fsdp_module_zero_grad(m.model);
        ASSERT_INT(memory(&m).tag_allocated[FSDP_TAG_GRAD], 0);
        ASSERT_OK(trainee_close(&m));
        ASSERT_OK(trainee_close(&alone));
    }
}

/* Layers that are not joined, because one of them is frozen, have memory of their own. */
TEST(gradients_of_other_layers_are_apart)
{
    fsdp_device_traits traits;
    trainee m;
    ASSERT_OK(open_joined(NULL, &traits, &m));
    joined *j = m.model->impl;
    fsdp_parameter_set_requires_grad(j->w[1], false);
    ASSERT_OK(run_joined(&m, 0));
    ASSERT(!j->w[1]->sink.grad);
    ASSERT(j->w[0]->sink.grad->storage != j->w[2]->sink.grad->storage);
    ASSERT_OK(trainee_close(&m));
}

/* The same in a gradient buffer. */
TEST_RANKS(gradients_of_joined_layers_are_adjacent_in_a_whole_buffer, 2)
{
    fsdp_device_traits traits;
    trainee m;
    ASSERT_OK(open_joined(t->group, &traits, &m));
    const joined *j = m.model->impl;
    ASSERT_OK(run_joined(&m, t->rank));
    for (int i = 0; i + 1 < LAYERS; i++) {
        check_adjacent(t, fsdp_param_of(j->w[i])->grad.whole,
                       fsdp_param_of(j->w[i + 1])->grad.whole);
        check_adjacent(t, fsdp_param_of(j->bias[i])->grad.whole,
                       fsdp_param_of(j->bias[i + 1])->grad.whole);
    }
    ASSERT_OK(trainee_close(&m));
}
