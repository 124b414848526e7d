/* The memory of a rank by purpose: shards between steps, a few units during a step, nothing at the
 * end. The meta device must count the same. */
#include <fsdp/optim.h>

#include "src/comm/comm.h"
#include "src/comm/control.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    WIDTH = 64,
    BLOCKS = 8,
    BLOCK_NUMEL = WIDTH + 2 * WIDTH * WIDTH,
    ALIGNMENT = 3 * 128 /* bytes: three parameters of a block, each to 32 elements */
};

static fsdp_memory_stats memory(const trainee *m)
{
    fsdp_memory_stats stats;
    fsdp_device_memory(m->device, &stats);
    return stats;
}

/* Between steps a rank has 1 / W of the masters, in shared or private memory. */
TEST_RANKS(parameters_at_rest_are_one_part_of_the_world_size, 4)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        trainee m;
        ASSERT_OK(trainee_open_blocks(t->group, NULL, BLOCKS, WIDTH, &tree_variants[v], &m));
        const fsdp_fully_shard_options *o = &tree_variants[v];
        const bool halved = o->mp_policy.param_dtype == FSDP_DTYPE_BF16 && !o->no_shard;
        int64_t share = (int64_t)BLOCKS * BLOCK_NUMEL * 4 / (o->no_shard ? 1 : 4);
        share += halved ? share / 32 : 0; /* a mark of one bit for each value */
        fsdp_memory_stats s = memory(&m);
        ASSERT(s.tag_allocated[FSDP_TAG_PARAM] >= share);
        ASSERT(s.tag_allocated[FSDP_TAG_PARAM] <= share + BLOCKS * ALIGNMENT);
        ASSERT_INT(s.allocated, s.tag_allocated[FSDP_TAG_PARAM]);
        ASSERT_OK(trainee_close(&m));
    }
}

/* One of four ranks' part of the cast copy of one block. */
static const int64_t copy = (BLOCK_NUMEL * 2 + ALIGNMENT) / 4;
/* One rank's gradients of one block, whole. */
static const int64_t grad_buffer = BLOCK_NUMEL * 4 + ALIGNMENT;

TEST_RANKS(a_step_holds_few_units_at_once_and_none_afterwards, 4)
{
    const fsdp_fully_shard_options f16 = {.mp_policy = {.param_dtype = FSDP_DTYPE_F16}}, *o = &f16;
    trainee m;
    ASSERT_OK(trainee_open_blocks(t->group, NULL, BLOCKS, WIDTH, o, &m));
    int64_t params = memory(&m).tag_allocated[FSDP_TAG_PARAM];
    ASSERT_OK(tree_evaluate(&m, m.model, 0));
    ASSERT_OK(tree_evaluate(&m, m.model, 0)); /* with prefetch */
    fsdp_memory_stats s = memory(&m);
    ASSERT(s.tag_peak[FSDP_TAG_PARAM] <= params + 2 * copy); /* the current one and the next */
    for (int step = 0; step < 3; step++)
        ASSERT_OK(tree_step(&m, step, 4));
    s = memory(&m);
    ASSERT(s.tag_peak[FSDP_TAG_PARAM] <= params + 2 * copy);
    /* The gradient buffer that backward writes and the one being reduced; the sums are a shard. */
    int64_t grads = (int64_t)BLOCKS * BLOCK_NUMEL * 4 / 4;
    ASSERT(s.tag_peak[FSDP_TAG_GRAD] <= grads + 2 * grad_buffer);
    ASSERT_INT(s.tag_allocated[FSDP_TAG_ACTIVATION], 0);
    fsdp_module_zero_grad(m.model);
    ASSERT_INT(s.tag_allocated[FSDP_TAG_GRAD] - memory(&m).tag_allocated[FSDP_TAG_GRAD], grads);
    ASSERT_OK(trainee_close(&m));
}

