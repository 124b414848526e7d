/* State dicts: names as PyTorch has them, tensors that are the module's own, and checkpoints that
 * go from any number of ranks to any other. */
#include <stdio.h>

#include <fsdp/dtensor.h>
#include <fsdp/state_dict.h>

#include "src/base/alloc.h"
#include "src/base/io.h"
#include "src/comm/agree.h"
#include "src/nn/module.h"
#include "src/tensor/tensor.h"
#include "tests/elements.h"
#include "tests/state_dict/state_case.h"
#include "tests/test.h"

/* --- the same everywhere --- */

static void assert_same_tensor(fsdp_test *t, const char *what, fsdp_tensor *a, fsdp_tensor *b)
{
    fsdp_tensor *x, *y;
    ASSERT((a != NULL) == (b != NULL));
    if (!a)
        return;
    ASSERT_OK(fsdp_full_tensor(a, &x));
    ASSERT_OK(fsdp_full_tensor(b, &y));
    size_t bytes = (size_t)fsdp_tensor_numel(x) * fsdp_dtype_size(fsdp_tensor_dtype(x));
    bool same = fsdp_tensor_numel(x) == fsdp_tensor_numel(y) &&
                (!bytes || memcmp(elements_of(x), elements_of(y), bytes) == 0);
    fsdp_tensor_release(x);
    fsdp_tensor_release(y);
    if (!same)
        FAIL("%s differs", what);
}

/* Compare parameters, state and steps, bit by bit. */
static void assert_same(fsdp_test *t, const state_case *a, const state_case *b)
{
    const char *state;
    ASSERT(a->list.n == b->list.n);
    for (size_t i = 0; i < a->list.n; i++) {
        const fsdp_parameter *p = a->list.items[i].parameter, *q = b->list.items[i].parameter;
        assert_same_tensor(t, a->list.items[i].name, fsdp_parameter_local(p),
                           fsdp_parameter_local(q));
        CHECK_HERE();
        ASSERT((fsdp_optimizer_steps(a->optimizer, p) > 0) ==
               (fsdp_optimizer_steps(b->optimizer, q) > 0));
        for (int k = 0; (state = fsdp_optimizer_state_name(a->optimizer, k)); k++) {
            assert_same_tensor(t, state, fsdp_optimizer_state(a->optimizer, p, state),
                               fsdp_optimizer_state(b->optimizer, q, state));
            CHECK_HERE();
        }
    }
}

/* --- names --- */

static const fsdp_state_entry *find(const fsdp_state_dict *dict, const char *fqn)
{
    return fsdp_state_dict_find(dict, fqn);
}

/* A tied parameter is in the model's dict twice, in the optimizer's once. */
TEST_RANKS(names_are_pytorchs_and_tensors_are_the_modules_own, 2)
{
    state_case f;
    fsdp_state_dict *all;
    ASSERT_OK(state_case_open(&f, t->group, STATE_CASE_ADAMW, 1));
    ASSERT_OK(state_case_train(&f, 3));
    ASSERT_OK(state_case_get(&f, NULL, &all));
    const char *first = f.list.items[0].name;
    char fqn[128];
    snprintf(fqn, sizeof fqn, "model.%s", first);
    ASSERT(find(all, fqn)->tensor == fsdp_parameter_local(f.list.items[0].parameter));
    snprintf(fqn, sizeof fqn, "optim.state.%s.exp_avg_sq", first);
    const fsdp_state_entry *entry = find(all, fqn);
    ASSERT(entry && entry->n_keys == 4 && strcmp(entry->keys[2].name, first) == 0);
    ASSERT(entry->tensor ==
           fsdp_optimizer_state(f.optimizer, f.list.items[0].parameter, "exp_avg_sq"));
    snprintf(fqn, sizeof fqn, "optim.state.%s.step", first);
    double step;
    ASSERT(fsdp_tensor_ndim(find(all, fqn)->tensor) == 0);
    ASSERT_OK(fsdp_tensor_item(find(all, fqn)->tensor, &step));
    ASSERT(step == 3.0);
    ASSERT(find(all, "optim.param_groups.0.weight_decay")->value->as.number == 0.25);
    ASSERT(find(all, "optim.param_groups.0.betas")->value->kind == FSDP_PLAIN_TUPLE);
    ASSERT(find(all, "optim.param_groups.0.fused")->value->kind == FSDP_PLAIN_NONE);
    ASSERT(find(all, "optim.param_groups.0.params")->value->as.list.n == f.list.n);
    fsdp_state_dict_destroy(all);
    ASSERT_OK(
        state_case_get(&f, &(fsdp_state_dict_options){.flatten_optimizer_state_dict = true}, &all));
    snprintf(fqn, sizeof fqn, "optim.param_groups.%s.lr", first);
    ASSERT(find(all, fqn) && find(all, fqn)->n_keys == 2);
    ASSERT(!find(all, "optim.param_groups.0.lr"));
    snprintf(fqn, sizeof fqn, "optim.state.%s.exp_avg", first);
    ASSERT(find(all, fqn)->n_keys == 2);
    fsdp_state_dict_destroy(all);
    state_case_close(&f);
}

