/* Arguments of fully_shard: several modules as one unit, ignored parameters, shared ones that are
 * refused, and sync_module_states. */
#include <stdio.h>

#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    STEPS = 10,
    UNITS = 3 /* units of the example, after two of its four became one */
};

/* Open the example with "first" and "second.inner" as one unit. */
static fsdp_status open_joint(fsdp_group *group, const fsdp_fully_shard_options *options,
                              int64_t width, trainee *m)
{
    FSDP_TRY(trainee_open(group, NULL, options->mp_policy.param_dtype, m));
    FSDP_TRY(tree_example(width, &m->model));
    fsdp_module *const joint[] = {trainee_unit(m, "first"), trainee_unit(m, "second.inner")};
    FSDP_TRY(fsdp_fully_shard_modules(joint, 2, group, m->device, options));
    FSDP_TRY(fsdp_fully_shard(trainee_unit(m, "second"), group, m->device, options));
    FSDP_TRY(fsdp_fully_shard(m->model, group, m->device, options));
    return fsdp_module_init(m->model, 5);
}

static fsdp_status open_plain(const fsdp_fully_shard_options *options, int64_t width, trainee *m)
{
    FSDP_TRY(trainee_open(NULL, NULL, options->mp_policy.param_dtype, m));
    FSDP_TRY(tree_example(width, &m->model));
    return tree_example_shard(m->model, NULL, m->device, options);
}

/* Run steps in turn with both modules of the unit, without the first, and without the second. */
static fsdp_status steps(trainee *m, int leaves, bool checkpointed)
{
    fsdp_module_set_activation_checkpointing(trainee_unit(m, "first"), checkpointed);
    fsdp_module_set_activation_checkpointing(trainee_unit(m, "second.inner"), checkpointed);
    for (int step = 0; step < STEPS; step++) {
        tree_of(m->model)->calls[0] = step % 4 != 1;
        tree_of(trainee_unit(m, "second"))->calls[0] = step % 4 == 2 ? 0 : 1 + (step == 7);
        FSDP_TRY(tree_step(m, step, leaves));
        FSDP_TRY(tree_evaluate(m, m->model, step));
    }
    return FSDP_OK;
}

static void compare_with_one_rank(fsdp_test *t, const fsdp_device_mesh *mesh)
{
    static const int64_t widths[] = {7, 15, 16, 17};
    fsdp_group_set_delay(t->group, 21, 50);
    for (int v = 0; v < 2 * TREE_VARIANTS; v++) {
        trainee many, one = {0};
        fsdp_fully_shard_options o = tree_variants[v / 2];
        if (t->rank == 0) {
            ASSERT_OK(open_plain(&o, widths[v % 4], &one));
            ASSERT_OK(steps(&one, 2 * t->world_size, false));
        }
        o.mesh = mesh;
        ASSERT_OK(open_joint(t->group, &o, widths[v % 4], &many));
        ASSERT_OK(steps(&many, 2 * t->world_size, v % 2));
        ASSERT(trainee_is_resharded(&many));
        ASSERT_OK(tree_same_params(&many, t->rank == 0 ? &one : NULL));
        ASSERT_OK(trainee_close(&many));
        ASSERT_OK(trainee_close(&one));
    }
}

TEST_RANKS(two_ranks_train_to_the_bits_of_one, 2)
{
    compare_with_one_rank(t, NULL);
}

TEST_RANKS(two_replicas_of_two_train_to_the_bits_of_one_rank, 4)
{
    fsdp_device_mesh *mesh;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, NULL, &mesh));
    compare_with_one_rank(t, mesh);
    fsdp_device_mesh_destroy(mesh);
}

/* Other units run between the two modules. There must be one gather in each direction and one
 * reduce. */
