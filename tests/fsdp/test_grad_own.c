/* Gradients of a group of one rank, which has no gradient buffer: Note [Gradients of one rank] in
 * src/fsdp/grad_own.h. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/bf16.h"
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

/* The gradients that were handed over before the failure are dropped by zero_grad, all others at
 * once. The micro-steps before it are lost, too. */
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

static fsdp_param *param_of(const trainee *m, char name, bool bias)
{
    const reader *r = reader_of(m);
    return fsdp_param_of(bias ? r->bias[name - 'a'] : r->w[name - 'a']);
}

static void check_adjacent(fsdp_test *t, const fsdp_tensor *a, const fsdp_tensor *b)
{
    ASSERT(a->storage == b->storage);
    ASSERT_INT(b->offset, a->offset + fsdp_aligned_numel(fsdp_tensor_numel(a)));
}

/* The model's device joins products from now on. */
static void join_products(const trainee *m, fsdp_device_traits *traits)
{
    *traits = *m->device->traits;
    traits->joins_products = true;
    m->device->traits = traits;
}

/* Where products are joined, matrices of the same shape are adjacent, although vectors are between
 * them in the group. This does not depend on which of them has a gradient first. */
TEST(gradients_of_the_same_shape_are_adjacent_where_products_are_joined)
{
    static const char *const programs[] = {"ABCD", "DCBA", "CABD"};
    for (int i = 0; i < 3; i++) {
        fsdp_device_traits traits;
        trainee m;
        ASSERT_OK(reader_open(NULL, NULL, false, &m));
        join_products(&m, &traits);
        reader_set(&m, programs[i], false);
        for (int step = 0; step < 2; step++) {
            ASSERT_OK(reader_step(&m, step));
            for (char name = 'a'; name < 'd'; name++) {
                check_adjacent(t, param_of(&m, name, false)->parameter->sink.grad,
                               param_of(&m, (char)(name + 1), false)->parameter->sink.grad);
                CHECK_HERE();
                check_adjacent(t, param_of(&m, name, true)->parameter->sink.grad,
                               param_of(&m, (char)(name + 1), true)->parameter->sink.grad);
                CHECK_HERE();
            }
            fsdp_module_zero_grad(m.model);
        }
        ASSERT_INT(memory(&m).tag_allocated[FSDP_TAG_GRAD], 0);
        ASSERT_OK(trainee_close(&m));
    }
}

/* Frozen neighbours have no memory, and a gradient that does not arrive has none afterwards. */
TEST(memory_of_a_neighbour_without_a_gradient_is_released)
{
    fsdp_device_traits traits;
    trainee m;
    ASSERT_OK(reader_open(NULL, NULL, false, &m));
    join_products(&m, &traits);
    reader_set(&m, "ABD", false);
    fsdp_parameter_set_requires_grad(reader_of(&m)->w[1], false);
    ASSERT_OK(reader_step(&m, 0));
    ASSERT(!fsdp_parameter_grad(reader_of(&m)->w[1]));
    ASSERT(!fsdp_parameter_grad(reader_of(&m)->w[2]));
    /* "a" is alone; "c", which is not read, is beside "d". */
    ASSERT(param_of(&m, 'a', false)->parameter->sink.grad->storage !=
           param_of(&m, 'd', false)->parameter->sink.grad->storage);
    ASSERT(!param_of(&m, 'c', false)->grad.whole);
    fsdp_module_zero_grad(m.model);
    ASSERT_INT(memory(&m).tag_allocated[FSDP_TAG_GRAD], 0);
    ASSERT_OK(trainee_close(&m));
}

/* The same in a gradient buffer. */
TEST_RANKS(gradients_in_a_whole_buffer_are_adjacent_where_products_are_joined, 2)
{
    for (int joins = 0; joins < 2; joins++) {
        fsdp_device_traits traits;
        trainee m;
        ASSERT_OK(reader_open(t->group, NULL, false, &m));
        traits = *m.device->traits;
        traits.joins_products = joins;
        m.device->traits = &traits;
        reader_set(&m, "CABD", false);
        ASSERT_OK(reader_step(&m, t->rank));
        for (char name = 'a'; name < 'd'; name++) {
            const fsdp_tensor *a = param_of(&m, name, false)->grad.whole;
            const fsdp_tensor *b = param_of(&m, (char)(name + 1), false)->grad.whole;
            ASSERT_INT(b->offset - a->offset, NUMEL + (joins ? 0 : READER_WIDTH));
        }
        ASSERT_OK(trainee_close(&m));
    }
}