/* Halved masters have no copies, so a step needs no more parameter memory than between steps. */
TEST_RANKS(what_is_halved_takes_no_more_in_a_step, 4)
{
    static const int variants[] = {1, 4};
    for (int v = 0; v < 2; v++) {
        trainee m;
        fsdp_optimizer *optimizer;
        ASSERT_OK(
            trainee_open_blocks(t->group, NULL, BLOCKS, WIDTH, &tree_variants[variants[v]], &m));
        ASSERT_OK(fsdp_adamw_create(m.model, NULL, &optimizer));
        fsdp_device_reset_peak_memory(m.device);
        const int64_t params = memory(&m).tag_allocated[FSDP_TAG_PARAM];
        for (int step = 0; step < 3; step++) {
            ASSERT_OK(tree_forward_backward(&m, m.model, &(tree_call){.step = step}));
            ASSERT_OK(fsdp_optimizer_step(optimizer, 1.0f));
            ASSERT_OK(tree_evaluate(&m, m.model, step));
        }
        ASSERT_INT(memory(&m).tag_peak[FSDP_TAG_PARAM], params);
        fsdp_optimizer_destroy(optimizer);
        ASSERT_OK(trainee_close(&m));
    }
}

/* After a step, pools hold at most as much as the shards (Note [Idle memory] in src/fsdp/buffer.h).
 * All that fits is kept, so with few ranks no memory faults again. */
static void idle_memory_is_bounded(fsdp_test *t)
{
    for (int v = 0; v < 2; v++) {
        trainee m;
        ASSERT_OK(trainee_open_blocks(t->group, NULL, BLOCKS, WIDTH, &tree_variants[v], &m));
        const int64_t share = (int64_t)BLOCKS * BLOCK_NUMEL * 4 / t->world_size;
        int64_t idle = 0;
        for (int step = 0; step < 3; step++) {
            int64_t before = idle;
            ASSERT_OK(tree_step(&m, step, t->world_size));
            fsdp_module_zero_grad(m.model);
            idle = memory(&m).allocated - memory(&m).tag_allocated[FSDP_TAG_PARAM];
            ASSERT(memory(&m).allocated <= 2 * share + BLOCKS * ALIGNMENT);
            ASSERT(idle <= share);
            ASSERT(step < 2 || idle == before);
        }
        ASSERT(t->world_size > 2 || idle >= 2 * grad_buffer - 2 * ALIGNMENT);
        /* Without the marks of halves, in whole pages. */
        ASSERT(t->world_size < 16 || idle > share - share / 32 - FSDP_COMM_PAGE);
        ASSERT_OK(trainee_close(&m));
    }
}

TEST_RANKS(idle_memory_is_at_most_a_shard_at_2_ranks, 2)
{
    idle_memory_is_bounded(t);
}

TEST_RANKS(idle_memory_is_at_most_a_shard_at_16_ranks, 16)
{
    idle_memory_is_bounded(t);
}

/* Units that are kept after forward hold all copies at once, and never more. */
TEST_RANKS(units_kept_after_forward_are_held_once, 4)
{
    const fsdp_fully_shard_options *o = &tree_variants[7];
    trainee m;
    ASSERT_OK(trainee_open_blocks(t->group, NULL, BLOCKS, WIDTH, o, &m));
    int64_t params = memory(&m).tag_allocated[FSDP_TAG_PARAM];
    for (int step = 0; step < 3; step++)
        ASSERT_OK(tree_step(&m, step, 8));
    int64_t peak = memory(&m).tag_peak[FSDP_TAG_PARAM];
    ASSERT(peak > params + (BLOCKS - 1) * copy);
    ASSERT(peak <= params + BLOCKS * copy);
    ASSERT_OK(trainee_close(&m));
}

/* Memory does not grow with steps, whatever a step does. */
TEST_RANKS(memory_is_the_same_after_every_step, 2)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        trainee m;
        fsdp_memory_stats first = {0};
        ASSERT_OK(trainee_open_example(t->group, &tree_variants[v], &m));
        for (int step = 0; step < 6; step++) {
            ASSERT_OK(tree_step(&m, step, 4));
            ASSERT_OK(tree_evaluate(&m, m.model, step));
            fsdp_memory_stats s = memory(&m);
            if (step == 1)
                first = s;
            if (step > 1)
                ASSERT(memcmp(&s, &first, sizeof s) == 0);
        }
        ASSERT_OK(trainee_close(&m));
    }
}