TEST(a_state_dict_keeps_order_and_replaces)
{
    fsdp_state_dict *d;
    ASSERT_OK(fsdp_state_dict_create(&d));
    for (int round = 0; round < 2; round++)
        for (int64_t i = 0; i < 200; i++) {
            const fsdp_state_key keys[] = {{.name = "list"}, {.index = i}};
            const fsdp_plain value = {.kind = FSDP_PLAIN_INT, .as.integer = i * (round + 1)};
            ASSERT_OK(fsdp_state_dict_put_value(d, keys, 2, &value));
        }
    ASSERT(fsdp_state_dict_count(d) == 200);
    ASSERT(strcmp(fsdp_state_dict_at(d, 17)->fqn, "list.17") == 0);
    ASSERT(find(d, "list.199")->value->as.integer == 398);
    ASSERT(!find(d, "list.200") && !fsdp_state_dict_at(d, 200));
    fsdp_state_dict_destroy(d);
}

/* --- full --- */

/* Only rank 0 gets whole tensors; broadcasting them makes another model the same. */
static void go_through_rank0(fsdp_test *t, state_case_optimizer kind)
{
    state_case a, b;
    fsdp_state_dict *full;
    const fsdp_state_dict_options get = {
        .full_state_dict = true, .cpu_offload = true, .group = t->group};
    const fsdp_state_dict_options set = {.broadcast_from_rank0 = true, .group = t->group};
    ASSERT_OK(state_case_open(&a, t->group, kind, 1));
    ASSERT_OK(state_case_train(&a, 2));
    ASSERT_OK(state_case_get(&a, &get, &full));
    ASSERT((fsdp_state_dict_count(full) > 0) == (t->rank == 0));
    for (size_t i = 0; i < fsdp_state_dict_count(full); i++)
        ASSERT(!fsdp_state_dict_at(full, i)->tensor ||
               !fsdp_is_dtensor(fsdp_state_dict_at(full, i)->tensor));
    ASSERT_OK(state_case_open(&b, t->group, kind, 2));
    ASSERT_OK(state_case_set(&b, full, &set));
    assert_same(t, &a, &b);
    CHECK_HERE();
    ASSERT_OK(state_case_train(&a, 1));
    ASSERT_OK(state_case_train(&b, 1));
    assert_same(t, &a, &b);
    CHECK_HERE();
    fsdp_state_dict_destroy(full);
    state_case_close(&a);
    state_case_close(&b);
}

TEST_RANKS(a_full_state_dict_goes_through_rank_0, 3)
{
    go_through_rank0(t, STATE_CASE_ADAMW);
    CHECK_HERE();
    go_through_rank0(t, STATE_CASE_SGD);
    CHECK_HERE();
    go_through_rank0(t, STATE_CASE_ADAFACTOR);
    CHECK_HERE();
    go_through_rank0(t, STATE_CASE_ADAMW_8BIT);
    CHECK_HERE();
    go_through_rank0(t, STATE_CASE_SCHEDULE_FREE);
}

/* FullStateDictConfig, FullOptimStateDictConfig and ShardedStateDictConfig: rank0_only selects the
 * ranks that get it. */
TEST_RANKS(options_of_fsdp1_say_who_gets_a_state_dict, 2)
{
    state_case x;
    fsdp_state_dict *dict;
    ASSERT_OK(state_case_open(&x, t->group, STATE_CASE_ADAMW, 1));
    for (int i = 0; i < 4; i++) {
        const fsdp_state_dict_options get = {.full_state_dict = i < 2,
                                             .rank0_only = i == 1 || i == 3,
                                             .offload_to_cpu = true,
                                             .group = t->group};
        fsdp_status status = state_case_get(&x, &get, &dict);
        if (i == 3) {
            ASSERT(status == FSDP_ERR_INVALID && strstr(fsdp_last_error(), "rank0_only"));
            ASSERT(fsdp_get_optimizer_state_dict(x.model, x.optimizer, &get, &dict) ==
                   FSDP_ERR_INVALID);
            break;
        }
        ASSERT_OK(status);
        ASSERT((fsdp_state_dict_count(dict) > 0) == (i != 1 || t->rank == 0));
        fsdp_state_dict_destroy(dict);
    }
    state_case_close(&x);
}

