/* FullyShardedDataParallel: each argument of FSDP1 has its effect. */
#include <stdio.h>

#include "src/comm/comm.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

typedef fsdp_fully_sharded_data_parallel_options options;

static const fsdp_wrap_policy every_tree = {
    .kind = FSDP_WRAP_TRANSFORMER, .transformer_layer_cls = (const char *const[]){"Tree", NULL}};

/* Open the example, wrapped, with values. */
static fsdp_status open_wrapped(fsdp_group *group, const options *o, trainee *m)
{
    const bool bf16 = o->mixed_precision && o->mixed_precision->set_param_dtype;
    FSDP_TRY(trainee_open(group, NULL, bf16 ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32, m));
    FSDP_TRY(tree_example(TREE_EXAMPLE_WIDTH, &m->model));
    FSDP_TRY(fsdp_fully_sharded_data_parallel(m->model, group, m->device, o));
    return o->param_init_fn ? FSDP_OK : fsdp_module_init(m->model, 3);
}

static fsdp_unit_info info_of(fsdp_test *t, const trainee *m, const char *path)
{
    fsdp_unit_info info = {0};
    if (fsdp_unit_get_info(trainee_unit(m, path), &info) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s: %s", path, fsdp_last_error());
    return info;
}

TEST_RANKS(strategies_are_what_is_kept_and_what_is_cut, 2)
{
    static const struct {
        fsdp_sharding_strategy strategy;
        bool reshards, no_shard;
    } cases[] = {{FSDP_SHARDING_FULL_SHARD, true, false},
                 {FSDP_SHARDING_SHARD_GRAD_OP, false, false},
                 {FSDP_SHARDING_NO_SHARD, true, true},
                 {FSDP_SHARDING_HYBRID_SHARD, true, false},
                 {FSDP_SHARDING_HYBRID_SHARD_ZERO2, false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trainee m;
        const options o = {.sharding_strategy = cases[i].strategy, .auto_wrap_policy = &every_tree};
        ASSERT_OK(open_wrapped(t->group, &o, &m));
        const fsdp_unit_info info = info_of(t, &m, "second.inner");
        CHECK_HERE();
        ASSERT(info.no_shard == cases[i].no_shard);
        if (!info.no_shard) {
            ASSERT(info.reshard_after_forward == cases[i].reshards);
            ASSERT(info.local_numel < info.numel);
        }
        ASSERT(!info_of(t, &m, "").reshard_after_forward);
        ASSERT_OK(tree_step(&m, 0, 2));
        ASSERT_OK(trainee_close(&m));
    }
}

TEST_RANKS(hybrid_strategies_replicate_over_the_mesh, 4)
{
    fsdp_device_mesh *mesh, *line;
    trainee m, one;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, NULL, &mesh));
    ASSERT_OK(fsdp_device_mesh_create(t->group, 1, (int[]){4}, NULL, &line));
    options o = {.sharding_strategy = FSDP_SHARDING_HYBRID_SHARD,
                 .auto_wrap_policy = &every_tree,
                 .device_mesh = mesh};
    ASSERT_OK(open_wrapped(t->group, &o, &m));
    ASSERT(info_of(t, &m, "first").replicate_group);
    o.device_mesh = NULL;
    ASSERT_OK(open_wrapped(NULL, &o, &one));
    for (int step = 0; step < 3; step++) {
        ASSERT_OK(tree_step(&m, step, 4));
        ASSERT_OK(tree_step(&one, step, 4));
    }
    ASSERT_OK(tree_same_params(&m, &one));
    ASSERT_OK(trainee_close(&one));
    ASSERT_OK(trainee_close(&m));
    o.device_mesh = line;
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(TREE_EXAMPLE_WIDTH, &m.model));
    ASSERT_ERROR(fsdp_fully_sharded_data_parallel(m.model, t->group, m.device, &o),
                 FSDP_ERR_INVALID, "needs a device_mesh of two dimensions");
    o.sharding_strategy = FSDP_SHARDING_FULL_SHARD;
    o.device_mesh = mesh;
    ASSERT_ERROR(fsdp_fully_sharded_data_parallel(m.model, t->group, m.device, &o),
                 FSDP_ERR_INVALID, "needs a hybrid sharding_strategy");
    ASSERT(!fsdp_module_is_unit(m.model));
    ASSERT_OK(trainee_close(&m));
    fsdp_device_mesh_destroy(line);
    fsdp_device_mesh_destroy(mesh);
}

