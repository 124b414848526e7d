/* The order in which gradients of micro-batches are added, and the memory that their sums need:
 * Note [Same bits at any world size] in src/fsdp/grad_sums.h. */
#include <string.h>

#include "src/base/alloc.h"
#include "src/base/assert.h"
#include "src/fsdp/grad_sums.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    WIDTH = 10,
    LEAVES = 32
};

/* --- the order --- */

typedef struct run {
    fsdp_fully_shard_options options;
    int leaves;
    bool in_chunks;
    int row;    /* ranks of a mesh row; 0: no replicas */
    float *got; /* out: all parameters after the steps, [n_got] */
    size_t n_got;
} run;

static fsdp_status open_sharded(trainee *m, fsdp_group *group, const fsdp_device_mesh *mesh,
                                const fsdp_fully_shard_options *options)
{
    fsdp_fully_shard_options o = *options;
    o.mesh = mesh;
    FSDP_TRY(trainee_open(group, NULL,
                          o.mp_policy.param_dtype ? o.mp_policy.param_dtype : FSDP_DTYPE_F32, m));
    FSDP_TRY(tree_example(WIDTH, &m->model));
    FSDP_TRY(tree_example_shard(m->model, group, m->device, &o));
    return fsdp_module_init(m->model, 5);
}

static fsdp_status open_mesh(fsdp_group *group, int row, fsdp_device_mesh **mesh)
{
    const int shape[] = {row ? fsdp_group_world_size(group) / row : 1, row};
    return row ? fsdp_device_mesh_create(group, 2, shape,
                                         (const char *const[]){"replicate", "shard"}, mesh)
               : FSDP_OK;
}

static fsdp_status train(fsdp_group *group, void *arg)
{
    run *r = arg;
    trainee m;
    float *params;
    size_t n;
    fsdp_device_mesh *mesh = NULL;
    FSDP_TRY(open_mesh(group, r->row, &mesh));
    FSDP_TRY(open_sharded(&m, group, mesh, &r->options));
    /* Sums in chunks that end within a row. */
    fsdp_device_traits small = *m.device->traits;
    small.sum_numel = 7;
    if (r->in_chunks)
        m.device->traits = &small;
    for (int step = 0; step < 2; step++)
        FSDP_TRY(tree_step(&m, step, r->leaves));
    FSDP_TRY(tree_params(m.model, &params, &n));
    if (fsdp_group_rank(group) == 0) {
        r->got = params;
        r->n_got = n;
    } else {
        fsdp_free(params);
    }
    FSDP_TRY(trainee_close(&m));
    fsdp_device_mesh_destroy(mesh);
    return FSDP_OK;
}

/* Check that every number of ranks of `worlds`, which ends with 0, gives the same bits. */
static void compare_worlds(fsdp_test *t, const run *how, const int *worlds)
{
    float *first = NULL;
    for (; *worlds; worlds++) {
        run r = *how;
        ASSERT_OK(fsdp_run_ranks(*worlds, train, &r, NULL));
        if (!first) {
            first = r.got;
            continue;
        }
        ASSERT(memcmp(first, r.got, r.n_got * sizeof *r.got) == 0);
        fsdp_free(r.got);
    }
    fsdp_free(first);
}

TEST(many_micro_batches_give_the_same_bits_at_any_number_of_ranks)
{
    static const int worlds[] = {1, 2, 4, 8, 16, 0};
    static const fsdp_fully_shard_options variants[] = {
        {.no_shard = false},
        {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}},
        {.mp_policy = {.reduce_dtype = FSDP_DTYPE_BF16}}};
    for (size_t v = 0; v < FSDP_LENGTH(variants); v++) {
        for (int chunks = 0; chunks < 2; chunks++) {
            const run how = {.options = variants[v], .leaves = LEAVES, .in_chunks = chunks};
            compare_worlds(t, &how, worlds);
            CHECK_HERE();
        }
    }
}

/* The last block is not complete. */
TEST(a_number_of_micro_batches_that_is_no_multiple_of_a_block)
{
    compare_worlds(t, &(run){.leaves = 14}, (const int[]){1, 2, 0});
    CHECK_HERE();
    compare_worlds(t, &(run){.leaves = 12}, (const int[]){1, 2, 4, 0});
}

/* Rows of 1, 2 and 4 ranks. */
TEST(replicas_add_micro_batches_in_the_same_order)
{
    for (int row = 1; row <= FSDP_SUM_BLOCK; row *= 2) {
        float *whole = NULL;
        for (int pass = 0; pass < 2; pass++) {
            run r = {.leaves = LEAVES, .row = pass ? row : 0};
            ASSERT_OK(fsdp_run_ranks(pass ? 8 : 1, train, &r, NULL));
            ASSERT(!whole || memcmp(whole, r.got, r.n_got * sizeof *r.got) == 0);
            fsdp_free(whole);
            whole = r.got;
        }
        fsdp_free(whole);
    }
}

