/* Memory that runs out at every possible place in turn. Each time there must be an error, no leak,
 * and afterwards training must continue as if nothing had happened. */
#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    WIDTH = TREE_EXAMPLE_WIDTH
};

/* Each allocation of host memory in a forward and backward fails once. The next step then must give
 * the gradient of an undisturbed one. A few failures are tolerated (a block that is not split), so
 * a step that succeeds does not mean that all allocations have been tried. */
TEST(a_step_survives_every_failing_allocation)
{
    for (size_t v = 0; v < TREE_VARIANTS; v++) {
        trainee m, calm;
        const tree_call call = {.n_micro_steps = 1};
        float *expected = NULL;
        int failures = 0;
        ASSERT_OK(trainee_open_example(NULL, &tree_variants[v], &calm));
        ASSERT_OK(tree_forward_backward(&calm, calm.model, &call));
        ASSERT_OK(tree_full_grad(tree_of(calm.model)->up, &expected));
        for (long n = 1; n < 400; n++) {
            float *grad = NULL;
            if (n % 100 == 1) /* with empty pools and with full ones */
                ASSERT_OK(trainee_open_example(NULL, &tree_variants[v], &m));
            fsdp_alloc_fail_at(n);
            fsdp_status status = tree_forward_backward(&m, m.model, &call);
            fsdp_alloc_fail_at(0);
            ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
            failures += status != FSDP_OK;
            fsdp_tape_reset(m.tape);
            fsdp_module_zero_grad(m.model);
            ASSERT(trainee_is_resharded(&m));
            ASSERT_OK(tree_forward_backward(&m, m.model, &call));
            ASSERT_OK(tree_full_grad(tree_of(m.model)->up, &grad));
            ASSERT(memcmp(grad, expected, 5 * WIDTH * sizeof *grad) == 0);
            fsdp_free(grad);
            fsdp_module_zero_grad(m.model);
            if (n % 100 == 0 || n == 399)
                ASSERT_OK(trainee_close(&m));
        }
        ASSERT(failures > 100);
        fsdp_free(expected);
        ASSERT_OK(trainee_close(&calm));
    }
}

/* The device's limit of memory takes every value in turn. Only one rank: shards differ in size, so
 * several ranks would not fail at the same place. */
TEST(a_step_survives_a_limit_of_memory)
{
    for (size_t v = 0; v < TREE_VARIANTS; v++) {
        trainee m, calm;
        const tree_call call = {.n_micro_steps = 1};
        float *expected = NULL;
        fsdp_memory_stats stats;
        ASSERT_OK(trainee_open_example(NULL, &tree_variants[v], &calm));
        ASSERT_OK(tree_forward_backward(&calm, calm.model, &call));
        ASSERT_OK(tree_full_grad(tree_of(calm.model)->up, &expected));
        ASSERT_OK(trainee_open_example(NULL, &tree_variants[v], &m));
        fsdp_device_memory(m.device, &stats);
        fsdp_status status = FSDP_ERR_NOMEM;
        for (int64_t limit = stats.allocated + 64; status != FSDP_OK; limit += 97) {
            float *grad = NULL;
            fsdp_allocator_set_limit(m.device->allocator, limit);
            status = tree_forward_backward(&m, m.model, &call);
            fsdp_allocator_set_limit(m.device->allocator, 0);
            ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
            fsdp_tape_reset(m.tape);
            fsdp_module_zero_grad(m.model);
            ASSERT(trainee_is_resharded(&m));
            ASSERT_OK(tree_forward_backward(&m, m.model, &call));
            ASSERT_OK(tree_full_grad(tree_of(m.model)->up, &grad));
            ASSERT(memcmp(grad, expected, 5 * WIDTH * sizeof *grad) == 0);
            fsdp_free(grad);
            fsdp_module_zero_grad(m.model);
        }
        fsdp_free(expected);
        ASSERT_OK(trainee_close(&m));
        ASSERT_OK(trainee_close(&calm));
    }
}

/* Every allocation in turn fails. There must be an error, no change and no leak. */
TEST(fully_shard_survives_every_failing_allocation)
{
    for (long n = 1;; n++) {
        trainee m;
        ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
        ASSERT_OK(tree_example(WIDTH, &m.model));
        ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
        ASSERT_OK(fsdp_module_init(m.model, 2));
        fsdp_alloc_fail_at(n);
        fsdp_status status =
            fsdp_fully_shard(trainee_unit(&m, "second"), NULL, m.device, &tree_variants[1]);
        fsdp_alloc_fail_at(0);
        if (status != FSDP_OK) {
            ASSERT_INT(status, FSDP_ERR_NOMEM);
            m.plain = true;
            ASSERT_OK(tree_step(&m, 0, 1));
        }
        ASSERT_OK(trainee_close(&m));
        if (status == FSDP_OK)
            break;
        ASSERT(n < 1000);
    }
}

/* Unfreezing gives a parameter new memory. Where that fails, the old memory and its values stay. */
TEST(unfreezing_survives_every_failing_allocation)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        trainee m;
        fsdp_status status = FSDP_ERR_NOMEM;
        float *before, *after;
        size_t n_values;
        ASSERT_OK(trainee_open(NULL, NULL, tree_variants[v].mp_policy.param_dtype, &m));
        ASSERT_OK(tree_example(WIDTH, &m.model));
        fsdp_parameter *up = tree_of(m.model)->up;
        up->loaded = true;
        up->loaded_dtype = FSDP_DTYPE_BF16;
        fsdp_parameter_set_requires_grad(up, false);
        ASSERT_OK(tree_example_shard(m.model, NULL, m.device, &tree_variants[v]));
        ASSERT_OK(fsdp_module_init(m.model, 3));
        ASSERT_OK(tree_evaluate(&m, m.model, 0));
        ASSERT_OK(tree_params(m.model, &before, &n_values));
        fsdp_parameter_set_requires_grad(up, true);
        for (long n = 1; status != FSDP_OK; n++) {
            fsdp_alloc_fail_at(n);
            status = tree_evaluate(&m, m.model, 1);
            fsdp_alloc_fail_at(0);
            ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
            ASSERT(trainee_is_resharded(&m));
            ASSERT_OK(tree_params(m.model, &after, &n_values));
            ASSERT(memcmp(before, after, n_values * sizeof *after) == 0);
            fsdp_free(after);
            ASSERT(n < 10000);
        }
        fsdp_free(before);
        ASSERT_OK(tree_step(&m, 2, 1));
        ASSERT_OK(trainee_close(&m));
    }
}