/* Number of all-gathers of a forward and a backward. */
static uint64_t gathers_of_a_step(fsdp_test *t, fsdp_group *group, const options *o)
{
    trainee m;
    uint64_t n = 0;
    if (open_wrapped(group, o, &m) != FSDP_OK || tree_step(&m, 0, t->world_size) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    const fsdp_unit_info info = info_of(t, &m, "first");
    const fsdp_comm_counters before = *fsdp_group_counters(info.group);
    if (tree_forward_backward(&m, m.model, &(tree_call){.micro_batch = t->rank}) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    n = fsdp_group_counters(info.group)->calls[FSDP_KIND_ALL_GATHER] -
        before.calls[FSDP_KIND_ALL_GATHER];
    if (trainee_close(&m) != FSDP_OK)
        fsdp_test_fail(t, __FILE__, __LINE__, "%s", fsdp_last_error());
    return n;
}

/* Four units: forward gathers each of them; backward gathers all but the root, or none. */
TEST_RANKS(zero2_strategies_gather_once_a_step, 4)
{
    fsdp_device_mesh *mesh;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, NULL, &mesh));
    options o = {.auto_wrap_policy = &every_tree};
    ASSERT_INT(gathers_of_a_step(t, t->group, &o), 7);
    o.sharding_strategy = FSDP_SHARDING_SHARD_GRAD_OP;
    ASSERT_INT(gathers_of_a_step(t, t->group, &o), 4);
    o.device_mesh = mesh;
    o.sharding_strategy = FSDP_SHARDING_HYBRID_SHARD;
    ASSERT_INT(gathers_of_a_step(t, t->group, &o), 7);
    o.sharding_strategy = FSDP_SHARDING_HYBRID_SHARD_ZERO2;
    ASSERT_INT(gathers_of_a_step(t, t->group, &o), 4);
    fsdp_device_mesh_destroy(mesh);
}

TEST(cpu_offload_is_nothing_or_a_file)
{
    trainee m, plain;
    options o = {.auto_wrap_policy = &every_tree};
    ASSERT_OK(open_wrapped(NULL, &o, &plain));
    ASSERT(info_of(t, &plain, "first").offload == FSDP_OFFLOAD_NONE);
    o.cpu_offload = true;
    ASSERT_OK(open_wrapped(NULL, &o, &m));
    ASSERT(info_of(t, &m, "first").offload == FSDP_OFFLOAD_CPU);
    ASSERT_OK(trainee_close(&m));
    o.offload_dir = fsdp_test_dir(t);
    ASSERT_OK(open_wrapped(NULL, &o, &m));
    ASSERT(info_of(t, &m, "first").offload == FSDP_OFFLOAD_DIR);
    ASSERT(!fsdp_tensor_has_data(fsdp_parameter_local(tree_of(trainee_unit(&m, "first"))->up)));
    ASSERT_OK(tree_step(&m, 0, 1));
    ASSERT_OK(tree_step(&plain, 0, 1));
    ASSERT_OK(tree_same_params(&m, &plain));
    ASSERT_OK(trainee_close(&m));
    ASSERT_OK(trainee_close(&plain));
    o.cpu_offload = false;
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(TREE_EXAMPLE_WIDTH, &m.model));
    ASSERT_ERROR(fsdp_fully_sharded_data_parallel(m.model, NULL, m.device, &o), FSDP_ERR_INVALID,
                 "without cpu_offload");
    ASSERT_OK(trainee_close(&m));
}