static fsdp_status count_whole(const fsdp_state_entry *entry, void *arg)
{
    int64_t *numel = arg;
    *numel += entry->tensor ? fsdp_tensor_numel(entry->tensor) : 0;
    return FSDP_OK;
}

static fsdp_status fail(const fsdp_state_entry *entry, void *arg)
{
    (void)arg;
    return fsdp_error(FSDP_ERR_IO, "no room for %s", entry->fqn);
}

/* Memory for one whole tensor is enough, and a failure on rank 0 is a failure on all ranks. */
TEST_RANKS(streams_hold_one_tensor, 2)
{
    state_case f;
    fsdp_state_dict *model;
    fsdp_memory_stats before, after;
    int64_t numel = 0, want = 0, largest = 0;
    ASSERT_OK(state_case_open(&f, t->group, STATE_CASE_ADAMW, 1));
    ASSERT_OK(fsdp_get_model_state_dict(f.model, NULL, &model));
    for (size_t i = 0; i < fsdp_state_dict_count(model); i++) {
        const fsdp_tensor *x = fsdp_state_dict_at(model, i)->tensor;
        int64_t n = 1;
        for (int d = 0; d < fsdp_tensor_ndim(x); d++)
            n *= fsdp_dtensor_shape(x)[d];
        want += n;
        largest = n > largest ? n : largest;
    }
    fsdp_device_reset_peak_memory(f.device);
    fsdp_device_memory(f.device, &before);
    ASSERT_OK(fsdp_state_dict_stream(model, t->group, count_whole, &numel));
    fsdp_device_memory(f.device, &after);
    ASSERT(numel == (t->rank == 0 ? want : 0));
    ASSERT(after.allocated_peak - before.allocated <= 2 * 4 * largest + 4096);
    ASSERT(fsdp_state_dict_stream(model, t->group, fail, NULL) == FSDP_ERR_IO);
    ASSERT(strstr(fsdp_last_error(), "no room for"));
    fsdp_state_dict_destroy(model);
    state_case_close(&f);
}

/* --- set --- */

TEST_RANKS(what_does_not_fit_is_named_and_changes_nothing, 2)
{
    state_case a, b;
    fsdp_state_dict *model, *wrong;
    fsdp_incompatible_keys keys;
    fsdp_tensor *small;
    const fsdp_state_dict_options strict = {.group = t->group},
                                  lenient = {.group = t->group, .not_strict = true};
    ASSERT_OK(state_case_open(&a, t->group, STATE_CASE_ADAMW, 1));
    ASSERT_OK(state_case_open(&b, t->group, STATE_CASE_ADAMW, 1));
    ASSERT_OK(fsdp_get_model_state_dict(a.model, NULL, &model));
    ASSERT_OK(fsdp_state_dict_create(&wrong));
    for (size_t i = 1; i < fsdp_state_dict_count(model); i++) {
        const fsdp_state_entry *e = fsdp_state_dict_at(model, i);
        ASSERT_OK(fsdp_state_dict_put_tensor(wrong, e->keys, e->n_keys, e->tensor));
    }
    const fsdp_state_key odd = {.name = "odd.weight"};
    ASSERT_OK(
        fsdp_tensor_create(a.device, FSDP_DTYPE_F32, 1, (int64_t[]){1}, FSDP_TAG_DATA, &small));
    ASSERT_OK(fsdp_state_dict_put_tensor(wrong, &odd, 1, small));
    ASSERT(fsdp_set_model_state_dict(b.model, wrong, &strict, &keys) == FSDP_ERR_NOT_FOUND);
    ASSERT(strstr(fsdp_last_error(), a.list.items[0].name));
    ASSERT(strstr(fsdp_last_error(), "odd.weight"));
    ASSERT(keys.n_missing == 1 && keys.n_unexpected == 1);
    ASSERT_STR(keys.missing[0], a.list.items[0].name);
    fsdp_incompatible_keys_free(&keys);
    ASSERT_OK(fsdp_set_model_state_dict(b.model, wrong, &lenient, &keys));
    ASSERT(keys.n_missing == 1 && keys.n_unexpected == 1);
    ASSERT(strcmp(keys.unexpected[0], "odd.weight") == 0);
    fsdp_incompatible_keys_free(&keys);
    const fsdp_state_key first = {.name = a.list.items[0].name};
    ASSERT_OK(fsdp_state_dict_put_tensor(model, &first, 1, small));
    ASSERT(fsdp_set_model_state_dict(b.model, model, &strict, NULL) == FSDP_ERR_INVALID);
    ASSERT(strstr(fsdp_last_error(), a.list.items[0].name));
    ASSERT(strstr(fsdp_last_error(), "[1]"));
    assert_same(t, &a, &b);
    CHECK_HERE();
    fsdp_tensor_release(small);
    fsdp_state_dict_destroy(wrong);
    fsdp_state_dict_destroy(model);
    state_case_close(&a);
    state_case_close(&b);
}

