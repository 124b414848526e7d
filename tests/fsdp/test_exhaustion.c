/* Memory that runs out, at every place in turn: an error, after which all goes on as if nothing had
 * happened, and nothing is lost. */
#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    WIDTH = TREE_EXAMPLE_WIDTH
};

/* Each allocation of host memory in a forward and backward fails once, in its turn; the next step
 * then gives the gradient of one that nothing disturbed. A few failures are borne (a block that is
 * not split), so the last one is not known by its success. */
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
            if (n % 100 == 1) /* with pools that are empty, and with pools that are full */
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

/* The device refuses memory at every height in turn. One rank: shards differ in size, so ranks
 * would not fail at the same place. */
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

/* Every allocation in turn fails: an error, nothing changed, nothing leaked. */
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