/* An ignored module is not a unit, and its parameters are not sharded, gathered or reduced. */
TEST_RANKS(what_is_ignored_stays_whole_and_is_not_reduced, 2)
{
    trainee m;
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(TREE_EXAMPLE_WIDTH, &m.model));
    fsdp_module *ignored[] = {trainee_unit(&m, "second")};
    fsdp_parameter *states[] = {tree_of(trainee_unit(&m, "first"))->norm};
    const options o = {.auto_wrap_policy = &every_tree,
                       .ignored_modules = ignored,
                       .n_ignored_modules = 1,
                       .ignored_states = states,
                       .n_ignored_states = 1};
    ASSERT_OK(fsdp_fully_sharded_data_parallel(m.model, t->group, m.device, &o));
    ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
    ASSERT_OK(fsdp_module_init(m.model, 3));
    ASSERT(fsdp_module_is_unit(trainee_unit(&m, "first")));
    ASSERT(!fsdp_module_is_unit(ignored[0]));
    ASSERT(!fsdp_module_is_unit(trainee_unit(&m, "second.inner")));
    const fsdp_parameter *whole[] = {tree_of(ignored[0])->up, states[0]};
    const uint64_t before = fsdp_group_counters(t->group)->calls[FSDP_KIND_REDUCE_SCATTER];
    ASSERT_OK(tree_forward_backward(&m, m.model, &(tree_call){.micro_batch = t->rank}));
    ASSERT_INT(fsdp_group_counters(t->group)->calls[FSDP_KIND_REDUCE_SCATTER] - before, 2);
    for (int i = 0; i < 2; i++) {
        fsdp_tensor *grad = fsdp_parameter_grad(whole[i]);
        float own[64], both[2][64];
        ASSERT(!fsdp_parameter_group(whole[i]));
        ASSERT(grad && fsdp_tensor_numel(grad) == fsdp_parameter_numel(whole[i]));
        ASSERT_OK(fsdp_tensor_to_floats(grad, own));
        const size_t bytes = (size_t)fsdp_tensor_numel(grad) * sizeof(float);
        ASSERT_OK(fsdp_all_gather(t->group, own, bytes, both));
        ASSERT(memcmp((char *)both, (char *)both + bytes, bytes) != 0); /* differ between ranks */
    }
    ASSERT_OK(trainee_close(&m));
}

typedef struct init_calls {
    int n;
    bool fail;
    char paths[256];
} init_calls;

static fsdp_status init_own(const char *path, fsdp_module *m, void *arg)
{
    init_calls *calls = arg;
    if (calls->fail && *path)
        return fsdp_error(FSDP_ERR_NUMERIC, "no values for %s", path);
    calls->n++;
    snprintf(calls->paths + strlen(calls->paths), sizeof calls->paths - strlen(calls->paths), "%s,",
             path);
    return *path ? FSDP_OK : fsdp_module_init(m, 17);
}

TEST_RANKS(param_init_fn_gives_the_values, 2)
{
    trainee m, drawn;
    init_calls calls = {0}, failing = {.fail = true};
    options o = {
        .auto_wrap_policy = &every_tree, .param_init_fn = init_own, .param_init_arg = &calls};
    ASSERT_OK(open_wrapped(t->group, &o, &m));
    ASSERT_INT(calls.n, 4);
    ASSERT_STR(calls.paths, ",first,second,second.inner,");
    ASSERT_OK(trainee_open_example(t->group, &(fsdp_fully_shard_options){0}, &drawn));
    ASSERT_OK(fsdp_module_init(drawn.model, 17));
    ASSERT_OK(tree_same_params(&m, &drawn));
    ASSERT_OK(trainee_close(&drawn));
    ASSERT_OK(trainee_close(&m));
    o.param_init_arg = &failing;
    ASSERT_ERROR(open_wrapped(t->group, &o, &m), FSDP_ERR_NUMERIC, "no values for first");
    ASSERT_OK(trainee_close(&m));
}

TEST(param_init_fn_is_called_for_modules_with_parameters_of_their_own)
{
    trainee m;
    init_calls calls = {0};
    fsdp_module *block;
    const options o = {.param_init_fn = init_own, .param_init_arg = &calls};
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_add(NULL, "", TREE_EXAMPLE_WIDTH, 0, &m.model));
    ASSERT_OK(tree_add(m.model, "block", TREE_EXAMPLE_WIDTH, 3, &block));
    ASSERT_OK(fsdp_fully_sharded_data_parallel(m.model, NULL, m.device, &o));
    ASSERT_STR(calls.paths, "block,");
    ASSERT_OK(trainee_close(&m));
}