/* Each rank has the values that it needs. The only gathers exchange whether arguments, memory and
 * results are without errors. */
TEST_RANKS(a_sharded_round_trip_gathers_no_values, 2)
{
    static const int none[] = {FSDP_KIND_REDUCE_SCATTER, FSDP_KIND_ALL_REDUCE, FSDP_KIND_BROADCAST};
    state_case f;
    fsdp_state_dict *model;
    const fsdp_state_dict_options options = {.group = t->group};
    ASSERT_OK(state_case_open(&f, t->group, STATE_CASE_ADAMW, 1));
    const fsdp_comm_counters before = fsdp_group_get_counters(t->group);
    ASSERT_OK(fsdp_get_model_state_dict(f.model, NULL, &model));
    const fsdp_comm_counters got = fsdp_group_get_counters(t->group);
    for (int kind = 0; kind < FSDP_KIND_COUNT; kind++)
        ASSERT_INT(got.calls[kind], before.calls[kind]);
    ASSERT_OK(fsdp_set_model_state_dict(f.model, model, &options, NULL));
    const fsdp_comm_counters set = fsdp_group_get_counters(t->group);
    ASSERT_INT(set.calls[FSDP_KIND_ALL_GATHER], got.calls[FSDP_KIND_ALL_GATHER] + 3);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        ASSERT_INT(set.calls[none[i]], got.calls[none[i]]);
    fsdp_state_dict_destroy(model);
    state_case_close(&f);
}

TEST_RANKS(frozen_parameters_and_submodules_are_left_out, 2)
{
    state_case f;
    fsdp_state_dict *some, *whole;
    ASSERT_OK(state_case_open(&f, t->group, STATE_CASE_ADAMW, 1));
    ASSERT_OK(fsdp_get_model_state_dict(f.model, NULL, &whole));
    fsdp_parameter_set_requires_grad(f.list.items[1].parameter, false);
    ASSERT_OK(fsdp_get_model_state_dict(
        f.model, &(fsdp_state_dict_options){.ignore_frozen_params = true}, &some));
    ASSERT(fsdp_state_dict_count(some) == fsdp_state_dict_count(whole) - 1);
    ASSERT(!find(some, f.list.items[1].name));
    fsdp_state_dict_destroy(some);
    ASSERT_OK(fsdp_get_model_state_dict(
        f.model,
        &(fsdp_state_dict_options){.submodule = "blocks.1", .drop_submodule_prefixes = true},
        &some));
    ASSERT(find(some, "norm") && fsdp_state_dict_count(some) < fsdp_state_dict_count(whole) / 2);
    ASSERT(find(some, "norm")->tensor == find(whole, "blocks.1.norm")->tensor);
    fsdp_state_dict_destroy(some);
    ASSERT(fsdp_get_model_state_dict(f.model, &(fsdp_state_dict_options){.submodule = "no.such"},
                                     &some) == FSDP_ERR_NOT_FOUND);
    fsdp_state_dict_destroy(whole);
    state_case_close(&f);
}

