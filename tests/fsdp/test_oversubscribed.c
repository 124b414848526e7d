/* More ranks than cores, each delayed at random before every phase, must give the bits of one rank,
 * with and without replicas, twice in a row. */
#include <fsdp/dtensor.h>

#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    STEPS = 4
};

static fsdp_status train(fsdp_group *group, const fsdp_fully_shard_options *options, trainee *m)
{
    FSDP_TRY(trainee_open_example(group, options, m));
    for (int step = 0; step < STEPS; step++) {
        FSDP_TRY(tree_step(m, step, 16));
        FSDP_TRY(tree_evaluate(m, m->model, step));
    }
    return FSDP_OK;
}

static void compare_with_one_rank(fsdp_test *t, const fsdp_fully_shard_options *options,
                                  const fsdp_device_mesh *mesh)
{
    trainee many, one;
    fsdp_fully_shard_options o = *options;
    o.mesh = mesh;
    ASSERT_OK(train(t->group, &o, &many));
    ASSERT_OK(train(NULL, options, &one));
    ASSERT_OK(tree_same_params(&many, &one));
    ASSERT_OK(trainee_close(&many));
    ASSERT_OK(trainee_close(&one));
}

TEST_RANKS(eight_delayed_ranks_train_to_the_bits_of_one, 8)
{
    fsdp_device_mesh *mesh;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 4}, NULL, &mesh));
    for (int v = 0; v < TREE_VARIANTS; v++) {
        fsdp_group_set_delay(t->group, 11 + (uint64_t)v, v % 2 ? 200 : 20);
        compare_with_one_rank(t, &tree_variants[v], NULL);
        CHECK_HERE();
        if (!tree_variants[v].no_shard)
            compare_with_one_rank(t, &tree_variants[v], mesh);
        CHECK_HERE();
    }
    fsdp_device_mesh_destroy(mesh);
}