static fsdp_status fill(const fsdp_parameter *p, float value)
{
    fsdp_tensor *local = fsdp_parameter_local(p);
    const fsdp_device *device = local->storage->device;
    FSDP_TRY(fsdp_tensor_begin_write(local));
    device->kernels->fill(device->context, fsdp_tensor_ptr(local), local->dtype, (double)value,
                          fsdp_tensor_numel(local));
    fsdp_tensor_end_write(local);
    return FSDP_OK;
}

/* Allocate and set a module's parameters before anything is wrapped. */
static fsdp_status load(trainee *m, fsdp_module *module, float value)
{
    const tree *of = tree_of(module);
    FSDP_TRY(fsdp_module_to_empty(module, m->device));
    FSDP_TRY(fill(of->norm, value));
    FSDP_TRY(fill(of->up, value));
    return fill(of->down, value);
}

/* Set all of the module's own parameters to 7. */
static fsdp_status init_sevens(const char *path, fsdp_module *m, void *arg)
{
    init_calls *calls = arg;
    snprintf(calls->paths + strlen(calls->paths), sizeof calls->paths - strlen(calls->paths), "%s,",
             path);
    FSDP_TRY(fill(tree_of(m)->norm, 7.0f));
    FSDP_TRY(fill(tree_of(m)->up, 7.0f));
    return fill(tree_of(m)->down, 7.0f);
}

/* Check that all elements of a module's matrix `up` are `value`. */
static void check_up(fsdp_test *t, const trainee *m, const char *path, float value)
{
    float values[64];
    fsdp_tensor *full;
    ASSERT_OK(fsdp_full_tensor(fsdp_parameter_local(tree_of(trainee_unit(m, path))->up), &full));
    ASSERT_OK(fsdp_tensor_to_floats(full, values));
    for (int64_t i = 0; i < fsdp_tensor_numel(full); i++)
        ASSERT_F32(values[i], value);
    fsdp_tensor_release(full);
}

TEST_RANKS(param_init_fn_leaves_values_that_there_are, 2)
{
    trainee m;
    init_calls calls = {0};
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(TREE_EXAMPLE_WIDTH, &m.model));
    fsdp_module *ignored[] = {trainee_unit(&m, "first")};
    const options o = {.auto_wrap_policy = &every_tree,
                       .ignored_modules = ignored,
                       .n_ignored_modules = 1,
                       .param_init_fn = init_sevens,
                       .param_init_arg = &calls};
    ASSERT_OK(load(&m, ignored[0], 42.0f));
    ASSERT_OK(load(&m, trainee_unit(&m, "second.inner"), 43.0f));
    ASSERT_OK(fsdp_fully_sharded_data_parallel(m.model, t->group, m.device, &o));
    ASSERT_STR(calls.paths, ",second,");
    check_up(t, &m, "first", 42.0f);
    check_up(t, &m, "second.inner", 43.0f);
    check_up(t, &m, "second", 7.0f);
    check_up(t, &m, "", 7.0f);
    CHECK_HERE();
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(param_init_fn_is_not_called_for_what_is_ignored, 2)
{
    trainee m;
    init_calls calls = {0};
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(TREE_EXAMPLE_WIDTH, &m.model));
    fsdp_module *ignored[] = {trainee_unit(&m, "second")};
    const options o = {.auto_wrap_policy = &every_tree,
                       .ignored_modules = ignored,
                       .n_ignored_modules = 1,
                       .param_init_fn = init_sevens,
                       .param_init_arg = &calls};
    ASSERT_OK(fsdp_fully_sharded_data_parallel(m.model, t->group, m.device, &o));
    ASSERT_STR(calls.paths, ",first,");
    ASSERT(!fsdp_parameter_local(tree_of(ignored[0])->up));
    ASSERT_OK(trainee_close(&m));
}