/* A model without units takes the tensors themselves. */
TEST(assign_replaces_parameters_outside_of_units)
{
    fsdp_device *device;
    fsdp_module *model;
    fsdp_state_dict *dict;
    fsdp_tensor *fresh;
    fsdp_parameter_list list;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_linear_create(3, 2, false, (fsdp_init){0}, &model));
    ASSERT_OK(fsdp_state_dict_create(&dict));
    ASSERT_OK(
        fsdp_tensor_create(device, FSDP_DTYPE_F32, 2, (int64_t[]){2, 3}, FSDP_TAG_PARAM, &fresh));
    ASSERT_OK(fsdp_state_dict_put_tensor(dict, &(fsdp_state_key){.name = "weight"}, 1, fresh));
    ASSERT(fsdp_set_model_state_dict(model, dict, NULL, NULL) == FSDP_ERR_STATE);
    ASSERT_OK(
        fsdp_set_model_state_dict(model, dict, &(fsdp_state_dict_options){.assign = true}, NULL));
    ASSERT_OK(fsdp_module_parameters(model, false, &list));
    ASSERT(fsdp_parameter_local(list.items[0].parameter) == fresh);
    fsdp_parameter_list_free(&list);
    fsdp_state_dict_destroy(dict);
    fsdp_tensor_release(fresh);
    fsdp_module_destroy(model);
    fsdp_device_destroy(device);
}

static const fsdp_state_dict_options assigning = {.assign = true};

/* A Linear, and a dict with one tensor for it. */
static fsdp_status linear_and_dict(fsdp_device *device, fsdp_dtype dtype, fsdp_module **model,
                                   fsdp_state_dict **dict)
{
    fsdp_tensor *fresh;
    FSDP_TRY(fsdp_linear_create(3, 2, false, (fsdp_init){0}, model));
    FSDP_TRY(fsdp_module_to_empty(*model, device));
    FSDP_TRY(fsdp_state_dict_create(dict));
    FSDP_TRY(fsdp_tensor_create(device, dtype, 2, (int64_t[]){2, 3}, FSDP_TAG_PARAM, &fresh));
    fsdp_status status =
        fsdp_state_dict_put_tensor(*dict, &(fsdp_state_key){.name = "weight"}, 1, fresh);
    fsdp_tensor_release(fresh);
    return status;
}

/* The replaced tensor gets no gradients any more, and outlives the parameter. */
TEST(what_assign_replaces_is_no_parameter_any_more)
{
    fsdp_device *device;
    fsdp_module *model;
    fsdp_state_dict *dict;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(linear_and_dict(device, FSDP_DTYPE_F32, &model, &dict));
    fsdp_tensor *old =
        fsdp_tensor_retain(fsdp_parameter_data(fsdp_module_parameter(model, "weight")));
    for (int again = 0; again < 2; again++) {
        ASSERT_OK(fsdp_set_model_state_dict(model, dict, &assigning, NULL));
        ASSERT(!old->sink);
        ASSERT(find(dict, "weight")->tensor->sink);
    }
    fsdp_module_destroy(model);
    ASSERT(!fsdp_tensor_grad(old));
    fsdp_tensor_release(old);
    fsdp_state_dict_destroy(dict);
    fsdp_device_destroy(device);
}

TEST(assign_refuses_what_does_not_fit_and_changes_nothing)
{
    fsdp_device *device;
    fsdp_module *a, *b, *c;
    fsdp_state_dict *dict, *unused, *narrow;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(linear_and_dict(device, FSDP_DTYPE_F32, &a, &dict));
    ASSERT_OK(linear_and_dict(device, FSDP_DTYPE_F32, &b, &unused));
    ASSERT_OK(linear_and_dict(device, FSDP_DTYPE_BF16, &c, &narrow));
    ASSERT_OK(fsdp_set_model_state_dict(a, dict, &assigning, NULL));
    const fsdp_tensor *before = fsdp_parameter_data(fsdp_module_parameter(b, "weight"));
    ASSERT_ERROR(fsdp_set_model_state_dict(b, dict, &assigning, NULL), FSDP_ERR_INVALID,
                 "'weight': the tensor to assign has a gradient of its own, or is another");
    ASSERT_ERROR(fsdp_set_model_state_dict(b, narrow, &assigning, NULL), FSDP_ERR_INVALID,
                 "'weight': a tensor of bfloat16 cannot be assigned to float32");
    ASSERT(fsdp_parameter_data(fsdp_module_parameter(b, "weight")) == before);
    ASSERT(find(dict, "weight")->tensor->sink == &fsdp_module_parameter(a, "weight")->sink);
    fsdp_module *const modules[] = {a, b, c};
    fsdp_state_dict *const dicts[] = {dict, unused, narrow};
    for (int i = 0; i < 3; i++) {
        fsdp_module_destroy(modules[i]);
        fsdp_state_dict_destroy(dicts[i]);
    }
    fsdp_device_destroy(device);
}

