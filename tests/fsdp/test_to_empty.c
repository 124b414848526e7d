/* Models that are sharded on the meta device and get their memory afterwards, as in FSDP2's
 * tutorial. The reference is sharded on the device on which it runs. */
#include <string.h>

#include <fsdp/optim.h>
#include <fsdp/state_dict.h>

#include "src/base/alloc_testing.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    SEED = 5,
    LEAVES = 4
};

/* Open the sharded example on meta. */
static fsdp_status open_on_meta(fsdp_group *group, const fsdp_fully_shard_options *o, trainee *m,
                                fsdp_device **meta)
{
    *meta = NULL;
    FSDP_TRY(trainee_open(group, NULL, o->mp_policy.param_dtype, m));
    FSDP_TRY(fsdp_device_create(&(fsdp_device_options){.name = "meta"}, meta));
    FSDP_TRY(tree_example(TREE_EXAMPLE_WIDTH, &m->model));
    return tree_example_shard(m->model, group, *meta, o);
}

static fsdp_status close_both(trainee *m, fsdp_device *meta)
{
    fsdp_status status = trainee_close(m);
    fsdp_device_destroy(meta);
    return status;
}

static int64_t allocated(const fsdp_device *device)
{
    fsdp_memory_stats stats;
    fsdp_device_memory(device, &stats);
    return stats.allocated;
}

static void trains_alike(fsdp_test *t, const fsdp_fully_shard_options *o)
{
    trainee m, twin;
    fsdp_device *meta;
    ASSERT_OK(open_on_meta(t->group, o, &m, &meta));
    ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
    ASSERT_INT(allocated(meta), 0);
    ASSERT_OK(fsdp_module_init(m.model, SEED));
    ASSERT_OK(trainee_open_example(t->group, o, &twin));
    ASSERT_OK(fsdp_module_init(twin.model, SEED));
    ASSERT_INT(allocated(m.device), allocated(twin.device));
    for (int step = 0; step < 2; step++) {
        ASSERT_OK(tree_step(&m, step, LEAVES));
        ASSERT_OK(tree_step(&twin, step, LEAVES));
        ASSERT_OK(tree_same_params(&m, &twin));
    }
    ASSERT_OK(trainee_close(&twin));
    ASSERT_OK(close_both(&m, meta));
}

TEST_RANKS(a_model_sharded_on_meta_trains_as_one_sharded_on_the_cpu_at_1_rank, 1)
{
    for (int v = 0; v < TREE_VARIANTS; v++)
        trains_alike(t, &tree_variants[v]);
}

TEST_RANKS(a_model_sharded_on_meta_trains_as_one_sharded_on_the_cpu_at_2_ranks, 2)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        trains_alike(t, &tree_variants[v]);
        CHECK_HERE();
    }
    trains_alike(t, &(fsdp_fully_shard_options){
                        .offload_policy = {.kind = FSDP_OFFLOAD_DIR, .dir = "/tmp"}});
}

/* One rank, with a tree of units whose root has no parameters. */
TEST(units_without_parameters_move_as_well)
{
    trainee m;
    fsdp_device *meta;
    fsdp_module *child;
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "meta"}, &meta));
    ASSERT_OK(tree_add(NULL, "", 4, 0, &m.model));
    ASSERT_OK(tree_add(m.model, "a", 4, 4, &child));
    ASSERT_OK(fsdp_fully_shard(child, NULL, meta, NULL));
    ASSERT_OK(fsdp_fully_shard(m.model, NULL, meta, NULL));
    /* Calling it for the child moves the modules around it as well, because they run together. */
    ASSERT_OK(fsdp_module_to_empty(child, m.device));
    ASSERT_OK(fsdp_module_init(m.model, SEED));
    ASSERT_OK(tree_step(&m, 0, 1));
    ASSERT_OK(close_both(&m, meta));
}

/* A forward on the CPU fails and names the module on meta. A forward on meta runs, and does not
 * prevent moving later. */
TEST_RANKS(a_forward_of_what_is_on_meta_is_an_error_that_names_it, 2)
{
    for (int sharded = 0; sharded < 2; sharded++) {
        trainee m, as_planned;
        fsdp_device *meta;
        if (sharded) {
            ASSERT_OK(open_on_meta(t->group, &tree_variants[0], &m, &meta));
        } else {
            ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
            ASSERT_OK(fsdp_device_create(&(fsdp_device_options){.name = "meta"}, &meta));
            ASSERT_OK(tree_example(TREE_EXAMPLE_WIDTH, &m.model));
            ASSERT_OK(fsdp_module_to_empty(m.model, meta));
        }
        ASSERT_OK(fsdp_module_init(m.model, SEED));
        for (int again = 0; again < 2; again++) {
            ASSERT_ERROR(tree_evaluate(&m, m.model, 0), FSDP_ERR_STATE,
                         "'norm' and 11 more are on the meta device: call fsdp_module_to_empty()");
            as_planned = m;
            as_planned.device = meta;
            ASSERT_OK(
                tree_forward_backward(&as_planned, m.model, &(tree_call){.micro_batch = t->rank}));
        }
        ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
        ASSERT_INT(allocated(meta), 0);
        if (sharded) /* on meta no values were drawn */
            ASSERT_ERROR(tree_evaluate(&m, m.model, 0), FSDP_ERR_STATE,
                         "have memory but no values");
        ASSERT_OK(fsdp_module_init(m.model, SEED));
        ASSERT_OK(tree_forward_backward(&m, m.model, &(tree_call){.micro_batch = t->rank}));
        ASSERT_OK(close_both(&m, meta));
    }
}

