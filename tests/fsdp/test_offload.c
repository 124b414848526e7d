/* Masters and moments in a file: the same bits as in memory, few units in memory at a time, and
 * errors of the disk that name the unit. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <fsdp/dtensor.h>
#include <fsdp/optim.h>
#include <fsdp/state_dict.h>

#include "src/base/alloc.h"
#include "src/comm/comm.h"
#include "src/fsdp/state.h"
#include "tests/elements.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    WIDTH = 64,
    BLOCKS = TREE_MAX_CHILDREN,
    BLOCK_NUMEL = WIDTH + 2 * WIDTH * WIDTH,
    ALIGNMENT = 3 * 128, /* bytes: three parameters of a block, each to 32 elements */
    LEAVES = 4,
    STEPS = 3
};

typedef enum optimizer_kind {
    ADAMW,
    ADAMW_GROUPS, /* matrices with decay, norms without: each group visits all units */
    SGD,
    MOMENTUM,
    ADAFACTOR,
    ADAFACTOR_BETA1,
    N_OPTIMIZERS
} optimizer_kind;

typedef struct run {
    trainee m;
    fsdp_optimizer *optimizer;
} run;

static fsdp_fully_shard_options with_dir(fsdp_test *t, const fsdp_fully_shard_options *o)
{
    fsdp_fully_shard_options options = *o;
    options.offload_policy =
        (fsdp_offload_policy){.kind = FSDP_OFFLOAD_DIR, .dir = fsdp_test_dir(t)};
    return options;
}

static fsdp_status create_adamw_groups(fsdp_module *m, fsdp_optimizer **optimizer)
{
    fsdp_parameter_list decay, rest;
    fsdp_adamw_options options = fsdp_adamw_defaults();
    FSDP_TRY(fsdp_decay_parameters(m, &decay, &rest));
    fsdp_status status = fsdp_adamw_create(NULL, &options, optimizer);
    if (status == FSDP_OK)
        status = fsdp_adamw_add_group(*optimizer, &decay, &options);
    options.weight_decay = 0.0;
    if (status == FSDP_OK)
        status = fsdp_adamw_add_group(*optimizer, &rest, &options);
    fsdp_parameter_list_free(&decay);
    fsdp_parameter_list_free(&rest);
    return status;
}

static fsdp_status create_optimizer(optimizer_kind kind, fsdp_module *m, fsdp_optimizer **optimizer)
{
    const fsdp_sgd_options sgd = {.lr = 0.1, .momentum = kind == MOMENTUM ? 0.9 : 0.0};
    fsdp_adafactor_options adafactor = fsdp_adafactor_defaults();
    if (kind == ADAFACTOR_BETA1)
        adafactor.beta1 = 0.9;
    if (kind == ADAMW)
        return fsdp_adamw_create(m, NULL, optimizer);
    if (kind == ADAMW_GROUPS)
        return create_adamw_groups(m, optimizer);
    if (kind == SGD || kind == MOMENTUM)
        return fsdp_sgd_create(m, &sgd, optimizer);
    return fsdp_adafactor_create(m, &adafactor, optimizer);
}

static fsdp_status run_open(fsdp_group *group, const char *device,
                            const fsdp_fully_shard_options *o, optimizer_kind kind, run *r)
{
    r->optimizer = NULL;
    FSDP_TRY(trainee_open_blocks(group, device, BLOCKS, WIDTH, o, &r->m));
    return create_optimizer(kind, r->m.model, &r->optimizer);
}

static fsdp_status run_close(run *r)
{
    fsdp_optimizer_destroy(r->optimizer);
    return trainee_close(&r->m);
}

