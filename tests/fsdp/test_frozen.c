/* Frozen parameters: stored once, in the dtype that they were loaded in, without gradients; frozen
 * and unfrozen between steps, and together with trained ones in one unit. The reference is one rank
 * whose parameters are all stored in float32. */
#include <stdio.h>
#include <string.h>

#include <fsdp/state_dict.h>

#include "src/comm/comm.h"
#include "src/fsdp/state.h"
#include "tests/elements.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    WIDTH = 64,
    BLOCKS = 4,
    NORM = WIDTH,
    MATRIX = WIDTH * WIDTH,
    ALIGNMENT = 3 * 128, /* bytes: three parameters of a block, each to 32 elements */
    LEAVES = 4
};

/* Which parameters of a block are frozen. */
typedef enum frozen_set {
    FROZEN_NONE,
    FROZEN_UP,
    FROZEN_BUT_NORM, /* as with adapters: a small part trains */
    FROZEN_ALL       /* no backward at all */
} frozen_set;

static void freeze(fsdp_module *m, frozen_set set)
{
    const tree *t = tree_of(m);
    if (!t->up)
        return;
    fsdp_parameter_set_requires_grad(t->norm, set != FROZEN_ALL);
    fsdp_parameter_set_requires_grad(t->up, set == FROZEN_NONE);
    fsdp_parameter_set_requires_grad(t->down, set == FROZEN_NONE || set == FROZEN_UP);
}

static void freeze_tree(fsdp_module *m, frozen_set set)
{
    freeze(m, set);
    for (int i = 0; i < fsdp_module_n_children(m); i++)
        freeze_tree(fsdp_module_child(m, i), set);
}

/* Note the dtype as a loader of a bfloat16 file does before memory is allocated. */
static void note_bf16(fsdp_module *m)
{
    fsdp_parameter *const all[] = {tree_of(m)->norm, tree_of(m)->up, tree_of(m)->down};
    for (int i = 0; i < 3; i++) {
        if (!all[i])
            continue;
        all[i]->loaded = true;
        all[i]->loaded_dtype = FSDP_DTYPE_BF16;
    }
    for (int i = 0; i < fsdp_module_n_children(m); i++)
        note_bf16(fsdp_module_child(m, i));
}

