/* Which modules can be units, frozen parameters, and what fully_shard refuses. */
#include "src/base/alloc.h"
#include "src/comm/comm.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    LEAVES = 4,
    WIDTH = TREE_EXAMPLE_WIDTH
};

/* --- frozen parameters --- */

static void freeze(fsdp_module *m)
{
    fsdp_parameter_set_requires_grad(tree_of(m)->norm, false);
    fsdp_parameter_set_requires_grad(tree_of(m)->up, false);
    fsdp_parameter_set_requires_grad(tree_of(m)->down, false);
}

TEST_RANKS(frozen_parameters_get_no_gradient_and_others_the_same_one, 2)
{
    for (size_t v = 0; v < TREE_VARIANTS; v++) {
        trainee m, one;
        ASSERT_OK(trainee_open_example(t->group, &tree_variants[v], &m));
        ASSERT_OK(trainee_open_example(NULL, &tree_variants[v], &one));
        for (int i = 0; i < 2; i++) {
            fsdp_module *root = i ? one.model : m.model;
            freeze(fsdp_module_find(root, "second"));
            fsdp_parameter_set_requires_grad(tree_of(root)->down, false);
        }
        uint64_t before = fsdp_group_counters(t->group)->calls[FSDP_KIND_REDUCE_SCATTER];
        for (int step = 0; step < 2; step++) {
            ASSERT_OK(tree_step(&m, step, LEAVES));
            ASSERT_OK(tree_step(&one, step, LEAVES));
        }
        /* 2 steps of 2 micro-steps, 3 units that train. */
        ASSERT_INT(fsdp_group_counters(t->group)->calls[FSDP_KIND_REDUCE_SCATTER] - before,
                   2 * 2 * 3);
        ASSERT(!fsdp_parameter_grad(tree_of(trainee_unit(&m, "second"))->up));
        ASSERT(!fsdp_parameter_grad(tree_of(m.model)->down));
        ASSERT(fsdp_parameter_grad(tree_of(m.model)->up));
        ASSERT_OK(tree_same_params(&m, &one));
        ASSERT_OK(trainee_close(&m));
        ASSERT_OK(trainee_close(&one));
    }
}

TEST_RANKS(a_model_frozen_as_a_whole_cannot_run_backward_and_goes_on, 2)
{
    trainee m;
    ASSERT_OK(trainee_open_example(t->group, &tree_variants[4], &m));
    static const char *const units[] = {"", "first", "second", "second.inner"};
    for (size_t i = 0; i < 4; i++)
        freeze(trainee_unit(&m, units[i]));
    ASSERT_ERROR(tree_forward_backward(&m, m.model, &(tree_call){0}), FSDP_ERR_INVALID,
                 "not on the tape");
    ASSERT(trainee_is_resharded(&m));
    fsdp_parameter_set_requires_grad(tree_of(m.model)->up, true);
    ASSERT_OK(tree_step(&m, 0, 2));
    ASSERT_OK(trainee_close(&m));
}

/* --- which modules can be units --- */

TEST_RANKS(a_unit_without_parameters_runs, 2)
{
    for (size_t v = 0; v < TREE_VARIANTS; v++) {
        trainee m;
        fsdp_module *empty, *leaf;
        ASSERT_OK(trainee_open(t->group, NULL, tree_variants[v].mp_policy.param_dtype, &m));
        ASSERT_OK(tree_add(NULL, "", WIDTH, 0, &m.model));
        ASSERT_OK(tree_add(m.model, "empty", WIDTH, 0, &empty));
        ASSERT_OK(tree_add(empty, "leaf", WIDTH, 3, &leaf));
        ASSERT_OK(fsdp_fully_shard(leaf, t->group, m.device, &tree_variants[v]));
        ASSERT_OK(fsdp_fully_shard(empty, t->group, m.device, &tree_variants[v]));
        ASSERT_OK(fsdp_fully_shard(m.model, t->group, m.device, &tree_variants[v]));
        ASSERT_OK(fsdp_module_init(m.model, 1));
        ASSERT_OK(tree_step(&m, 0, 2));
        ASSERT_OK(tree_step(&m, 1, 2));
        ASSERT(fsdp_parameter_grad(tree_of(leaf)->up));
        ASSERT_OK(trainee_close(&m));
    }
}