/* Sums of micro-steps are a stack of at most log2 of their number, and sharded. */
TEST_RANKS(sums_of_micro_steps_are_few_and_sharded, 4)
{
    trainee m;
    ASSERT_OK(trainee_open_blocks(t->group, NULL, BLOCKS, WIDTH, &tree_variants[0], &m));
    ASSERT_OK(tree_step(&m, 0, 4 * 16));
    int64_t grads = (int64_t)BLOCKS * BLOCK_NUMEL * 4 / 4;
    ASSERT(memory(&m).tag_peak[FSDP_TAG_GRAD] <= 5 * grads + 2 * grad_buffer);
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(frozen_units_have_no_gradient_memory, 2)
{
    trainee m;
    ASSERT_OK(trainee_open_blocks(t->group, NULL, BLOCKS, WIDTH, &tree_variants[0], &m));
    for (int i = 0; i < BLOCKS; i++) {
        tree *b = tree_of(fsdp_module_child(m.model, i));
        fsdp_parameter_set_requires_grad(b->norm, false);
        fsdp_parameter_set_requires_grad(b->up, false);
        fsdp_parameter_set_requires_grad(b->down, i == BLOCKS - 1);
    }
    ASSERT_OK(tree_step(&m, 0, 2));
    ASSERT(memory(&m).tag_peak[FSDP_TAG_GRAD] <= grad_buffer + WIDTH * WIDTH * 4 / 2);
    ASSERT_OK(trainee_close(&m));
}

/* --- the meta device --- */

/* Run two steps with evaluation, and record the memory that was requested by tag. */
static fsdp_status requests(fsdp_group *group, const char *device,
                            const fsdp_fully_shard_options *o, fsdp_memory_stats *stats)
{
    trainee m;
    FSDP_TRY(trainee_open_blocks(group, device, BLOCKS, WIDTH, o, &m));
    for (int step = 0; step < 2; step++) {
        FSDP_TRY(tree_step(&m, step, 4));
        FSDP_TRY(tree_evaluate(&m, m.model, step));
    }
    *stats = memory(&m);
    return trainee_close(&m);
}

static void meta_asks_for_the_same(fsdp_test *t)
{
    const fsdp_fully_shard_options more[] = {
        {.mp_policy = {.reduce_dtype = FSDP_DTYPE_BF16}},
        {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16, .master_dtype = FSDP_DTYPE_BF16}}};
    for (int v = 0; v < TREE_VARIANTS + 2; v++) {
        fsdp_memory_stats cpu, meta;
        const fsdp_fully_shard_options *o =
            v < TREE_VARIANTS ? &tree_variants[v] : &more[v - TREE_VARIANTS];
        ASSERT_OK(requests(t->group, NULL, o, &cpu));
        ASSERT_OK(requests(t->group, fsdp_test_meta(), o, &meta));
        for (int tag = 0; tag < FSDP_TAG_COUNT; tag++) {
            ASSERT_INT(meta.tag_allocated[tag], cpu.tag_allocated[tag]);
            ASSERT_INT(meta.tag_peak[tag], cpu.tag_peak[tag]);
            ASSERT_INT(meta.tag_at_peak[tag], cpu.tag_at_peak[tag]);
        }
        ASSERT_INT(meta.allocated_peak, cpu.allocated_peak);
        ASSERT(cpu.tag_peak[FSDP_TAG_PARAM] && cpu.tag_peak[FSDP_TAG_GRAD] &&
               cpu.tag_peak[FSDP_TAG_ACTIVATION]);
    }
}

TEST_RANKS(meta_asks_for_the_same_bytes_at_1_rank, 1)
{
    meta_asks_for_the_same(t);
}

TEST_RANKS(meta_asks_for_the_same_bytes_at_2_ranks, 2)
{
    meta_asks_for_the_same(t);
}