/* The values of a bfloat16 file: drawn, and rounded to bfloat16 if stored in float32. */
static fsdp_status init_bf16(fsdp_module *m)
{
    fsdp_parameter_list list;
    FSDP_TRY(fsdp_module_init(m, 5));
    FSDP_TRY(fsdp_module_parameters(m, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++) {
        fsdp_tensor *local = fsdp_parameter_local(list.items[i].parameter), *rounded;
        if (fsdp_device_is_meta(local->storage->device))
            break;
        status = fsdp_tensor_to(local, FSDP_DTYPE_BF16, FSDP_TAG_DATA, &rounded);
        if (status != FSDP_OK)
            break;
        status = fsdp_tensor_begin_write(local);
        const fsdp_device *device = local->storage->device;
        if (status == FSDP_OK) {
            device->kernels->cast(device->context, fsdp_tensor_ptr(local), local->dtype,
                                  fsdp_tensor_ptr(rounded), FSDP_DTYPE_BF16,
                                  fsdp_tensor_numel(local));
            fsdp_tensor_end_write(local);
        }
        fsdp_tensor_release(rounded);
    }
    fsdp_parameter_list_free(&list);
    return status;
}

static fsdp_status open_blocks(fsdp_group *group, const char *device,
                               const fsdp_fully_shard_options *o, frozen_set set, bool loaded,
                               trainee *m)
{
    FSDP_TRY(trainee_open(group, device, o->mp_policy.param_dtype, m));
    FSDP_TRY(tree_add(NULL, "", WIDTH, 0, &m->model));
    for (int i = 0; i < BLOCKS; i++) {
        fsdp_module *block;
        FSDP_TRY(tree_add(m->model, (char[]){(char)('a' + i), 0}, WIDTH, WIDTH, &block));
        freeze(block, set);
        if (loaded)
            note_bf16(block);
        FSDP_TRY(fsdp_fully_shard(block, group, m->device, o));
    }
    FSDP_TRY(fsdp_fully_shard(m->model, group, m->device, o));
    return init_bf16(m->model);
}

static fsdp_memory_stats memory(const trainee *m)
{
    fsdp_memory_stats stats;
    fsdp_device_memory(m->device, &stats);
    return stats;
}

/* --- memory --- */

/* Elements of a block that are frozen, and those that are not. */
static int64_t frozen_numel(frozen_set set)
{
    static const int64_t numel[] = {0, MATRIX, 2 * MATRIX, NORM + 2 * MATRIX};
    return numel[set];
}

static void check_memory(fsdp_test *t, const fsdp_fully_shard_options *o, frozen_set set)
{
    trainee m;
    const int64_t frozen = frozen_numel(set), trained = NORM + 2 * MATRIX - frozen;
    ASSERT_OK(open_blocks(t->group, NULL, o, set, true, &m));
    const int64_t ranks = o->no_shard ? 1 : t->world_size;
    const bool halved = o->mp_policy.param_dtype == FSDP_DTYPE_BF16 && !o->no_shard;
    const int64_t marks = halved ? trained / 8 : 0;
    const int64_t share = BLOCKS * ((trained * 4 + marks) / ranks + frozen * 2 / t->world_size);
    const int64_t params = memory(&m).tag_allocated[FSDP_TAG_PARAM];
    ASSERT(params >= share);
    ASSERT(params <= share + BLOCKS * ALIGNMENT);
    for (int step = 0; step < 2; step++)
        ASSERT_OK(set == FROZEN_ALL ? tree_evaluate(&m, m.model, step)
                                    : tree_step(&m, step, LEAVES));
    const fsdp_memory_stats s = memory(&m);
    /* Sums of the gradients of trained parameters, and two gradient buffers. */
    ASSERT(s.tag_peak[FSDP_TAG_GRAD] <=
           3 * BLOCKS * trained * 4 / ranks + 2 * (trained * 4 + ALIGNMENT + 128));
    ASSERT(set != FROZEN_ALL || s.tag_peak[FSDP_TAG_GRAD] == 0);
    ASSERT_OK(trainee_close(&m));
}

static void check_all_memory(fsdp_test *t)
{
    for (int v = 0; v < TREE_VARIANTS; v++)
        for (int set = FROZEN_NONE; set <= FROZEN_ALL; set++) {
            check_memory(t, &tree_variants[v], (frozen_set)set);
            CHECK_HERE();
        }
}

TEST_RANKS(frozen_parameters_cost_two_bytes_at_1_rank, 1)
{
    check_all_memory(t);
}

TEST_RANKS(frozen_parameters_cost_two_bytes_at_2_ranks, 2)
{
    check_all_memory(t);
}

TEST_RANKS(frozen_parameters_cost_two_bytes_at_4_ranks, 4)
{
    check_all_memory(t);
}

/* NO_SHARD: frozen parameters are whole on every rank, but stored only once, also if operations
 * read another dtype. */
static const fsdp_fully_shard_options no_shard = {.no_shard = true};

TEST_RANKS(without_sharding_frozen_parameters_are_stored_once_per_host, 4)
{
    for (int set = FROZEN_UP; set <= FROZEN_ALL; set++) {
        check_memory(t, &no_shard, (frozen_set)set);
        CHECK_HERE();
    }
}

/* The ranks of this test are threads, so shared memory has the same address on all of them. */
TEST_RANKS(without_sharding_the_frozen_are_one_memory_and_the_first_rank_s, 3)
{
    trainee m;
    ASSERT_OK(open_blocks(t->group, NULL, &no_shard, FROZEN_UP, true, &m));
    const tree *block = tree_of(fsdp_module_child(m.model, 0));
    fsdp_tensor *const locals[] = {fsdp_parameter_local(block->up),
                                   fsdp_parameter_local(block->down)};
    for (int i = 0; i < 2; i++) {
        uintptr_t own = (uintptr_t)fsdp_tensor_ptr(locals[i]), all[3];
        ASSERT_OK(fsdp_all_gather(t->group, &own, sizeof own, all));
        ASSERT((all[0] == all[1] && all[1] == all[2]) == (i == 0));
        ASSERT_INT(fsdp_tensor_numel(locals[i]), MATRIX);
        ASSERT(!fsdp_parameter_group(i ? block->down : block->up));
    }
    ASSERT_OK(
        /* Other values on each rank; those of the first rank are kept. */
        fsdp_tensor_begin_write(locals[0]));
    if (t->rank)
        ASSERT_OK(fsdp_barrier(t->group));
    uint16_t *values = elements_of(locals[0]);
    values[MATRIX - 1] = (uint16_t)(0x3f80 + t->rank);
    elements_changed(locals[0], values);
    if (!t->rank)
        ASSERT_OK(fsdp_barrier(t->group));
    fsdp_tensor_end_write(locals[0]);
    ASSERT_INT(((const uint16_t *)elements_of(locals[0]))[MATRIX - 1], 0x3f80);
    ASSERT_OK(fsdp_barrier(t->group));
    ASSERT_OK(fsdp_unit_unshard(fsdp_module_child(m.model, 0)));
    ASSERT_ERROR(fsdp_tensor_begin_write(locals[0]), FSDP_ERR_STATE, "is unsharded");
    ASSERT_OK(fsdp_unit_reshard(fsdp_module_child(m.model, 0)));
    ASSERT_OK(trainee_close(&m));
}

/* Values of ranks other than the first are not kept, so a kept copy is cast again after a write. */
TEST_RANKS(without_sharding_a_write_of_the_frozen_does_not_go_to_kept_copies, 2)
{
    const fsdp_fully_shard_options o = {.no_shard = true,
                                        .reshard_after_forward = FSDP_RESHARD_FALSE,
                                        .mp_policy = {.param_dtype = FSDP_DTYPE_BF16}};
    trainee m;
    fsdp_dtype dtype;
    ASSERT_OK(open_blocks(t->group, NULL, &o, FROZEN_ALL, false, &m));
    fsdp_module *block = fsdp_module_child(m.model, 0);
    const fsdp_parameter *up = tree_of(block)->up;
    ASSERT_OK(tree_evaluate(&m, m.model, 0));
    ASSERT_OK(fsdp_tensor_begin_write(fsdp_parameter_local(up)));
    ASSERT(!fsdp_parameter_own_rows_of_copy(up, &dtype));
    float *values = elements_of(fsdp_parameter_local(up));
    for (int i = 0; i < MATRIX; i++)
        values[i] = t->rank ? -1.0f : 0.5f;
    elements_changed(fsdp_parameter_local(up), values);
    fsdp_tensor_end_write(fsdp_parameter_local(up));
    ASSERT_OK(fsdp_unit_unshard(block));
    ASSERT_INT(*(const uint16_t *)elements_of(fsdp_parameter_data(up)), 0x3f00);
    ASSERT_OK(fsdp_unit_reshard(block));
    ASSERT_OK(trainee_close(&m));
}

/* This includes parameters that keep their dtype, because their trained values would not survive a
 * narrower one. */
TEST_RANKS(without_sharding_what_is_frozen_later_moves_together_and_back, 2)
{
    trainee m;
    ASSERT_OK(open_blocks(t->group, NULL, &no_shard, FROZEN_NONE, true, &m));
    ASSERT_OK(tree_step(&m, 0, LEAVES));
    const int64_t whole = memory(&m).tag_allocated[FSDP_TAG_PARAM];
    for (int round = 0; round < 2; round++) {
        freeze_tree(m.model, FROZEN_BUT_NORM);
        ASSERT_OK(tree_step(&m, 1, LEAVES));
        ASSERT_INT(
            fsdp_tensor_dtype(fsdp_parameter_local(tree_of(fsdp_module_child(m.model, 0))->up)),
            FSDP_DTYPE_F32);
        ASSERT_INT(memory(&m).tag_allocated[FSDP_TAG_PARAM], whole - BLOCKS * 2 * MATRIX * 4 / 2);
        freeze_tree(m.model, FROZEN_NONE);
        ASSERT_OK(tree_step(&m, 2, LEAVES));
        ASSERT_INT(memory(&m).tag_allocated[FSDP_TAG_PARAM], whole);
    }
    ASSERT_OK(trainee_close(&m));
}

/* As in any other unit, operations can read the data only while it is unsharded. */
TEST_RANKS(without_sharding_frozen_data_is_there_only_while_unsharded, 2)
{
    trainee m;
    const fsdp_fully_shard_options o = {.no_shard = true,
                                        .mp_policy = {.param_dtype = FSDP_DTYPE_BF16}};
    ASSERT_OK(open_blocks(t->group, NULL, &o, FROZEN_UP, true, &m));
    fsdp_module *block = fsdp_module_child(m.model, 0);
    const fsdp_parameter *up = tree_of(block)->up;
    ASSERT_OK(tree_step(&m, 0, LEAVES));
    ASSERT(!fsdp_tensor_has_data(fsdp_parameter_data(up)));
    ASSERT_OK(fsdp_unit_unshard(block));
    ASSERT(fsdp_tensor_ptr(fsdp_parameter_data(up)) ==
           fsdp_tensor_ptr(fsdp_parameter_local(up))); /* read where it is stored */
    ASSERT_OK(fsdp_unit_reshard(block));
    ASSERT(!fsdp_tensor_has_data(fsdp_parameter_data(up)));
    ASSERT_OK(trainee_close(&m));
}

/* With bfloat16 compute, no part of a frozen unit is copied. */
TEST_RANKS(a_frozen_unit_in_the_dtype_of_compute_is_read_in_place, 2)
{
    trainee m;
    ASSERT_OK(open_blocks(t->group, NULL, &tree_variants[1], FROZEN_ALL, true, &m));
    const int64_t params = memory(&m).tag_allocated[FSDP_TAG_PARAM];
    const uint64_t writes = fsdp_group_counters(t->group)->calls[FSDP_KIND_WRITE_SHARD];
    ASSERT_OK(tree_evaluate(&m, m.model, 0));
    ASSERT_OK(tree_evaluate(&m, m.model, 1));
    ASSERT_INT(memory(&m).tag_peak[FSDP_TAG_PARAM], params);
    ASSERT_INT(fsdp_group_counters(t->group)->calls[FSDP_KIND_WRITE_SHARD], writes);
    ASSERT_OK(trainee_close(&m));
}

/* --- traffic --- */

static fsdp_comm_counters since(const fsdp_group *group, const fsdp_comm_counters *before)
{
    fsdp_comm_counters d = *fsdp_group_counters(group);
    for (int k = 0; k < 8; k++) {
        d.calls[k] -= before->calls[k];
        d.logical_bytes[k] -= before->logical_bytes[k];
    }
    return d;
}

TEST_RANKS(only_what_trains_is_reduced, 2)
{
    for (int set = FROZEN_NONE; set <= FROZEN_ALL; set++) {
        trainee m;
        const int64_t numel = NORM + 2 * MATRIX, trained = numel - frozen_numel((frozen_set)set);
        ASSERT_OK(open_blocks(t->group, NULL, &tree_variants[1], (frozen_set)set, true, &m));
        const fsdp_comm_counters before = *fsdp_group_counters(t->group);
        ASSERT_OK(set == FROZEN_ALL
                      ? tree_evaluate(&m, m.model, 0)
                      : tree_forward_backward(&m, m.model, &(tree_call){.micro_batch = t->rank}));
        const fsdp_comm_counters c = since(t->group, &before);
        ASSERT_INT(c.logical_bytes[FSDP_KIND_REDUCE_SCATTER], BLOCKS * trained * 4);
        ASSERT_INT(c.calls[FSDP_KIND_REDUCE_SCATTER], set == FROZEN_ALL ? 0 : BLOCKS);
        /* Forward gathers all units; backward as well, unless there is no backward. */
        ASSERT_INT(c.logical_bytes[FSDP_KIND_ALL_GATHER],
                   (set == FROZEN_ALL ? 1 : 2) * BLOCKS * numel * 2);
        ASSERT_OK(trainee_close(&m));
    }
}

/* Frozen blocks before the first one that trains have no backward. */
TEST_RANKS(frozen_units_at_the_bottom_are_not_gathered_in_backward, 2)
{
    trainee m;
    ASSERT_OK(open_blocks(t->group, NULL, &tree_variants[0], FROZEN_ALL, true, &m));
    freeze(fsdp_module_child(m.model, BLOCKS - 1), FROZEN_NONE);
    /* Applies the pending dtypes: the block's master is created. */
    ASSERT_OK(tree_step(&m, 0, LEAVES));
    const fsdp_comm_counters before = *fsdp_group_counters(t->group);
    ASSERT_OK(tree_forward_backward(&m, m.model, &(tree_call){.micro_batch = t->rank}));
    const fsdp_comm_counters c = since(t->group, &before);
    ASSERT_INT(c.logical_bytes[FSDP_KIND_ALL_GATHER], (BLOCKS + 1) * (NORM + 2 * MATRIX) * 4);
    ASSERT_INT(c.calls[FSDP_KIND_REDUCE_SCATTER], 1);
    ASSERT_OK(trainee_close(&m));
}

/* --- values --- */

static fsdp_status open_tree(fsdp_group *group, const fsdp_fully_shard_options *o, frozen_set set,
                             bool loaded, trainee *m)
{
    FSDP_TRY(trainee_open(group, NULL, o->mp_policy.param_dtype, m));
    FSDP_TRY(tree_example(TREE_EXAMPLE_WIDTH, &m->model));
    freeze_tree(m->model, set);
    if (loaded)
        note_bf16(m->model);
    FSDP_TRY(tree_example_shard(m->model, group, m->device, o));
    return init_bf16(m->model);
}

static fsdp_dtype up_dtype(const trainee *m)
{
    return fsdp_tensor_dtype(fsdp_parameter_local(tree_of(m->model)->up));
}

static void trains_alike(fsdp_test *t, const fsdp_fully_shard_options *o)
{
    for (int set = FROZEN_NONE; set <= FROZEN_BUT_NORM; set++) {
        trainee m, one;
        ASSERT_OK(open_tree(t->group, o, (frozen_set)set, true, &m));
        ASSERT_OK(open_tree(NULL, o, (frozen_set)set, false, &one));
        ASSERT_INT(up_dtype(&m), set == FROZEN_NONE ? FSDP_DTYPE_F32 : FSDP_DTYPE_BF16);
        ASSERT_INT(up_dtype(&one), FSDP_DTYPE_F32);
        for (int step = 0; step < 3; step++) {
            ASSERT_OK(tree_step(&m, step, LEAVES));
            ASSERT_OK(tree_step(&one, step, LEAVES));
            ASSERT_OK(tree_same_params(&m, &one));
        }
        ASSERT_OK(trainee_close(&m));
        ASSERT_OK(trainee_close(&one));
    }
}

TEST_RANKS(frozen_parameters_train_alike_at_1_rank, 1)
{
    for (int v = 0; v < TREE_VARIANTS; v++)
        trains_alike(t, &tree_variants[v]);
}

TEST_RANKS(frozen_parameters_train_alike_at_2_ranks, 2)
{
    for (int v = 0; v < TREE_VARIANTS; v++)
        trains_alike(t, &tree_variants[v]);
    trains_alike(t, &no_shard);
}

TEST_RANKS(frozen_parameters_train_alike_at_4_ranks, 4)
{
    for (int v = 0; v < TREE_VARIANTS; v++)
        trains_alike(t, &tree_variants[v]);
}

/* Freeze, unfreeze and freeze again, each for a step or two. All bits must equal those of the
 * reference. Trained values are never narrowed. */
static void changes_alike(fsdp_test *t, const fsdp_fully_shard_options *o)
{
    static const frozen_set sets[] = {FROZEN_UP,       FROZEN_BUT_NORM, FROZEN_NONE,
                                      FROZEN_BUT_NORM, FROZEN_UP,       FROZEN_NONE};
    trainee m, one;
    ASSERT_OK(open_tree(t->group, o, sets[0], true, &m));
    ASSERT_OK(open_tree(NULL, o, sets[0], false, &one));
    for (int step = 0; step < (int)(sizeof sets / sizeof *sets); step++) {
        freeze_tree(m.model, sets[step]);
        freeze_tree(one.model, sets[step]);
        ASSERT_OK(tree_step(&m, step, LEAVES));
        ASSERT_OK(tree_step(&one, step, LEAVES));
        ASSERT_OK(tree_same_params(&m, &one));
        ASSERT_INT(up_dtype(&m), step < 2 ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32);
    }
    ASSERT_OK(trainee_close(&m));
    ASSERT_OK(trainee_close(&one));
}

TEST_RANKS(freezing_and_unfreezing_between_steps_is_as_on_one_rank, 2)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        changes_alike(t, &tree_variants[v]);
        CHECK_HERE();
    }
    changes_alike(t, &no_shard);
}