TEST_RANKS(units_over_some_blocks_alone_are_roots_of_their_own, 2)
{
    trainee m;
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(WIDTH, &m.model));
    ASSERT_OK(fsdp_fully_shard(trainee_unit(&m, "second"), t->group, m.device, NULL));
    ASSERT_OK(fsdp_fully_shard(trainee_unit(&m, "first"), t->group, m.device, NULL));
    ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
    ASSERT_OK(fsdp_module_init(m.model, 1));
    for (int step = 0; step < 3; step++) {
        fsdp_module_zero_grad(m.model);
        ASSERT_OK(
            tree_forward_backward(&m, m.model, &(tree_call){.step = step, .micro_batch = t->rank}));
        ASSERT(fsdp_parameter_grad(tree_of(trainee_unit(&m, "first"))->up));
        ASSERT(fsdp_parameter_grad(tree_of(trainee_unit(&m, "second.inner"))->up));
        ASSERT(fsdp_parameter_grad(tree_of(m.model)->up));
        ASSERT_OK(tree_sgd(m.model, 0.1f));
    }
    ASSERT_OK(fsdp_unit_unshard(trainee_unit(&m, "second")));
    /* The message has the unit's whole path. */
    ASSERT_ERROR(tree_sgd(m.model, 0.1f), FSDP_ERR_STATE, "unit 'second'");
    ASSERT_OK(fsdp_unit_reshard(trainee_unit(&m, "second")));
    ASSERT_OK(trainee_close(&m));
}

/* The outer unit is not sharded and the inner ones are, and vice versa. */
TEST_RANKS(sharded_and_whole_units_in_one_tree, 2)
{
    for (int outer = 0; outer < 2; outer++) {
        trainee m, one;
        const fsdp_mp_policy bf16 = {.param_dtype = FSDP_DTYPE_BF16};
        fsdp_fully_shard_options inside = {.mp_policy = bf16, .no_shard = !outer},
                                 outside = {.mp_policy = bf16, .no_shard = outer};
        ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_BF16, &m));
        ASSERT_OK(tree_example(WIDTH, &m.model));
        ASSERT_OK(fsdp_fully_shard(trainee_unit(&m, "first"), t->group, m.device, &inside));
        ASSERT_OK(fsdp_fully_shard(trainee_unit(&m, "second"), t->group, m.device, &inside));
        ASSERT_OK(fsdp_fully_shard(m.model, t->group, m.device, &outside));
        ASSERT_OK(fsdp_module_init(m.model, 5));
        ASSERT_OK(trainee_open_example(NULL, &tree_variants[1], &one));
        for (int step = 0; step < 3; step++) {
            ASSERT_OK(tree_step(&m, step, LEAVES));
            ASSERT_OK(tree_step(&one, step, LEAVES));
        }
        ASSERT_OK(tree_same_params(&m, &one));
        ASSERT_OK(trainee_close(&m));
        ASSERT_OK(trainee_close(&one));
    }
}

/* The root also reads parameters of "first", which works while they are held by
 * fsdp_unit_unshard(). With `call` 0, "first" does not run, so its gradients arrive outside of its
 * own backward. */
static fsdp_status train_held(trainee *m, int call)
{
    fsdp_module *first = trainee_unit(m, "first");
    tree_of(m->model)->calls[0] = call;
    for (int step = 0; step < 3; step++) {
        const int world_size = trainee_world_size(m);
        fsdp_module_zero_grad(m->model);
        FSDP_TRY(fsdp_set_gradient_divide_factor(m->model, LEAVES));
        FSDP_TRY(fsdp_unit_unshard(first));
        for (int a = 0; a < LEAVES / world_size; a++)
            FSDP_TRY(tree_forward_backward(
                m, m->model,
                &(tree_call){step, a * world_size + trainee_rank(m), a, LEAVES / world_size}));
        FSDP_TRY(fsdp_unit_reshard(first));
        if (!fsdp_parameter_grad(tree_of(first)->tied) ||
            !call != !fsdp_parameter_grad(tree_of(first)->up))
            return fsdp_error(FSDP_ERR_STATE, "a gradient is missing, or there is one too many");
        FSDP_TRY(tree_sgd(m->model, 0.1f));
    }
    return FSDP_OK;
}