TEST_RANKS(state_dicts_and_optimizers_follow_or_refuse, 2)
{
    trainee m;
    fsdp_device *meta;
    fsdp_state_dict *dict;
    fsdp_optimizer *before, *late;
    ASSERT_OK(open_on_meta(t->group, &tree_variants[1], &m, &meta));
    ASSERT_OK(fsdp_module_init(m.model, SEED));
    ASSERT_OK(fsdp_get_model_state_dict(m.model, NULL, &dict));
    ASSERT_OK(fsdp_adamw_create(m.model, NULL, &before)); /* FSDP2: its parameters stay the same */
    ASSERT_OK(fsdp_adamw_create(m.model, NULL, &late));
    trainee as_planned = m;
    as_planned.device = meta;
    ASSERT_OK(tree_forward_backward(&as_planned, m.model, &(tree_call){.micro_batch = t->rank}));
    ASSERT_OK(fsdp_optimizer_step(late, 1.0f)); /* creates its state on meta */
    ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
    ASSERT_OK(fsdp_module_init(m.model, SEED));
    const fsdp_tensor *shown = fsdp_state_dict_find(dict, "up")->tensor;
    ASSERT(shown == fsdp_parameter_local(tree_of(m.model)->up));
    ASSERT(fsdp_tensor_device(shown) == m.device);
    ASSERT(!fsdp_parameter_grad(tree_of(m.model)->up));
    ASSERT_OK(tree_forward_backward(&m, m.model, &(tree_call){.micro_batch = t->rank}));
    ASSERT_ERROR(fsdp_optimizer_step(late, 1.0f), FSDP_ERR_STATE,
                 "state is on device meta, the parameter now on ");
    ASSERT_OK(fsdp_optimizer_step(before, 1.0f));
    fsdp_optimizer_destroy(before);
    fsdp_optimizer_destroy(late);
    fsdp_state_dict_destroy(dict);
    ASSERT_OK(close_both(&m, meta));
}

/* In float16 gathered copies are in a pool that all units share. */
TEST(a_unit_in_use_does_not_move)
{
    const fsdp_fully_shard_options f16 = {.mp_policy = {.param_dtype = FSDP_DTYPE_F16}};
    trainee m;
    fsdp_device *meta;
    ASSERT_OK(open_on_meta(NULL, &f16, &m, &meta));
    ASSERT_OK(fsdp_module_init(m.model, SEED));
    ASSERT_OK(fsdp_unit_unshard(m.model));
    ASSERT_ERROR(fsdp_module_to_empty(m.model, m.device), FSDP_ERR_STATE, "reshard it first");
    ASSERT_OK(fsdp_unit_reshard(m.model));
    ASSERT_OK(fsdp_unit_unshard(trainee_unit(&m, "first")));
    ASSERT_ERROR(fsdp_module_to_empty(m.model, m.device), FSDP_ERR_STATE, "another unit");
    ASSERT_OK(fsdp_unit_reshard(trainee_unit(&m, "first")));
    ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
    ASSERT_OK(fsdp_module_init(m.model, SEED));
    ASSERT_OK(tree_evaluate(&m, m.model, 0));
    ASSERT_OK(close_both(&m, meta));
}

/* Every allocation in turn fails. The next call moves the units that have not moved yet. */
TEST(moving_survives_every_failing_allocation)
{
    fsdp_status status = FSDP_ERR_NOMEM;
    for (long n = 1; n < 1000 && status != FSDP_OK; n++) {
        trainee m;
        fsdp_device *meta;
        ASSERT_OK(open_on_meta(NULL, &tree_variants[n % TREE_VARIANTS], &m, &meta));
        fsdp_alloc_fail_at(n);
        status = fsdp_module_to_empty(m.model, m.device);
        fsdp_alloc_fail_at(0);
        ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
        ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
        ASSERT_OK(fsdp_module_init(m.model, SEED));
        ASSERT_OK(tree_evaluate(&m, m.model, 0));
        ASSERT_OK(close_both(&m, meta));
    }
    ASSERT_OK(status);
}