TEST_RANKS(freezing_and_unfreezing_at_4_ranks, 4)
{
    changes_alike(t, &tree_variants[0]);
    CHECK_HERE();
    changes_alike(t, &tree_variants[1]);
}

/* --- between steps --- */

/* A parameter that was loaded and never trained is narrowed when it is frozen. If one value on one
 * rank would change, all ranks keep the dtype. */
TEST_RANKS(freezing_narrows_only_what_stays_equal, 3)
{
    trainee m;
    ASSERT_OK(open_blocks(t->group, NULL, &tree_variants[0], FROZEN_NONE, true, &m));
    const int64_t before = memory(&m).tag_allocated[FSDP_TAG_PARAM];
    fsdp_tensor *local = fsdp_parameter_local(tree_of(fsdp_module_child(m.model, 1))->up);
    ASSERT_OK(fsdp_tensor_begin_write(local));
    float *values = elements_of(local);
    if (t->rank == 2)
        values[0] = 1.0f + 1.0f / 1024.0f;
    elements_changed(local, values);
    fsdp_tensor_end_write(local);
    freeze_tree(m.model, FROZEN_UP);
    ASSERT_OK(tree_evaluate(&m, m.model, 0));
    for (int i = 0; i < BLOCKS; i++) {
        const tree *b = tree_of(fsdp_module_child(m.model, i));
        ASSERT_INT(fsdp_tensor_dtype(fsdp_parameter_local(b->up)),
                   i == 1 ? FSDP_DTYPE_F32 : FSDP_DTYPE_BF16);
        ASSERT_INT(fsdp_tensor_dtype(fsdp_parameter_local(b->down)), FSDP_DTYPE_F32);
        ASSERT_INT(fsdp_tensor_dtype(fsdp_parameter_data(b->up)), FSDP_DTYPE_F32);
    }
    const int64_t saved = (BLOCKS - 1) * MATRIX * 2 / 3;
    ASSERT_NEAR(
        (double)(before - memory(&m).tag_allocated[FSDP_TAG_PARAM]), (double)saved,
        (double)(memory(&m).tag_allocated[FSDP_TAG_GRAD] + MATRIX * 4 + BLOCKS * ALIGNMENT));
    ASSERT_OK(trainee_close(&m));
}