static fsdp_status open_tied(fsdp_group *group, const fsdp_fully_shard_options *o, trainee *m)
{
    FSDP_TRY(trainee_open(group, NULL, o->mp_policy.param_dtype, m));
    FSDP_TRY(tree_example(WIDTH, &m->model));
    tree *first = tree_of(trainee_unit(m, "first")), *root = tree_of(m->model);
    FSDP_TRY(fsdp_module_add_parameter(trainee_unit(m, "first"), "tied", 2,
                                       (int64_t[]){WIDTH, WIDTH},
                                       (fsdp_init){.mean = 0.0f, .std = 0.3f}, &first->tied));
    root->tied = first->tied;
    FSDP_TRY(fsdp_module_share_parameter(m->model, "tied", root->tied));
    return tree_example_shard(m->model, group, m->device, o);
}

TEST_RANKS(a_held_units_parameters_are_read_and_trained_by_others, 2)
{
    for (size_t v = 0; v < TREE_VARIANTS; v++)
        for (int call = 0; call < 2; call++) {
            trainee m, one;
            ASSERT_OK(open_tied(t->group, &tree_variants[v], &m));
            ASSERT_OK(open_tied(NULL, &tree_variants[v], &one));
            ASSERT_OK(train_held(&m, call));
            ASSERT_OK(train_held(&one, call));
            ASSERT_OK(tree_same_params(&m, &one));
            ASSERT(trainee_is_resharded(&m));
            ASSERT_OK(trainee_close(&m));
            ASSERT_OK(trainee_close(&one));
        }
}