/* --- checkpoints --- */

/* Path of a new checkpoint, the same on all ranks. */
static fsdp_status make_path(fsdp_test *t, const char *name, char path[300])
{
    if (t->rank == 0)
        snprintf(path, 300, "%s/%s", fsdp_test_dir(t), name);
    return t->group ? fsdp_broadcast(t->group, path, 300, 0) : FSDP_OK;
}

/* A checkpoint is saved by `writers` ranks, read by `readers` ranks, and by one rank alone. */
static void save_and_load(fsdp_test *t, fsdp_group *const *groups, state_case_optimizer kind,
                          int writers, int readers)
{
    char path[300] = "", name[64];
    fsdp_group *writing = groups[writers], *reading = groups[readers];
    state_case a, b;
    fsdp_state_dict *dict;
    snprintf(name, sizeof name, "%d_%d_%d", kind, writers, readers);
    ASSERT_OK(make_path(t, name, path));
    ASSERT_OK(state_case_open(&a, writing, kind, 1));
    ASSERT_OK(state_case_train(&a, 2));
    if (t->rank < writers) {
        ASSERT_OK(state_case_get(&a, NULL, &dict));
        ASSERT_OK(fsdp_dcp_save(dict, path, writing, NULL));
        ASSERT(fsdp_dcp_save(dict, path, writing, NULL) == FSDP_ERR_INVALID);
        ASSERT_OK(fsdp_dcp_save(dict, path, writing, &(fsdp_dcp_save_options){.overwrite = true}));
        fsdp_state_dict_destroy(dict);
    }
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_OK(state_case_open(&b, reading, kind, 2));
    ASSERT_OK(state_case_get(&b, NULL, &dict));
    ASSERT_OK(fsdp_dcp_load(dict, path, reading, NULL));
    ASSERT_OK(state_case_set(&b, dict, &(fsdp_state_dict_options){.group = reading}));
    fsdp_state_dict_destroy(dict);
    assert_same(t, &a, &b);
    CHECK_HERE();
    ASSERT_OK(state_case_train(&b, 1));
    ASSERT_OK(state_case_train(&a, 1));
    assert_same(t, &a, &b);
    CHECK_HERE();
    state_case_close(&a);
    state_case_close(&b);
}

TEST_RANKS(checkpoints_go_from_any_number_of_ranks_to_any_other, 4)
{
    fsdp_group *groups[5] = {0}; /* [n]: the first n ranks, and the others */
    for (int n = 1; n <= 4; n++)
        ASSERT_OK(fsdp_group_split(t->group, t->rank < n, t->rank, &groups[n]));
    for (int writers = 1; writers <= 4; writers++)
        for (int readers = 1; readers <= 4; readers++) {
            save_and_load(t, groups, STATE_CASE_ADAMW, writers, readers);
            CHECK_HERE();
        }
    save_and_load(t, groups, STATE_CASE_SGD, 3, 2);
    CHECK_HERE();
    save_and_load(t, groups, STATE_CASE_ADAFACTOR, 2, 3);
    CHECK_HERE();
    save_and_load(t, groups, STATE_CASE_ADAMW_8BIT, 3, 2);
    CHECK_HERE();
    save_and_load(t, groups, STATE_CASE_ADAMW_8BIT, 1, 4);
    CHECK_HERE();
    save_and_load(t, groups, STATE_CASE_ROUNDED, 2, 3);
    CHECK_HERE();
    save_and_load(t, groups, STATE_CASE_SCHEDULE_FREE, 2, 3);
    CHECK_HERE();
    save_and_load(t, groups, STATE_CASE_SCHEDULE_FREE, 4, 1);
    CHECK_HERE();
    for (int n = 1; n <= 4; n++)
        fsdp_destroy_process_group(groups[n]);
}

/* More ranks than most parameters have rows. */
TEST_RANKS(checkpoints_go_to_and_from_8_ranks, 8)
{
    fsdp_group *groups[9] = {[8] = t->group};
    ASSERT_OK(fsdp_group_split(t->group, t->rank < 3, t->rank, &groups[3]));
    save_and_load(t, groups, STATE_CASE_ADAMW, 8, 3);
    CHECK_HERE();
    save_and_load(t, groups, STATE_CASE_SGD, 3, 8);
    CHECK_HERE();
    fsdp_destroy_process_group(groups[3]);
}