/* The old memory is freed. The tensors that a state dict holds are in the new memory, and writing
 * them writes the module's parameters. */
static void dict_follows(fsdp_test *t, const fsdp_fully_shard_options *o)
{
    static const frozen_set sets[] = {FROZEN_BUT_NORM, FROZEN_NONE, FROZEN_UP};
    trainee m;
    fsdp_state_dict *first, *now;
    ASSERT_OK(open_tree(t->group, o, sets[0], true, &m));
    ASSERT_OK(fsdp_get_model_state_dict(m.model, NULL, &first));
    for (int step = 0; step < 3; step++) {
        freeze_tree(m.model, sets[step]);
        ASSERT_OK(tree_step(&m, step, LEAVES));
        ASSERT_OK(fsdp_get_model_state_dict(m.model, NULL, &now));
        for (size_t i = 0; i < fsdp_state_dict_count(now); i++) {
            const fsdp_tensor *tensor = fsdp_state_dict_at(first, i)->tensor;
            ASSERT(tensor == fsdp_state_dict_at(now, i)->tensor);
            ASSERT_OK(fsdp_tensor_begin_read(tensor));
            ASSERT(!fsdp_tensor_numel(tensor) || fsdp_tensor_has_data(tensor));
            fsdp_tensor_end_read(tensor);
        }
        fsdp_state_dict_destroy(now);
    }
    ASSERT_INT(fsdp_tensor_dtype(fsdp_state_dict_find(first, "up")->tensor), FSDP_DTYPE_F32);
    ASSERT_INT(fsdp_tensor_dtype(fsdp_parameter_local(tree_of(m.model)->up)), FSDP_DTYPE_F32);
    fsdp_state_dict_destroy(first);
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(state_dicts_follow_what_is_unfrozen, 2)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        dict_follows(t, &tree_variants[v]);
        CHECK_HERE();
    }
}