/* If the parameters of "first" are not held, they are resharded when the root reads them. */
TEST_RANKS(a_parameter_of_another_unit_is_an_error_where_it_is_read, 2)
{
    trainee m;
    ASSERT_OK(open_tied(t->group, &tree_variants[0], &m));
    ASSERT_ERROR(tree_step(&m, 0, LEAVES), FSDP_ERR_STATE, "resharded");
    ASSERT(trainee_is_resharded(&m));
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(values_of_before_are_kept, 2)
{
    for (size_t v = 0; v < TREE_VARIANTS; v++) {
        trainee m;
        float *before = NULL, *after = NULL;
        size_t n, n_after;
        ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
        ASSERT_OK(tree_example(WIDTH, &m.model));
        ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
        ASSERT_OK(fsdp_module_init(m.model, 9));
        ASSERT_OK(tree_forward_backward(&m, m.model, &(tree_call){0}));
        ASSERT_OK(tree_params(m.model, &before, &n));
        ASSERT_OK(
            fsdp_fully_shard(trainee_unit(&m, "first"), t->group, m.device, &tree_variants[v]));
        ASSERT_OK(fsdp_fully_shard(m.model, t->group, m.device, &tree_variants[v]));
        ASSERT(!fsdp_parameter_grad(tree_of(m.model)->up)); /* a whole gradient would not fit */
        ASSERT_OK(tree_params(m.model, &after, &n_after));
        ASSERT_INT(n, n_after);
        ASSERT(memcmp(before, after, n * sizeof *before) == 0);
        fsdp_free(before);
        fsdp_free(after);
        m.dtype = tree_variants[v].mp_policy.param_dtype;
        ASSERT_OK(tree_step(&m, 0, 2));
        ASSERT_OK(trainee_close(&m));
    }
}

TEST_RANKS(a_backward_whose_parameters_were_sharded_meanwhile_is_an_error, 2)
{
    trainee m;
    fsdp_scope *s;
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(WIDTH, &m.model));
    ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
    ASSERT_OK(fsdp_module_init(m.model, 9));
    const tree_call call = {0};
    ASSERT_OK(tree_scope(&m, m.tape, &call, &s));
    fsdp_tensor *y = tree_forward(&m, s, m.model, &call);
    ASSERT_OK(fsdp_fully_shard(m.model, t->group, m.device, NULL));
    ASSERT_ERROR(tree_backward(&m, &y, &call, 1), FSDP_ERR_STATE, "sharded or destroyed");
    fsdp_scope_close(s);
    ASSERT_OK(tree_step(&m, 0, 2));
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(fully_shard_refuses_and_changes_nothing, 2)
{
    trainee m;
    fsdp_region_hooks hooks[FSDP_MAX_HOOKS] = {0};
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(WIDTH, &m.model));
    fsdp_module *first = trainee_unit(&m, "first"), *second = trainee_unit(&m, "second");
    ASSERT_ERROR(fsdp_fully_shard(NULL, t->group, m.device, NULL), FSDP_ERR_INVALID, "module");
    ASSERT_ERROR(fsdp_fully_shard(first, t->group, NULL, NULL), FSDP_ERR_INVALID, "device");
    const fsdp_dtype no = FSDP_DTYPE_I32;
    ASSERT_ERROR(fsdp_fully_shard(first, t->group, m.device,
                                  &(fsdp_fully_shard_options){.mp_policy = {.param_dtype = no}}),
                 FSDP_ERR_UNSUPPORTED, "param_dtype int32");
    ASSERT_ERROR(fsdp_fully_shard(first, t->group, m.device,
                                  &(fsdp_fully_shard_options){.mp_policy = {.reduce_dtype = no}}),
                 FSDP_ERR_UNSUPPORTED, "reduce_dtype int32");
    ASSERT_ERROR(fsdp_fully_shard(first, t->group, m.device,
                                  &(fsdp_fully_shard_options){.mp_policy = {.master_dtype = no}}),
                 FSDP_ERR_UNSUPPORTED, "master_dtype int32");
    for (int i = 0; i < FSDP_MAX_HOOKS; i++)
        ASSERT_OK(fsdp_module_add_hooks(first, &hooks[i], NULL));
    ASSERT_ERROR(fsdp_fully_shard(first, t->group, m.device, NULL), FSDP_ERR_STATE, "hooks");
    ASSERT(!fsdp_module_is_unit(first));
    ASSERT(!fsdp_parameter_local(tree_of(first)->up));
    ASSERT_OK(fsdp_fully_shard(second, t->group, m.device, NULL));
    ASSERT_ERROR(fsdp_fully_shard(second, t->group, m.device, NULL), FSDP_ERR_INVALID, "already");
    ASSERT_ERROR(fsdp_fully_shard(trainee_unit(&m, "second.inner"), t->group, m.device, NULL),
                 FSDP_ERR_STATE, "bottom up");
    ASSERT_OK(fsdp_module_init(second, 1));
    ASSERT_OK(tree_evaluate(&m, second, 0));
    ASSERT_ERROR(fsdp_fully_shard(m.model, t->group, m.device, NULL), FSDP_ERR_STATE,
                 "'second' inside it has run already");
    ASSERT_OK(tree_evaluate(&m, second, 0));
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(units_of_one_tree_share_device_and_group, 2)
{
    trainee m;
    fsdp_device *other;
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(fsdp_device_create(NULL, &other));
    ASSERT_OK(tree_example(WIDTH, &m.model));
    ASSERT_OK(fsdp_fully_shard(trainee_unit(&m, "first"), t->group, other, NULL));
    ASSERT_OK(fsdp_fully_shard(m.model, t->group, m.device, NULL));
    ASSERT_OK(fsdp_module_init(m.model, 1));
    ASSERT_ERROR(tree_evaluate(&m, m.model, 0), FSDP_ERR_INVALID, "'first' is over another device");
    ASSERT_OK(trainee_close(&m));
    fsdp_device_destroy(other);
}

/* --- a parameter that outlives its unit --- */

static fsdp_status open_outer(fsdp_group *group, const fsdp_fully_shard_options *o, trainee *m)
{
    FSDP_TRY(trainee_open(group, NULL, o->mp_policy.param_dtype, m));
    FSDP_TRY(tree_add(NULL, "", WIDTH, 3, &m->model));
    return fsdp_module_add_parameter(m->model, "tied", 2, (int64_t[]){WIDTH, WIDTH},
                                     (fsdp_init){.mean = 0.0f, .std = 0.3f},
                                     &tree_of(m->model)->tied);
}

/* A tree with a matrix that was in a unit of another tree, which ran a step and was destroyed. */
static fsdp_status open_survivor(fsdp_group *group, const fsdp_fully_shard_options *o, trainee *m)
{
    FSDP_TRY(open_outer(group, o, m));
    fsdp_module *heir, *gone = m->model;
    FSDP_TRY(tree_add(NULL, "", WIDTH, 3, &heir));
    tree_of(heir)->tied = tree_of(gone)->tied;
    fsdp_status status = fsdp_module_share_parameter(heir, "tied", tree_of(gone)->tied);
    if (status == FSDP_OK)
        status = fsdp_fully_shard(gone, group, m->device, o);
    if (status == FSDP_OK)
        status = fsdp_module_init(gone, 1);
    if (status == FSDP_OK)
        status = tree_step(m, 0, LEAVES);
    fsdp_module_destroy(gone);
    m->model = heir;
    return status;
}

TEST_RANKS(a_parameter_that_outlives_its_unit_has_no_memory, 2)
{
    for (size_t v = 0; v < TREE_VARIANTS; v++) {
        trainee m;
        ASSERT_OK(open_survivor(t->group, &tree_variants[v], &m));
        const fsdp_parameter *tied = tree_of(m.model)->tied;
        ASSERT(!fsdp_parameter_data(tied) && !fsdp_parameter_local(tied));
        ASSERT(!fsdp_parameter_grad(tied) && !fsdp_parameter_group(tied));
        ASSERT_ERROR(fsdp_module_init(m.model, 2), FSDP_ERR_STATE, "has no memory");
        ASSERT_ERROR(tree_evaluate(&m, m.model, 0), FSDP_ERR_STATE, "has no memory");
        ASSERT_OK(trainee_close(&m));
    }
}

TEST_RANKS(a_parameter_that_outlives_its_unit_may_be_anothers, 2)
{
    for (size_t v = 0; v < TREE_VARIANTS; v++) {
        trainee m, fresh;
        ASSERT_OK(open_survivor(t->group, &tree_variants[v], &m));
        ASSERT_OK(open_outer(t->group, &tree_variants[v], &fresh));
        trainee *const both[] = {&m, &fresh};
        for (int i = 0; i < 2; i++) {
            ASSERT_OK(
                fsdp_fully_shard(both[i]->model, t->group, both[i]->device, &tree_variants[v]));
            ASSERT_OK(fsdp_module_init(both[i]->model, 2));
            ASSERT_OK(tree_step(both[i], 0, LEAVES));
        }
        ASSERT_OK(tree_same_params(&m, &fresh));
        ASSERT_OK(trainee_close(&fresh));
        ASSERT_OK(trainee_close(&m));
    }
}

/* The matrix is whole, and accumulates its own gradients. */
TEST_RANKS(a_parameter_that_outlives_its_unit_may_be_in_no_unit, 2)
{
    trainee m, fresh;
    ASSERT_OK(open_survivor(t->group, &tree_variants[0], &m));
    ASSERT_OK(open_outer(NULL, &tree_variants[0], &fresh));
    trainee *const both[] = {&m, &fresh};
    for (int i = 0; i < 2; i++) {
        ASSERT_OK(fsdp_module_to_empty(both[i]->model, both[i]->device));
        ASSERT_OK(fsdp_module_init(both[i]->model, 2));
        ASSERT_OK(
            tree_forward_backward(both[i], both[i]->model, &(tree_call){.micro_batch = t->rank}));
    }
    float here[WIDTH * WIDTH], there[WIDTH * WIDTH];
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_parameter_grad(tree_of(m.model)->tied), here));
    ASSERT_OK(fsdp_tensor_to_floats(fsdp_parameter_grad(tree_of(fresh.model)->tied), there));
    ASSERT(memcmp(here, there, sizeof here) == 0);
    ASSERT_OK(trainee_close(&fresh));
    ASSERT_OK(trainee_close(&m));
}