/* Values that are in a file between uses are saved and loaded piece by piece. */
TEST_RANKS(offloaded_parameters_and_moments_are_saved_and_loaded, 2)
{
    char path[300] = "", dir[300] = "";
    state_case a, b;
    fsdp_state_dict *dict;
    ASSERT_OK(make_path(t, "offloaded", path));
    ASSERT_OK(make_path(t, "", dir));
    const fsdp_fully_shard_options options = {
        .offload_policy = {.kind = FSDP_OFFLOAD_DIR, .dir = dir}};
    ASSERT_OK(state_case_open_with(&a, t->group, STATE_CASE_ADAMW, 1, &options));
    ASSERT_OK(state_case_train(&a, 2));
    ASSERT_OK(state_case_get(&a, NULL, &dict));
    ASSERT_OK(fsdp_dcp_save(dict, path, t->group, NULL));
    fsdp_state_dict_destroy(dict);
    ASSERT_OK(state_case_open_with(&b, t->group, STATE_CASE_ADAMW, 2, &options));
    ASSERT_OK(state_case_get(&b, NULL, &dict));
    ASSERT_OK(fsdp_dcp_load(dict, path, t->group, NULL));
    ASSERT_OK(state_case_set(&b, dict, &(fsdp_state_dict_options){.group = t->group}));
    fsdp_state_dict_destroy(dict);
    ASSERT_OK(state_case_train(&b, 1));
    ASSERT_OK(state_case_train(&a, 1));
    assert_same(t, &a, &b);
    CHECK_HERE();
    state_case_close(&a);
    state_case_close(&b);
}

/* DTensors of any placement, on meshes of one and two dimensions. */
static void fill(float *values, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)(i * 3 + 1);
}

TEST_RANKS(boxes_of_any_mesh_are_saved_once_and_read_by_any_other, 4)
{
    static const int64_t whole_shape[] = {5, 7, 3};
    static const struct {
        int ndim, mesh[2];
        fsdp_placement placements[2];
    } cases[] = {
        {1, {4}, {{FSDP_SHARD, 0}}},
        {1, {4}, {{FSDP_SHARD, 1}}},
        {1, {4}, {{FSDP_SHARD, 2}}},
        {1, {4}, {{FSDP_REPLICATE, 0}}},
        {2, {2, 2}, {{FSDP_REPLICATE, 0}, {FSDP_SHARD, 0}}},
        {2, {2, 2}, {{FSDP_REPLICATE, 0}, {FSDP_SHARD, 1}}},
        {2, {2, 2}, {{FSDP_SHARD, 0}, {FSDP_SHARD, 1}}},
        {2, {2, 2}, {{FSDP_SHARD, 1}, {FSDP_SHARD, 1}}},
    };
    enum {
        CASES = sizeof cases / sizeof *cases
    };
    const fsdp_state_key key = {.name = "x"};
    fsdp_device_mesh *meshes[CASES];
    fsdp_device *device;
    fsdp_tensor *whole;
    float values[5 * 7 * 3], got[5 * 7 * 3];
    fill(values, 105);
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 3, whole_shape, values, FSDP_TAG_DATA,
                                    &whole));
    for (int i = 0; i < CASES; i++)
        ASSERT_OK(
            fsdp_device_mesh_create(t->group, cases[i].ndim, cases[i].mesh, NULL, &meshes[i]));
    for (int i = 0; i < CASES; i++) {
        char path[300] = "", name[16];
        fsdp_state_dict *dict;
        fsdp_tensor *part;
        snprintf(name, sizeof name, "box_%d", i);
        ASSERT_OK(make_path(t, name, path));
        ASSERT_OK(fsdp_distribute_tensor(whole, meshes[i], cases[i].placements, &part));
        ASSERT_OK(fsdp_state_dict_create(&dict));
        ASSERT_OK(fsdp_state_dict_put_tensor(dict, &key, 1, part));
        ASSERT_OK(fsdp_dcp_save(dict, path, t->group, NULL));
        fsdp_state_dict_destroy(dict);
        fsdp_tensor_release(part);
        for (int k = 0; k < CASES; k++) {
            fsdp_tensor *zero, *full, *wide;
            ASSERT_OK(fsdp_tensor_to(whole, FSDP_DTYPE_F64, FSDP_TAG_DATA, &wide));
            fsdp_device_memset(fsdp_tensor_device(wide), fsdp_tensor_ptr(wide), 0,
                               sizeof(double) * 105);
            fsdp_dtype dtype = k % 2 ? FSDP_DTYPE_F32 : FSDP_DTYPE_BF16;
            ASSERT_OK(fsdp_tensor_to(wide, dtype, FSDP_TAG_DATA, &zero));
            ASSERT_OK(fsdp_distribute_tensor(zero, meshes[k], cases[k].placements, &part));
            ASSERT_OK(fsdp_state_dict_create(&dict));
            ASSERT_OK(fsdp_state_dict_put_tensor(dict, &key, 1, part));
            ASSERT_OK(fsdp_dcp_load(dict, path, t->group, NULL));
            ASSERT_OK(fsdp_full_tensor(part, &full));
            ASSERT_OK(fsdp_tensor_to_floats(full, got));
            for (int64_t e = 0; e < 105; e++)
                ASSERT(fabsf(got[e] - values[e]) <= (k % 2 ? 0.0f : values[e] / 256.0f));
            fsdp_state_dict_destroy(dict);
            fsdp_tensor_release(full);
            fsdp_tensor_release(part);
            fsdp_tensor_release(zero);
            fsdp_tensor_release(wide);
        }
    }
    for (int i = 0; i < CASES; i++)
        fsdp_device_mesh_destroy(meshes[i]);
    fsdp_tensor_release(whole);
    fsdp_device_destroy(device);
}