static fsdp_status run_step(run *r, int step)
{
    const int world_size = trainee_world_size(&r->m), micro_steps = LEAVES / world_size;
    fsdp_parameter_list list;
    float scale;
    FSDP_TRY(fsdp_set_gradient_divide_factor(r->m.model, LEAVES));
    for (int a = 0; a < micro_steps; a++)
        FSDP_TRY(
            tree_forward_backward(&r->m, r->m.model,
                                  &(tree_call){.step = step,
                                               .micro_batch = a * world_size + trainee_rank(&r->m),
                                               .micro_step = a,
                                               .n_micro_steps = micro_steps}));
    FSDP_TRY(fsdp_module_parameters(r->m.model, false, &list));
    fsdp_status status = fsdp_clip_grad_norm(&list, 1.0, NULL, NULL, &scale);
    fsdp_parameter_list_free(&list);
    FSDP_TRY(status);
    FSDP_TRY(fsdp_optimizer_step(r->optimizer, scale));
    fsdp_optimizer_zero_grad(r->optimizer);
    return FSDP_OK;
}

static fsdp_memory_stats memory(const run *r)
{
    fsdp_memory_stats stats;
    fsdp_device_memory(r->m.device, &stats);
    return stats;
}

/* Simulate a full disk: files may not grow beyond `bytes`. Returns the previous limit. */
static rlim_t limit_files(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
    return before;
}

static fsdp_status set_all(run *r, float value)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_parameters(r->m.model, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++) {
        fsdp_tensor *local = fsdp_parameter_local(list.items[i].parameter);
        status = fsdp_tensor_begin_write(local);
        if (status != FSDP_OK)
            break;
        float *values = elements_of(local);
        for (int64_t k = 0; k < fsdp_tensor_numel(local); k++)
            values[k] = value;
        elements_changed(local, values);
        fsdp_tensor_end_write(local);
    }
    fsdp_parameter_list_free(&list);
    return status;
}

/* --- the same bits --- */

static fsdp_status same_state(const run *a, const run *b)
{
    const fsdp_parameter_list *list = fsdp_optimizer_parameters(a->optimizer),
                              *other = fsdp_optimizer_parameters(b->optimizer);
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list->n; i++)
        for (int k = 0; fsdp_optimizer_state_name(a->optimizer, k) && status == FSDP_OK; k++) {
            const char *name = fsdp_optimizer_state_name(a->optimizer, k);
            fsdp_tensor *x = fsdp_optimizer_state(a->optimizer, list->items[i].parameter, name);
            fsdp_tensor *y = fsdp_optimizer_state(b->optimizer, other->items[i].parameter, name);
            float have[WIDTH * WIDTH], want[WIDTH * WIDTH];
            if (!x && !y)
                continue;
            status = fsdp_tensor_to_floats(x, have);
            if (status == FSDP_OK)
                status = fsdp_tensor_to_floats(y, want);
            if (status == FSDP_OK &&
                memcmp(have, want, (size_t)fsdp_tensor_numel(x) * sizeof *have) != 0)
                status = fsdp_error(FSDP_ERR_STATE, "%s of %s differs", name, list->items[i].name);
        }
    return status;
}

static void trains_alike(fsdp_test *t, const fsdp_fully_shard_options *o, optimizer_kind kind)
{
    const fsdp_fully_shard_options elsewhere = with_dir(t, o);
    run in_file, in_memory;
    ASSERT_OK(run_open(t->group, NULL, &elsewhere, kind, &in_file));
    ASSERT_OK(run_open(t->group, NULL, o, kind, &in_memory));
    ASSERT_OK(tree_same_params(&in_file.m, &in_memory.m));
    for (int step = 0; step < STEPS; step++) {
        ASSERT_OK(run_step(&in_file, step));
        ASSERT_OK(run_step(&in_memory, step));
        ASSERT_OK(tree_same_params(&in_file.m, &in_memory.m));
    }
    ASSERT_OK(same_state(&in_file, &in_memory));
    ASSERT_OK(run_close(&in_file));
    ASSERT_OK(run_close(&in_memory));
}