TEST_RANKS(it_is_gathered_once_and_reduced_once, 3)
{
    for (int v = 0; v < 2; v++) {
        const fsdp_fully_shard_options o = {
            .mp_policy = {.param_dtype = v ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32}};
        trainee m;
        ASSERT_OK(open_joint(t->group, &o, 7, &m));
        ASSERT_OK(tree_step(&m, 0, 3));
        fsdp_comm_counters before = *fsdp_group_counters(t->group);
        ASSERT_OK(tree_evaluate(&m, m.model, 1));
        fsdp_comm_counters after = *fsdp_group_counters(t->group);
        ASSERT_INT(after.calls[FSDP_KIND_ALL_GATHER] - before.calls[FSDP_KIND_ALL_GATHER], UNITS);
        before = after;
        ASSERT_OK(tree_forward_backward(&m, m.model, &(tree_call){.step = 1, .n_micro_steps = 1}));
        after = *fsdp_group_counters(t->group);
        ASSERT_INT(after.calls[FSDP_KIND_ALL_GATHER] - before.calls[FSDP_KIND_ALL_GATHER],
                   2 * UNITS - 1);
        ASSERT_INT(after.calls[FSDP_KIND_REDUCE_SCATTER] - before.calls[FSDP_KIND_REDUCE_SCATTER],
                   UNITS);
        ASSERT_OK(trainee_close(&m));
    }
}

TEST_RANKS(calls_on_one_module_are_calls_on_the_unit, 2)
{
    trainee m;
    fsdp_unit_info a, b;
    ASSERT_OK(open_joint(t->group, &(fsdp_fully_shard_options){0}, 7, &m));
    fsdp_module *first = trainee_unit(&m, "first"), *inner = trainee_unit(&m, "second.inner");
    ASSERT(fsdp_module_is_unit(first) && fsdp_module_is_unit(inner));
    ASSERT_OK(fsdp_unit_get_info(first, &a));
    ASSERT_OK(fsdp_unit_get_info(inner, &b));
    ASSERT_INT(a.n_parameters, 6);
    ASSERT_INT(b.n_parameters, 6);
    ASSERT_INT(a.numel, 2 * 7 + 2 * 7 * (4 + 3));
    ASSERT(a.reshard_after_forward && b.reshard_after_forward);
    ASSERT_OK(fsdp_unit_unshard(inner));
    ASSERT(fsdp_tensor_has_data(fsdp_parameter_data(tree_of(first)->up)));
    ASSERT_ERROR(fsdp_tensor_begin_write(fsdp_parameter_local(tree_of(first)->up)), FSDP_ERR_STATE,
                 "unit 'first, second.inner' is unsharded");
    ASSERT_OK(fsdp_unit_reshard(first));
    ASSERT(trainee_is_resharded(&m));
    ASSERT_OK(trainee_close(&m));
}

/* The numbers of a unit of two modules are printed once. */
TEST(a_printed_tree_counts_it_once)
{
    static const fsdp_print_form forms[] = {FSDP_PRINT_FSDP2, FSDP_PRINT_FSDP1};
    trainee m;
    ASSERT_OK(open_joint(NULL, &(fsdp_fully_shard_options){0}, 7, &m));
    for (int i = 0; i < 2; i++) {
        char text[2048] = "";
        FILE *out = fmemopen(text, sizeof text, "w");
        ASSERT(out);
        ASSERT_OK(fsdp_module_print(m.model, out, forms[i]));
        fclose(out);
        const char *first = strstr(text, "112 of 112 elements");
        ASSERT(first && !strstr(first + 1, "112 of 112"));
        ASSERT(strstr(text, i ? "FullyShardedDataParallel(\n" : "(inner): FSDPTree()"));
    }
    ASSERT_OK(trainee_close(&m));
}

/* The second module fails after the first one has run. */
TEST_RANKS(a_failure_between_the_modules_leaves_nothing, 2)
{
    trainee m, again;
    ASSERT_OK(open_joint(t->group, &(fsdp_fully_shard_options){0}, 7, &m));
    ASSERT_OK(open_joint(t->group, &(fsdp_fully_shard_options){0}, 7, &again));
    tree_of(trainee_unit(&m, "second.inner"))->fail_forward = true;
    ASSERT_ERROR(tree_step(&m, 0, 2), FSDP_ERR_INVALID, "on purpose");
    ASSERT_ERROR(tree_evaluate(&m, m.model, 0), FSDP_ERR_INVALID, "on purpose");
    ASSERT(trainee_is_resharded(&m));
    tree_of(trainee_unit(&m, "second.inner"))->fail_forward = false;
    ASSERT_OK(steps(&m, 4, false));
    ASSERT_OK(steps(&again, 4, false));
    ASSERT_OK(tree_same_params(&m, &again));
    ASSERT_OK(trainee_close(&m));
    ASSERT_OK(trainee_close(&again));
}