TEST_RANKS(what_a_checkpoint_lacks_is_named, 2)
{
    char path[300] = "";
    state_case f;
    fsdp_state_dict *model, *all;
    ASSERT_OK(make_path(t, "model_only", path));
    ASSERT_OK(state_case_open(&f, t->group, STATE_CASE_ADAMW, 1));
    ASSERT_OK(fsdp_get_model_state_dict(f.model, NULL, &model));
    ASSERT_OK(fsdp_state_dict_create(&all));
    ASSERT_OK(fsdp_state_dict_add(all, "model", model));
    ASSERT_OK(fsdp_dcp_save(all, path, t->group, NULL));
    fsdp_state_dict_destroy(all);
    ASSERT_OK(state_case_get(&f, NULL, &all));
    ASSERT(fsdp_dcp_load(all, path, t->group, NULL) == FSDP_ERR_NOT_FOUND);
    ASSERT(strstr(fsdp_last_error(), "there is no 'optim.state."));
    ASSERT_OK(
        fsdp_dcp_load(all, path, t->group, &(fsdp_dcp_load_options){.allow_partial_load = true}));
    fsdp_state_dict_destroy(all);
    fsdp_state_dict_destroy(model);
    state_case_close(&f);
}

/* Change a byte in the middle of a large tensor. */
static void flip_byte(fsdp_test *t, const char *dir)
{
    char path[400];
    snprintf(path, sizeof path, "%s/__0_0.distcp", dir);
    FILE *file = fopen(path, "r+b");
    ASSERT(file);
    ASSERT(fseek(file, 30000, SEEK_SET) == 0);
    int byte = fgetc(file);
    ASSERT(fseek(file, 30000, SEEK_SET) == 0 && fputc(byte ^ 1, file) != EOF);
    ASSERT(fclose(file) == 0);
}

TEST(a_flipped_byte_is_refused_by_name)
{
    static float values[100 * 100];
    char path[300] = "";
    fsdp_device *device;
    fsdp_tensor *x;
    fsdp_state_dict *dict;
    fill(values, 10000);
    ASSERT_OK(make_path(t, "flipped", path));
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tensor_from_data(device, FSDP_DTYPE_F32, 2, (int64_t[]){100, 100}, values,
                                    FSDP_TAG_DATA, &x));
    ASSERT_OK(fsdp_state_dict_create(&dict));
    ASSERT_OK(fsdp_state_dict_put_tensor(dict, &(fsdp_state_key){.name = "x.weight"}, 1, x));
    ASSERT_OK(fsdp_dcp_save(dict, path, NULL, NULL));
    ASSERT_OK(fsdp_dcp_load(dict, path, NULL, NULL));
    flip_byte(t, path);
    CHECK_HERE();
    ASSERT(fsdp_dcp_load(dict, path, NULL, NULL) == FSDP_ERR_FORMAT);
    ASSERT(strstr(fsdp_last_error(), "x.weight") && strstr(fsdp_last_error(), "is damaged"));
    fsdp_state_dict_destroy(dict);
    fsdp_tensor_release(x);
    fsdp_device_destroy(device);
}