static void all_train_alike(fsdp_test *t)
{
    const fsdp_fully_shard_options half = {
        .mp_policy = {.param_dtype = FSDP_DTYPE_BF16, .master_dtype = FSDP_DTYPE_BF16}};
    for (int kind = 0; kind < N_OPTIMIZERS; kind++) {
        trains_alike(t, &tree_variants[0], (optimizer_kind)kind);
        CHECK_HERE();
        trains_alike(t, &tree_variants[1], (optimizer_kind)kind);
        CHECK_HERE();
    }
    for (int v = 2; v < TREE_VARIANTS; v++) {
        trains_alike(t, &tree_variants[v], ADAMW);
        CHECK_HERE();
    }
    trains_alike(t, &half, ADAMW);
}

TEST_RANKS(offloaded_steps_are_equal_in_every_bit_at_1_rank, 1)
{
    all_train_alike(t);
}

TEST_RANKS(offloaded_steps_are_equal_in_every_bit_at_2_ranks, 2)
{
    all_train_alike(t);
}

TEST_RANKS(offloaded_steps_are_equal_in_every_bit_at_4_ranks, 4)
{
    trains_alike(t, &tree_variants[0], ADAMW);
    CHECK_HERE();
    trains_alike(t, &tree_variants[1], ADAFACTOR);
}

/* Frozen parameters are in the file too, each in its dtype. Unfreezing creates masters there. */
TEST_RANKS(offloaded_units_are_frozen_and_unfrozen, 2)
{
    for (int v = 0; v < 2; v++) {
        const fsdp_fully_shard_options elsewhere = with_dir(t, &tree_variants[v]);
        run a, b;
        ASSERT_OK(run_open(t->group, NULL, &elsewhere, ADAMW, &a));
        ASSERT_OK(run_open(t->group, NULL, &tree_variants[v], ADAMW, &b));
        for (int step = 0; step < 4; step++) {
            for (int i = 0; i < BLOCKS; i++) {
                fsdp_parameter *up = tree_of(fsdp_module_child(a.m.model, i))->up,
                               *twin = tree_of(fsdp_module_child(b.m.model, i))->up;
                up->loaded = twin->loaded = true;
                up->loaded_dtype = twin->loaded_dtype = FSDP_DTYPE_BF16;
                fsdp_parameter_set_requires_grad(up, step % 2);
                fsdp_parameter_set_requires_grad(twin, step % 2);
            }
            ASSERT_OK(run_step(&a, step));
            ASSERT_OK(run_step(&b, step));
            ASSERT_OK(tree_same_params(&a.m, &b.m));
        }
        ASSERT_OK(run_close(&a));
        ASSERT_OK(run_close(&b));
    }
}

/* --- checkpoints --- */

static fsdp_status state_of(run *r, fsdp_state_dict **dict)
{
    fsdp_state_dict *model = NULL, *optim = NULL;
    FSDP_TRY(fsdp_get_state_dict(r->m.model, r->optimizer, NULL, &model, &optim));
    fsdp_status status = fsdp_state_dict_create(dict);
    if (status == FSDP_OK)
        status = fsdp_state_dict_add(*dict, "model", model);
    if (status == FSDP_OK)
        status = fsdp_state_dict_add(*dict, "optim", optim);
    fsdp_state_dict_destroy(model);
    fsdp_state_dict_destroy(optim);
    return status;
}

static fsdp_status restore(run *r, const char *dir)
{
    fsdp_state_dict *dict = NULL, *model = NULL, *optim = NULL;
    FSDP_TRY(state_of(r, &dict));
    fsdp_status status = fsdp_dcp_load(dict, dir, r->m.group, NULL);
    if (status == FSDP_OK)
        status = fsdp_state_dict_part(dict, "model", &model);
    if (status == FSDP_OK)
        status = fsdp_state_dict_part(dict, "optim", &optim);
    if (status == FSDP_OK)
        status = fsdp_set_state_dict(r->m.model, r->optimizer, model, optim, NULL, NULL);
    fsdp_state_dict_destroy(model);
    fsdp_state_dict_destroy(optim);
    fsdp_state_dict_destroy(dict);
    return status;
}