TEST(modules_that_are_no_unit_together_are_refused)
{
    trainee m, other;
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(7, &m.model));
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &other));
    ASSERT_OK(tree_example(7, &other.model));
    fsdp_module *first = trainee_unit(&m, "first"), *second = trainee_unit(&m, "second");
    const struct {
        fsdp_module *modules[2];
        size_t n;
        const char *message;
    } cases[] = {
        {{first, NULL}, 0, "no module is given"},
        {{first, NULL}, 2, "module 1 of 2 is NULL"},
        {{first, first}, 2, "module 'first' (Tree) is 'first' (Tree), which is given too"},
        {{trainee_unit(&m, "second.inner"), second}, 2, "module 'inner' (Tree) is inside 'second'"},
        {{first, trainee_unit(&other, "second")}, 2, "'first' and 'second' are of different trees"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ASSERT_ERROR(fsdp_fully_shard_modules(cases[i].modules, cases[i].n, NULL, m.device, NULL),
                     FSDP_ERR_INVALID, cases[i].message);
        ASSERT(!fsdp_module_is_unit(first) && !fsdp_module_is_unit(second));
    }
    ASSERT_OK(trainee_close(&m));
    ASSERT_OK(trainee_close(&other));
}

TEST(modules_inside_of_units_that_know_nothing_of_each_other_are_refused)
{
    trainee m;
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(7, &m.model));
    fsdp_module *const both[] = {trainee_unit(&m, "first"), trainee_unit(&m, "second.inner")};
    ASSERT_OK(fsdp_fully_shard_modules(both, 2, NULL, m.device, NULL));
    ASSERT_OK(fsdp_fully_shard(trainee_unit(&m, "second"), NULL, m.device, NULL));
    ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
    ASSERT_OK(fsdp_module_init(m.model, 5));
    ASSERT_ERROR(tree_evaluate(&m, m.model, 0), FSDP_ERR_STATE,
                 "modules 'first' and 'inner' are one unit, but inside of different ones");
    ASSERT_OK(trainee_close(&m));
}

/* --- ignored --- */

/* An ignored parameter is whole on every rank and in no unit. Its gradient is not reduced. */
TEST_RANKS(ignored_parameters_stay_whole_and_are_not_reduced, 2)
{
    trainee m, whole;
    const tree_call call = {.micro_batch = t->rank, .n_micro_steps = 1};
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(7, &m.model));
    fsdp_parameter *const ignored[] = {tree_of(trainee_unit(&m, "first"))->up,
                                       tree_of(m.model)->norm};
    const fsdp_fully_shard_options o = {.ignored_params = ignored, .n_ignored_params = 2};
    ASSERT_ERROR(tree_example_shard(m.model, t->group, m.device, &o), FSDP_ERR_STATE,
                 "no memory to initialize");
    ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
    ASSERT_OK(fsdp_module_init(m.model, 5));
    ASSERT_OK(open_plain(&(fsdp_fully_shard_options){0}, 7, &whole));
    ASSERT_OK(tree_same_params(&m, &whole));
    for (int i = 0; i < 2; i++) {
        ASSERT(!fsdp_is_dtensor(fsdp_parameter_local(ignored[i])));
        ASSERT(!fsdp_parameter_group(ignored[i]));
    }
    ASSERT_OK(fsdp_set_gradient_divide_factor(m.model, 64));
    ASSERT_OK(tree_forward_backward(&m, m.model, &call));
    ASSERT_OK(tree_forward_backward(&whole, whole.model, &call));
    float *own, *alone;
    ASSERT_OK(tree_full_grad(ignored[0], &own));
    ASSERT_OK(tree_full_grad(tree_of(trainee_unit(&whole, "first"))->up, &alone));
    for (int i = 0; i < 4 * 7; i++)
        ASSERT_F32(own[i], alone[i]);
    fsdp_free(own);
    fsdp_free(alone);
    ASSERT_OK(trainee_close(&m));
    ASSERT_OK(trainee_close(&whole));
}