/* Only rank 0 has loaded the model. The other ranks must store the parameters in the same dtype as
 * rank 0. */
TEST_RANKS(sync_module_states_of_what_rank_0_loaded, 2)
{
    const fsdp_fully_shard_options o = {.sync_module_states = true,
                                        .mp_policy.param_dtype = FSDP_DTYPE_BF16};
    trainee m;
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_BF16, &m));
    ASSERT_OK(tree_add(NULL, "", WIDTH, WIDTH, &m.model));
    freeze(m.model, FROZEN_ALL);
    if (t->rank == 0) {
        note_bf16(m.model);
        ASSERT_OK(fsdp_module_to_empty(m.model, m.device));
        ASSERT_OK(fsdp_module_init(m.model, 5));
    }
    ASSERT_OK(fsdp_fully_shard(m.model, t->group, m.device, &o));
    ASSERT(fsdp_parameter_local(tree_of(m.model)->up)->dtype == FSDP_DTYPE_BF16);
    ASSERT_OK(tree_evaluate(&m, m.model, 0));
    ASSERT_OK(trainee_close(&m));
}

/* 1 + 2^-10 is not a bfloat16 value. With broadcast, only rank 0 has a state dict. */
static void take_float32(fsdp_test *t, bool broadcast)
{
    trainee m;
    fsdp_state_dict *full;
    fsdp_tensor *w;
    float v[WIDTH], got[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        v[i] = 1.0f + 1.0f / 1024.0f;
    ASSERT_OK(open_blocks(t->group, NULL, &(fsdp_fully_shard_options){0}, FROZEN_ALL, true, &m));
    const fsdp_parameter *norm = tree_of(fsdp_module_child(m.model, 0))->norm;
    fsdp_tensor *local = fsdp_parameter_local(norm);
    ASSERT(local->dtype == FSDP_DTYPE_BF16);
    ASSERT_OK(fsdp_tensor_from_data(m.device, FSDP_DTYPE_F32, 1, fsdp_parameter_shape(norm), v,
                                    FSDP_TAG_DATA, &w));
    ASSERT_OK(fsdp_state_dict_create(&full));
    if (!broadcast || t->rank == 0)
        ASSERT_OK(fsdp_state_dict_put_tensor(full, &(fsdp_state_key){.name = "a.norm"}, 1, w));
    ASSERT_OK(fsdp_set_model_state_dict(
        m.model, full,
        &(fsdp_state_dict_options){
            .not_strict = true, .broadcast_from_rank0 = broadcast, .group = t->group},
        NULL));
    ASSERT(fsdp_parameter_local(norm) == local);
    ASSERT(local->dtype == FSDP_DTYPE_F32);
    ASSERT_OK(fsdp_tensor_to_floats(local, got));
    for (int64_t i = 0; i < fsdp_tensor_numel(local); i++)
        ASSERT_F32(got[i], v[i]);
    ASSERT_OK(tree_evaluate(&m, m.model, 0)); /* the other parameters have kept their values */
    fsdp_tensor_release(w);
    fsdp_state_dict_destroy(full);
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(a_frozen_parameter_takes_float32_values_as_they_are, 2)
{
    take_float32(t, false);
    CHECK_HERE();
    take_float32(t, true);
}

/* A checkpoint of a parameter that trained, loaded where it is frozen. */
TEST_RANKS(a_frozen_parameter_is_stored_as_a_checkpoint_has_it, 2)
{
    const fsdp_fully_shard_options o = {0};
    char path[300] = "";
    trainee trained, frozen;
    fsdp_state_dict *saved, *dict;
    if (t->rank == 0)
        snprintf(path, sizeof path, "%s/checkpoint", fsdp_test_dir(t));
    ASSERT_OK(fsdp_broadcast(t->group, path, sizeof path, 0));
    ASSERT_OK(open_blocks(t->group, NULL, &o, FROZEN_NONE, false, &trained));
    ASSERT_OK(fsdp_module_init(trained.model, 6)); /* not rounded */
    ASSERT_OK(fsdp_get_model_state_dict(trained.model, NULL, &saved));
    ASSERT_OK(fsdp_dcp_save(saved, path, t->group, NULL));
    ASSERT_OK(open_blocks(t->group, NULL, &o, FROZEN_UP, true, &frozen));
    const fsdp_parameter *up = tree_of(fsdp_module_child(frozen.model, 0))->up;
    ASSERT(fsdp_parameter_local(up)->dtype == FSDP_DTYPE_BF16);
    ASSERT_OK(fsdp_get_model_state_dict(frozen.model, NULL, &dict));
    ASSERT_OK(fsdp_dcp_load(dict, path, t->group, NULL));
    ASSERT(fsdp_parameter_local(up)->dtype == FSDP_DTYPE_F32);
    ASSERT_OK(tree_same_params(&trained, &frozen));
    ASSERT_OK(fsdp_barrier(t->group));
    fsdp_state_dict_destroy(saved);
    fsdp_state_dict_destroy(dict);
    ASSERT_OK(trainee_close(&trained));
    ASSERT_OK(trainee_close(&frozen));
}

/* The load would store the parameters in another dtype, in new memory. It is refused before their
 * memory is exchanged. */
TEST_RANKS(a_load_while_parameters_are_summoned_changes_nothing, 2)
{
    const fsdp_fully_shard_options o = {0};
    char path[300] = "";
    trainee trained, frozen, same;
    fsdp_full_params *full;
    fsdp_state_dict *saved, *dict;
    if (t->rank == 0)
        snprintf(path, sizeof path, "%s/checkpoint", fsdp_test_dir(t));
    ASSERT_OK(fsdp_broadcast(t->group, path, sizeof path, 0));
    ASSERT_OK(open_blocks(t->group, NULL, &o, FROZEN_NONE, false, &trained));
    ASSERT_OK(fsdp_get_model_state_dict(trained.model, NULL, &saved));
    ASSERT_OK(fsdp_dcp_save(saved, path, t->group, NULL));
    ASSERT_OK(open_blocks(t->group, NULL, &o, FROZEN_ALL, true, &frozen));
    ASSERT_OK(open_blocks(t->group, NULL, &o, FROZEN_ALL, true, &same));
    ASSERT_OK(fsdp_get_model_state_dict(frozen.model, NULL, &dict));
    ASSERT_OK(fsdp_summon_full_params_begin(
        frozen.model, &(fsdp_summon_full_params_options){.no_writeback = true}, &full));
    ASSERT_ERROR(fsdp_dcp_load(dict, path, t->group, NULL), FSDP_ERR_STATE, "are summoned");
    ASSERT_OK(fsdp_summon_full_params_end(full));
    ASSERT_OK(tree_same_params(&frozen, &same));
    ASSERT_OK(tree_evaluate(&frozen, frozen.model, 0));
    fsdp_state_dict_destroy(saved);
    fsdp_state_dict_destroy(dict);
    ASSERT_OK(trainee_close(&trained));
    ASSERT_OK(trainee_close(&frozen));
    ASSERT_OK(trainee_close(&same));
}

TEST_RANKS(freezing_between_forward_and_backward_is_an_error_that_says_so, 2)
{
    trainee m;
    fsdp_scope *s;
    const tree_call call = {.micro_batch = t->rank};
    ASSERT_OK(trainee_open_example(t->group, &tree_variants[0], &m));
    ASSERT_OK(tree_scope(&m, m.tape, &call, &s));
    fsdp_tensor *y = tree_forward(&m, s, m.model, &call);
    ASSERT_OK(fsdp_scope_status(s));
    fsdp_parameter_set_requires_grad(tree_of(trainee_unit(&m, "first"))->up, false);
    ASSERT_ERROR(tree_backward(&m, &y, &call, 1), FSDP_ERR_STATE,
                 "'up' of unit 'first' was frozen between a forward and its backward");
    fsdp_scope_close(s);
    fsdp_tape_reset(m.tape);
    ASSERT_OK(tree_step(&m, 1, 2));
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(what_is_unsharded_cannot_be_unfrozen, 2)
{
    trainee m;
    ASSERT_OK(open_blocks(t->group, NULL, &tree_variants[1], FROZEN_UP, true, &m));
    fsdp_module *block = fsdp_module_child(m.model, 0);
    ASSERT_OK(tree_evaluate(&m, m.model, 0));
    ASSERT_OK(fsdp_unit_unshard(block));
    freeze(block, FROZEN_NONE);
    ASSERT_ERROR(tree_evaluate(&m, m.model, 1), FSDP_ERR_STATE, "unit 'a' is unsharded");
    ASSERT_OK(fsdp_unit_reshard(block));
    ASSERT_OK(tree_evaluate(&m, m.model, 1));
    ASSERT_INT(fsdp_tensor_dtype(fsdp_parameter_local(tree_of(block)->up)), FSDP_DTYPE_F32);
    ASSERT_OK(trainee_close(&m));
}

/* --- the meta device --- */

static fsdp_status requests(fsdp_group *group, const char *device,
                            const fsdp_fully_shard_options *o, fsdp_memory_stats *stats)
{
    trainee m;
    FSDP_TRY(open_blocks(group, device, o, FROZEN_UP, true, &m));
    FSDP_TRY(tree_step(&m, 0, LEAVES));
    freeze_tree(m.model, FROZEN_BUT_NORM); /* `down` was trained: it stays as it is */
    FSDP_TRY(tree_step(&m, 1, LEAVES));
    freeze_tree(m.model, FROZEN_NONE);
    FSDP_TRY(tree_step(&m, 2, LEAVES));
    *stats = memory(&m);
    return trainee_close(&m);
}

TEST_RANKS(meta_counts_unfrozen_masters_too, 2)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        fsdp_memory_stats cpu, meta;
        ASSERT_OK(requests(t->group, NULL, &tree_variants[v], &cpu));
        ASSERT_OK(requests(t->group, fsdp_test_meta(), &tree_variants[v], &meta));
        ASSERT_INT(meta.tag_allocated[FSDP_TAG_PARAM], cpu.tag_allocated[FSDP_TAG_PARAM]);
        ASSERT_INT(meta.tag_allocated[FSDP_TAG_GRAD], cpu.tag_allocated[FSDP_TAG_GRAD]);
    }
}