/* Only rank 0 has values. After the sync all ranks have them, so param_init_fn is not called. */
TEST_RANKS(param_init_fn_leaves_values_that_were_synced, 2)
{
    trainee m;
    init_calls calls = {0};
    const options o = {.auto_wrap_policy = &every_tree,
                       .sync_module_states = true,
                       .param_init_fn = init_sevens,
                       .param_init_arg = &calls};
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(TREE_EXAMPLE_WIDTH, &m.model));
    if (t->rank == 0)
        ASSERT_OK(load(&m, trainee_unit(&m, "first"), 42.0f));
    ASSERT_OK(fsdp_fully_sharded_data_parallel(m.model, t->group, m.device, &o));
    ASSERT_STR(calls.paths, ",second,second.inner,");
    check_up(t, &m, "first", 42.0f);
    check_up(t, &m, "second", 7.0f);
    CHECK_HERE();
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(sync_module_states_makes_rank_0s_values_everybodys, 2)
{
    for (int sync = 0; sync < 2; sync++) {
        trainee m, first;
        const options o = {.auto_wrap_policy = &every_tree, .sync_module_states = sync == 1};
        ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
        ASSERT_OK(tree_example(TREE_EXAMPLE_WIDTH, &m.model));
        ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
        /* Different values on each rank. */
        ASSERT_OK(fsdp_module_init(m.model, 100 + (uint64_t)t->rank));
        ASSERT_OK(fsdp_fully_sharded_data_parallel(m.model, t->group, m.device, &o));
        ASSERT_OK(trainee_open_example(t->group, &(fsdp_fully_shard_options){0}, &first));
        ASSERT_OK(fsdp_module_init(first.model, 100));
        fsdp_status same = tree_same_params(&m, &first);
        ASSERT((same == FSDP_OK) == (sync == 1));
        ASSERT_OK(trainee_close(&first));
        ASSERT_OK(trainee_close(&m));
    }
}

TEST_RANKS(precision_prefetch_and_limits_reach_the_units, 2)
{
    trainee m;
    fsdp_mixed_precision bf16;
    ASSERT_OK(fsdp_mixed_precision_preset("bfSixteen", &bf16));
    options o = {.auto_wrap_policy = &every_tree,
                 .mixed_precision = &bf16,
                 .backward_prefetch = FSDP_BACKWARD_POST,
                 .forward_prefetch = true,
                 .no_limit_all_gathers = true};
    ASSERT_OK(open_wrapped(t->group, &o, &m));
    ASSERT_OK(tree_step(&m, 0, 2));
    fsdp_unit_info info = info_of(t, &m, "first");
    ASSERT(info.mp_policy.param_dtype == FSDP_DTYPE_BF16);
    ASSERT(info.backward_prefetch == FSDP_BACKWARD_POST);
    ASSERT(info.forward_prefetch == FSDP_FORWARD_STRICT);
    ASSERT(!info.limit_all_gathers);
    ASSERT_OK(trainee_close(&m));
    o = (options){.auto_wrap_policy = &every_tree};
    ASSERT_OK(open_wrapped(t->group, &o, &m));
    ASSERT_OK(tree_step(&m, 0, 2));
    info = info_of(t, &m, "first");
    ASSERT(info.mp_policy.param_dtype == FSDP_DTYPE_F32);
    ASSERT(info.backward_prefetch == FSDP_BACKWARD_PRE);
    ASSERT(info.forward_prefetch == FSDP_FORWARD_IMPLICIT);
    ASSERT(info.limit_all_gathers);
    ASSERT_OK(trainee_close(&m));
}

TEST(frozen_and_trainable_in_a_unit_need_use_orig_params)
{
    for (int orig = 0; orig < 2; orig++) {
        trainee m;
        const options o = {.auto_wrap_policy = &every_tree, .use_orig_params = orig == 1};
        ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
        ASSERT_OK(tree_example(TREE_EXAMPLE_WIDTH, &m.model));
        fsdp_parameter_set_requires_grad(tree_of(trainee_unit(&m, "second"))->up, false);
        if (orig)
            ASSERT_OK(fsdp_fully_sharded_data_parallel(m.model, NULL, m.device, &o));
        else
            ASSERT_ERROR(fsdp_fully_sharded_data_parallel(m.model, NULL, m.device, &o),
                         FSDP_ERR_INVALID,
                         "'norm' and 'up' of unit 'second' differ in requires_grad, which needs "
                         "use_orig_params");
        ASSERT_OK(trainee_close(&m));
    }
}