/* --- shared --- */

TEST(a_parameter_of_two_units_side_by_side_is_refused_naming_both)
{
    trainee m;
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(7, &m.model));
    fsdp_module *first = trainee_unit(&m, "first"), *second = trainee_unit(&m, "second");
    ASSERT_OK(fsdp_module_share_parameter(second, "tied", tree_of(first)->up));
    ASSERT_OK(fsdp_fully_shard(first, NULL, m.device, NULL));
    ASSERT_ERROR(fsdp_fully_shard(second, NULL, m.device, NULL), FSDP_ERR_INVALID,
                 "fully_shard of Tree: its parameter 'tied' is shared with unit 'first' (Tree)");
    ASSERT(!fsdp_module_is_unit(second));
    ASSERT_OK(fsdp_fully_shard(m.model, NULL, m.device, NULL));
    ASSERT_OK(trainee_close(&m));
}

/* As one unit, the modules have the parameter once. */
TEST(modules_that_share_a_parameter_are_a_unit_together)
{
    trainee m;
    fsdp_unit_info info;
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(7, &m.model));
    fsdp_module *const both[] = {trainee_unit(&m, "first"), trainee_unit(&m, "second.inner")};
    ASSERT_OK(fsdp_module_share_parameter(both[1], "tied", tree_of(both[0])->up));
    ASSERT_OK(fsdp_fully_shard_modules(both, 2, NULL, m.device, NULL));
    ASSERT_OK(fsdp_unit_get_info(both[1], &info));
    ASSERT_INT(info.n_parameters, 6);
    ASSERT_OK(trainee_close(&m));
}

/* --- sync_module_states --- */

/* Each rank begins with different values, and the last rank has no memory yet. All must get the
 * values of rank 0. */
static void check_sync(fsdp_test *t, const fsdp_device_mesh *mesh, fsdp_dtype param_dtype)
{
    trainee m, first;
    const fsdp_fully_shard_options o = {
        .mp_policy = {.param_dtype = param_dtype}, .mesh = mesh, .sync_module_states = true};
    ASSERT_OK(trainee_open(t->group, NULL, param_dtype, &m));
    ASSERT_OK(tree_example(7, &m.model));
    if (t->rank != t->world_size - 1) {
        ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
        ASSERT_OK(fsdp_module_init(m.model, 70 + (uint64_t)t->rank));
    }
    ASSERT_OK(fsdp_fully_shard(trainee_unit(&m, "second"), t->group, m.device, &o));
    ASSERT_OK(fsdp_fully_shard(m.model, t->group, m.device, &o));
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &first));
    ASSERT_OK(tree_example(7, &first.model));
    ASSERT_OK(fsdp_module_to_empty(first.model, first.device));
    ASSERT_OK(fsdp_module_init(first.model, 70));
    ASSERT_OK(tree_same_params(&m, &first));
    ASSERT_OK(trainee_close(&m));
    ASSERT_OK(trainee_close(&first));
}

TEST_RANKS(rank_0s_values_are_everybodys, 3)
{
    check_sync(t, NULL, FSDP_DTYPE_F32);
    CHECK_HERE();
    check_sync(t, NULL, FSDP_DTYPE_BF16);
}

TEST_RANKS(rank_0s_values_are_those_of_all_replicas, 4)
{
    fsdp_device_mesh *mesh;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, NULL, &mesh));
    check_sync(t, mesh, FSDP_DTYPE_F32);
    fsdp_device_mesh_destroy(mesh);
}

/* No rank has memory yet, so there is nothing to sync. */
TEST_RANKS(without_values_sync_does_nothing, 2)
{
    trainee m;
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(7, &m.model));
    ASSERT_OK(fsdp_fully_shard(m.model, t->group, m.device,
                               &(fsdp_fully_shard_options){.sync_module_states = true}));
    ASSERT_OK(fsdp_module_init(m.model, 3));
    ASSERT_OK(trainee_close(&m));
}