/* Save from the file and load into memory, and vice versa. Both must train to the same bits. */
TEST_RANKS(checkpoints_go_from_file_to_memory_and_back, 2)
{
    const fsdp_fully_shard_options elsewhere = with_dir(t, &tree_variants[1]);
    for (int back = 0; back < 2; back++) {
        char dir[400];
        run from, to;
        fsdp_state_dict *dict = NULL;
        snprintf(dir, sizeof dir, "%s", fsdp_test_dir(t));
        ASSERT_OK(fsdp_broadcast(t->group, dir, sizeof dir, 0));
        const size_t at = strlen(dir);
        snprintf(dir + at, sizeof dir - at, "/dcp%d", back);
        ASSERT_OK(run_open(t->group, NULL, back ? &tree_variants[1] : &elsewhere, ADAMW, &from));
        ASSERT_OK(run_open(t->group, NULL, back ? &elsewhere : &tree_variants[1], ADAMW, &to));
        ASSERT_OK(run_step(&from, 0));
        ASSERT_OK(run_step(&from, 1));
        ASSERT_OK(state_of(&from, &dict));
        ASSERT_OK(fsdp_dcp_save(dict, dir, t->group, NULL));
        fsdp_state_dict_destroy(dict);
        ASSERT_OK(restore(&to, dir));
        for (int step = 2; step < 4; step++) {
            ASSERT_OK(tree_same_params(&from.m, &to.m));
            ASSERT_OK(same_state(&from, &to));
            ASSERT_OK(run_step(&from, step));
            ASSERT_OK(run_step(&to, step));
        }
        ASSERT_OK(tree_same_params(&from.m, &to.m));
        ASSERT_OK(run_close(&from));
        ASSERT_OK(run_close(&to));
    }
}

/* Parameters that are stored again reuse the space in the file, so it does not grow with each
 * change. */
TEST(the_file_does_not_grow_with_freezing_and_unfreezing)
{
    const fsdp_fully_shard_options o = with_dir(t, &tree_variants[0]);
    run r;
    ASSERT_OK(run_open(NULL, NULL, &o, SGD, &r));
    for (int i = 0; i < BLOCKS; i++) {
        fsdp_parameter *up = tree_of(fsdp_module_child(r.m.model, i))->up;
        up->loaded = true;
        up->loaded_dtype = FSDP_DTYPE_BF16;
    }
    ASSERT_OK(set_all(&r, 0.25f)); /* a bfloat16 value */
    const rlim_t before = limit_files(2 * BLOCKS * BLOCK_NUMEL * 4);
    fsdp_status status = FSDP_OK;
    for (int round = 0; round < 20 && status == FSDP_OK; round++) {
        for (int i = 0; i < BLOCKS; i++)
            fsdp_parameter_set_requires_grad(tree_of(fsdp_module_child(r.m.model, i))->up,
                                             round % 2);
        status = tree_evaluate(&r.m, r.m.model, round);
        const fsdp_tensor *up = fsdp_parameter_local(tree_of(fsdp_module_child(r.m.model, 0))->up);
        if (status == FSDP_OK && up->dtype != (round % 2 ? FSDP_DTYPE_F32 : FSDP_DTYPE_BF16))
            status = fsdp_error(FSDP_ERR_STATE, "round %d: it was not stored again", round);
    }
    limit_files(before);
    ASSERT_OK(status);
    ASSERT_OK(run_close(&r));
}

/* The space of freed state is reused by new state, which begins with zeros. */
static fsdp_status state_of_blocks(const run *r, float value)
{
    fsdp_tensor *states[BLOCKS] = {0};
    fsdp_status status = FSDP_OK;
    for (int i = 0; i < BLOCKS && status == FSDP_OK; i++) {
        const fsdp_tensor *up = fsdp_parameter_local(tree_of(fsdp_module_child(r->m.model, i))->up);
        status = fsdp_tensor_zeros_placed_like(up, FSDP_DTYPE_F32, up->ndim, up->shape,
                                               FSDP_TAG_OPTIM, &states[i]);
        if (status == FSDP_OK)
            status = fsdp_tensor_begin_write(states[i]);
        if (status != FSDP_OK)
            break;
        float *at = elements_of(states[i]);
        for (int64_t k = 0; k < fsdp_tensor_numel(states[i]); k++) {
            if (at[k] != 0.0f)
                status = fsdp_error(FSDP_ERR_STATE, "new state is %g", (double)at[k]);
            at[k] = value;
        }
        elements_changed(states[i], at);
        fsdp_tensor_end_write(states[i]);
    }
    for (int i = 0; i < BLOCKS; i++)
        fsdp_tensor_release(states[i]);
    return status;
}