/* --- against a loop --- */

/* The gradient of the root's first matrix for one micro-batch, of a model without units. */
static void leaf_gradient(fsdp_test *t, int leaf, float *gradient, int64_t *n)
{
    trainee plain;
    float *values;
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &plain));
    ASSERT_OK(tree_example(WIDTH, &plain.model));
    ASSERT_OK(fsdp_module_to_empty(plain.model, plain.device));
    plain.plain = true;
    ASSERT_OK(fsdp_module_init(plain.model, 5));
    ASSERT_OK(tree_forward_backward(
        &plain, plain.model,
        &(tree_call){.step = 0, .micro_batch = leaf, .micro_step = 0, .n_micro_steps = 1}));
    const fsdp_parameter *p = tree_of(plain.model)->up;
    ASSERT_OK(tree_full_grad(p, &values));
    *n = fsdp_parameter_numel(p);
    memcpy(gradient, values, (size_t)*n * sizeof *values);
    fsdp_free(values);
    ASSERT_OK(trainee_close(&plain));
}

/* Blocks of four are added as pairs of pairs, and blocks in their order. */
TEST(gradients_are_added_in_blocks_of_four)
{
    enum {
        MOST = 256,
        N = 11
    };
    float leaves[N][MOST], *got;
    int64_t n = 0;
    for (int leaf = 0; leaf < N; leaf++) {
        leaf_gradient(t, leaf, leaves[leaf], &n);
        CHECK_HERE();
    }
    trainee m;
    ASSERT_OK(open_sharded(&m, NULL, NULL, &(fsdp_fully_shard_options){0}));
    ASSERT_OK(fsdp_set_gradient_divide_factor(m.model, N));
    for (int a = 0; a < N; a++)
        ASSERT_OK(tree_forward_backward(
            &m, m.model,
            &(tree_call){.step = 0, .micro_batch = a, .micro_step = a, .n_micro_steps = N}));
    ASSERT_OK(tree_full_grad(tree_of(m.model)->up, &got));
    for (int64_t i = 0; i < n; i++) {
        float sum = (leaves[0][i] + leaves[1][i]) + (leaves[2][i] + leaves[3][i]);
        sum += (leaves[4][i] + leaves[5][i]) + (leaves[6][i] + leaves[7][i]);
        sum += (leaves[8][i] + leaves[9][i]) + leaves[10][i];
        ASSERT(got[i] == sum * (float)(1.0 / N));
    }
    fsdp_free(got);
    ASSERT_OK(trainee_close(&m));
}

/* --- memory --- */

enum {
    BLOCKS = 4,
    WIDE = 64,
    BLOCK_NUMEL = WIDE + 2 * WIDE * WIDE,
    ALIGNMENT = 3 * 128 /* bytes: three parameters of a block, each to 32 elements */
};

/* Return the peak of gradient memory in a step of `micro_steps`. */
static int64_t peak(fsdp_test *t, int micro_steps)
{
    trainee m;
    fsdp_memory_stats stats = {0};
    if (trainee_open_blocks(t->group, NULL, BLOCKS, WIDE, &(fsdp_fully_shard_options){0}, &m) !=
            FSDP_OK ||
        tree_step(&m, 0, micro_steps * t->world_size) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    fsdp_device_memory(m.device, &stats);
    if (trainee_close(&m) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return stats.tag_peak[FSDP_TAG_GRAD];
}

/* Bytes of a matrix. A sum needs temporary memory for at most a rank's shard of it. */
static const int64_t temporary = WIDE * WIDE * 4;

TEST_RANKS(many_micro_steps_of_four_ranks_need_no_second_sum, 4)
{
    const int64_t one = peak(t, 1), many = peak(t, 32);
    ASSERT(one > 0);
    ASSERT(many <= one + temporary / 4 + ALIGNMENT);
}

TEST_RANKS(many_micro_steps_of_two_ranks_need_a_second_sum, 2)
{
    const int64_t shard_bytes = (BLOCKS * (BLOCK_NUMEL * 4 + ALIGNMENT)) / 2;
    const int64_t one = peak(t, 1), many = peak(t, 32);
    ASSERT(many <= one + shard_bytes + temporary / 2 + ALIGNMENT);
}

TEST_RANKS(many_micro_steps_of_one_rank_need_two_more_sums, 1)
{
    const int64_t shard_bytes = BLOCKS * (BLOCK_NUMEL * 4 + ALIGNMENT);
    const int64_t one = peak(t, 1), many = peak(t, 32);
    ASSERT(many <= one + 2 * shard_bytes + temporary + ALIGNMENT);
}