TEST(the_file_does_not_grow_with_state_that_comes_and_goes)
{
    const fsdp_fully_shard_options o = with_dir(t, &tree_variants[0]);
    run r;
    ASSERT_OK(run_open(NULL, NULL, &o, SGD, &r));
    const rlim_t before = limit_files(2 * BLOCKS * BLOCK_NUMEL * 4);
    fsdp_status status = FSDP_OK;
    for (int round = 0; round < 20 && status == FSDP_OK; round++)
        status = state_of_blocks(&r, 1.0f + (float)round);
    limit_files(before);
    ASSERT_OK(status);
    ASSERT_OK(run_close(&r));
}

/* If one rank has no memory for staging in, all ranks fail, and the group remains usable. */
TEST_RANKS(state_dicts_are_set_and_gathered_on_all_ranks_or_on_none, 2)
{
    const fsdp_fully_shard_options o = with_dir(t, &tree_variants[0]);
    const fsdp_state_dict_options full = {.full_state_dict = true, .group = t->group};
    const fsdp_state_dict_options here = {.group = t->group};
    const fsdp_state_dict_options from_0 = {.group = t->group, .broadcast_from_rank0 = true};
    fsdp_state_dict *dict, *again;
    run r;
    ASSERT_OK(run_open(t->group, NULL, &o, SGD, &r));
    ASSERT_OK(fsdp_get_model_state_dict(r.m.model, &full, &dict));
    fsdp_allocator_set_limit(r.m.device->allocator, t->rank == 1);
    ASSERT(fsdp_set_model_state_dict(r.m.model, dict, &here, NULL) == FSDP_ERR_NOMEM);
    ASSERT(fsdp_set_model_state_dict(r.m.model, dict, &from_0, NULL) == FSDP_ERR_NOMEM);
    ASSERT(fsdp_get_model_state_dict(r.m.model, &full, &again) == FSDP_ERR_NOMEM);
    fsdp_allocator_set_limit(r.m.device->allocator, 0);
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_OK(fsdp_set_model_state_dict(r.m.model, dict, &here, NULL));
    ASSERT_OK(run_step(&r, 0));
    fsdp_state_dict_destroy(dict);
    ASSERT_OK(run_close(&r));
}

/* --- memory --- */

/* At most the masters and moments of three units, and the copies of two, are in memory. */
static void stays_small(fsdp_test *t, const fsdp_fully_shard_options *o, optimizer_kind kind)
{
    const fsdp_fully_shard_options elsewhere = with_dir(t, o);
    const int64_t ranks = o->no_shard ? 1 : t->world_size;
    const int64_t master = BLOCK_NUMEL * 4 / ranks + ALIGNMENT, copy = BLOCK_NUMEL * 4 + ALIGNMENT;
    run r;
    ASSERT_OK(run_open(t->group, NULL, &elsewhere, kind, &r));
    ASSERT(memory(&r).tag_peak[FSDP_TAG_PARAM] <= 3 * master);
    for (int step = 0; step < STEPS; step++)
        ASSERT_OK(run_step(&r, step));
    fsdp_memory_stats s = memory(&r);
    ASSERT(s.tag_peak[FSDP_TAG_PARAM] <= 3 * master + 2 * copy);
    ASSERT(s.tag_peak[FSDP_TAG_OPTIM] <= 3 * 2 * master + (1 << 18) * 4);
    float *values;
    size_t n;
    ASSERT_OK(tree_params(r.m.model, &values, &n)); /* reads them as saving does */
    fsdp_free(values);
    ASSERT(memory(&r).tag_peak[FSDP_TAG_PARAM] <= 3 * master + 2 * copy);
    ASSERT_OK(run_close(&r));
}

TEST_RANKS(few_units_are_in_memory_at_1_rank, 1)
{
    for (int v = 0; v < 2; v++) {
        stays_small(t, &tree_variants[v], ADAMW);
        CHECK_HERE();
        stays_small(t, &tree_variants[v], ADAMW_GROUPS);
        CHECK_HERE();
    }
}

TEST_RANKS(few_units_are_in_memory_at_2_ranks, 2)
{
    for (int v = 0; v < 2; v++) {
        stays_small(t, &tree_variants[v], ADAMW);
        CHECK_HERE();
    }
    stays_small(t, &tree_variants[0], ADAFACTOR_BETA1);
}

/* A step of a model whose masters and moments would exceed the limit of memory. */
TEST(a_limit_that_fails_without_offload_is_kept_with_it)
{
    const int64_t limit = 26 * BLOCK_NUMEL *
                          4; /* in memory: 8 masters, 8 gradients, 16 moments, 2 gradient buffers */
    for (int offload = 0; offload < 2; offload++) {
        const fsdp_fully_shard_options o =
            offload ? with_dir(t, &tree_variants[0]) : tree_variants[0];
        run r;
        ASSERT_OK(run_open(NULL, NULL, &o, ADAMW, &r));
        fsdp_allocator_set_limit(r.m.device->allocator, limit);
        fsdp_status status = run_step(&r, 0);
        if (offload)
            ASSERT_OK(status);
        else
            ASSERT_ERROR(status, FSDP_ERR_NOMEM, "exceed the limit");
        ASSERT(memory(&r).allocated_peak <= limit);
        fsdp_optimizer_zero_grad(r.optimizer);
        ASSERT_OK(run_close(&r));
    }
}

static fsdp_status requests(fsdp_group *group, const char *device,
                            const fsdp_fully_shard_options *o, fsdp_memory_stats *stats)
{
    run r;
    FSDP_TRY(run_open(group, device, o, ADAMW, &r));
    FSDP_TRY(run_step(&r, 0));
    FSDP_TRY(run_step(&r, 1));
    *stats = memory(&r);
    return run_close(&r);
}

TEST_RANKS(meta_counts_offloaded_units_alike, 2)
{
    for (int v = 0; v < 2; v++) {
        const fsdp_fully_shard_options o = with_dir(t, &tree_variants[v]);
        fsdp_memory_stats cpu, meta;
        ASSERT_OK(requests(t->group, NULL, &o, &cpu));
        ASSERT_OK(requests(t->group, fsdp_test_meta(), &o, &meta));
        ASSERT_INT(meta.tag_peak[FSDP_TAG_PARAM], cpu.tag_peak[FSDP_TAG_PARAM]);
        ASSERT_INT(meta.tag_peak[FSDP_TAG_OPTIM], cpu.tag_peak[FSDP_TAG_OPTIM]);
        ASSERT_INT(meta.tag_peak[FSDP_TAG_GRAD], cpu.tag_peak[FSDP_TAG_GRAD]);
    }
}

/* --- the disk --- */

static int count_files(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

/* Because the file has no name, it is not left behind, whenever the process ends. */
TEST(the_file_has_no_name)
{
    const fsdp_fully_shard_options o = with_dir(t, &tree_variants[0]);
    run r;
    ASSERT_OK(run_open(NULL, NULL, &o, ADAMW, &r));
    ASSERT_OK(run_step(&r, 0));
    ASSERT_INT(count_files(o.offload_policy.dir), 0);
    ASSERT_OK(run_close(&r));
    ASSERT_INT(count_files(o.offload_policy.dir), 0);
}

TEST(a_full_disk_is_reported_before_training)
{
    const fsdp_fully_shard_options o = with_dir(t, &tree_variants[0]);
    run r;
    char text[64];
    const rlim_t before = limit_files(3 * BLOCK_NUMEL * 4);
    fsdp_status status = run_open(NULL, NULL, &o, ADAMW, &r);
    limit_files(before);
    ASSERT_ERROR(status, FSDP_ERR_IO, o.offload_policy.dir);
    snprintf(text, sizeof text, "no room for an offload file of");
    ASSERT(strstr(fsdp_last_error(), text));
    ASSERT_OK(run_close(&r));
    ASSERT_INT(count_files(o.offload_policy.dir), 0);
}

/* A failed write is reported, with the name of the unit, at the next use of its memory. The values
 * are not lost. */
TEST(a_failed_write_is_reported_at_the_next_use)
{
    const fsdp_fully_shard_options o = with_dir(t, &tree_variants[0]);
    run r;
    ASSERT_OK(run_open(NULL, NULL, &o, SGD, &r));
    ASSERT_OK(run_step(&r, 0));
    const rlim_t before = limit_files(5 * BLOCK_NUMEL * 4);
    fsdp_status status = run_step(&r, 1);
    limit_files(before);
    ASSERT_ERROR(status, FSDP_ERR_IO, "writing out of its parameters");
    ASSERT(strstr(fsdp_last_error(), o.offload_policy.dir));
    fsdp_optimizer_zero_grad(r.optimizer);
    ASSERT_OK(run_close(&r));
}

/* --- the calls --- */

TEST(what_is_offloaded_has_data_between_begin_and_end)
{
    const fsdp_fully_shard_options o = with_dir(t, &tree_variants[0]);
    run r;
    ASSERT_OK(run_open(NULL, NULL, &o, ADAMW, &r));
    fsdp_tensor *local = fsdp_parameter_local(tree_of(fsdp_module_child(r.m.model, 0))->up);
    ASSERT(!fsdp_tensor_data(local));
    ASSERT(strstr(fsdp_last_error(), "fsdp_tensor_begin_read() first"));
    ASSERT_OK(fsdp_tensor_begin_read(local));
    const float first = *(const float *)elements_of(local);
    fsdp_tensor_end_read(local);
    ASSERT_OK(fsdp_tensor_begin_write(local));
    float *values = elements_of(local);
    *values = first + 1.0f;
    elements_changed(local, values);
    fsdp_tensor_end_write(local);
    for (int i = 1; i < BLOCKS; i++) {
        fsdp_tensor *other = fsdp_parameter_local(tree_of(fsdp_module_child(r.m.model, i))->up);
        ASSERT_OK(fsdp_tensor_begin_read(other));
        fsdp_tensor_end_read(other);
    }
    ASSERT(!fsdp_tensor_has_data(local));
    ASSERT_OK(fsdp_tensor_begin_read(local));
    ASSERT_F32(*(const float *)elements_of(local), first + 1.0f);
    fsdp_tensor_end_read(local);
    ASSERT_OK(run_close(&r));
}

TEST(policies_that_do_not_fit_are_refused)
{
    const fsdp_fully_shard_options nowhere = {.offload_policy = {.kind = FSDP_OFFLOAD_DIR}},
                                   odd = {.offload_policy = {.kind = (fsdp_offload_kind)7}},
                                   cpu = {.offload_policy = {.kind = FSDP_OFFLOAD_CPU}};
    const char *const wrong[] = {"no folder is given", "offload_policy 7"};
    const fsdp_fully_shard_options *const options[] = {&nowhere, &odd};
    for (int i = 0; i < 2; i++) {
        trainee m;
        ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
        ASSERT_OK(tree_example(TREE_EXAMPLE_WIDTH, &m.model));
        ASSERT_ERROR(fsdp_fully_shard(m.model, NULL, m.device, options[i]), FSDP_ERR_INVALID,
                     wrong[i]);
        ASSERT_OK(trainee_close(&m));
    }
    trains_alike(t, &cpu, SGD); /* FSDP_OFFLOAD_CPU changes nothing */
}
