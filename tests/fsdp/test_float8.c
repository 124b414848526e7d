/* Weights that are gathered in float8: the same bits on any number of ranks, one byte an element,
 * scales that are computed by one reduction, and scales that follow the weights. */
#include <math.h>

#include <fsdp/float8.h>

#include "src/base/float8.h"
#include "src/comm/comm.h"
#include "src/fsdp/state.h"
#include "src/nn/float8_weight.h"
#include "tests/elements.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    UNITS = 4,
    WEIGHTS = 8 /* two matrices in each of the example's units */
};

/* Open the example with float8 weights: all matrices, or those with an even number in the list of
 * parameters. */
static fsdp_status open_float8(fsdp_group *group, const char *device,
                               const fsdp_fully_shard_options *options, bool gathers, int every,
                               trainee *m)
{
    fsdp_parameter_list list;
    FSDP_TRY(trainee_open(group, device, options->mp_policy.param_dtype, m));
    FSDP_TRY(tree_example(TREE_EXAMPLE_WIDTH, &m->model));
    FSDP_TRY(fsdp_module_parameters(m->model, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++)
        if (fsdp_parameter_ndim(list.items[i].parameter) == 2 && (int)i % every == 0)
            status =
                fsdp_parameter_set_float8(list.items[i].parameter, FSDP_FLOAT8_TENSORWISE, gathers);
    fsdp_parameter_list_free(&list);
    return status == FSDP_OK ? tree_example_shard(m->model, group, m->device, options) : status;
}

/* Run a step. If `precomputes` is true, also compute the scales after it. The bits must be the same
 * in both cases. */
static fsdp_status step(trainee *m, int number, int leaves, bool precomputes)
{
    FSDP_TRY(tree_step(m, number, leaves));
    return precomputes ? fsdp_precompute_float8_dynamic_scale_for_fsdp(m->model) : FSDP_OK;
}

static void check_steps(fsdp_test *t, const fsdp_fully_shard_options *options, bool gathers,
                        int every, int leaves)
{
    trainee many, one, plain;
    ASSERT_OK(open_float8(t->group, NULL, options, gathers, every, &many));
    ASSERT_OK(open_float8(NULL, NULL, options, gathers, every, &one));
    ASSERT_OK(trainee_open_example(NULL, options, &plain));
    for (int number = 0; number < 4; number++) {
        ASSERT_OK(step(&many, number, leaves, true));
        ASSERT_OK(step(&one, number, leaves, false));
        ASSERT_OK(tree_step(&plain, number, leaves));
        ASSERT_OK(tree_same_params(&many, &one));
    }
    ASSERT(tree_same_params(&one, &plain) != FSDP_OK); /* products are float8 */
    ASSERT_OK(trainee_close(&many));
    ASSERT_OK(trainee_close(&one));
    ASSERT_OK(trainee_close(&plain));
}

TEST_RANKS(float8_weights_train_on_two_ranks_as_on_one, 2)
{
    for (int v = 0; v < TREE_VARIANTS; v++)
        for (int gathers = 0; gathers < 2; gathers++) {
            check_steps(t, &tree_variants[v], gathers, 1, 4);
            CHECK_HERE();
            check_steps(t, &tree_variants[v], gathers, 2, 4); /* beside ordinary parameters */
            CHECK_HERE();
        }
}

TEST_RANKS(float8_weights_train_on_three_ranks_as_on_one, 3)
{
    check_steps(t, &tree_variants[0], true, 1, 3);
    CHECK_HERE();
    check_steps(t, &tree_variants[4], true, 1, 3);
}

TEST_RANKS(float8_weights_train_on_four_ranks_as_on_one, 4)
{
    check_steps(t, &tree_variants[0], true, 1, 4);
    CHECK_HERE();
    check_steps(t, &tree_variants[3], true, 1, 8);
}

/* 16 ranks would be more than the rows of a matrix; with 9 ranks some have no rows. */
TEST_RANKS(ranks_without_rows_take_part, 9)
{
    trainee m;
    const fsdp_fully_shard_options options = {0};
    ASSERT_OK(open_float8(t->group, NULL, &options, true, 1, &m));
    for (int number = 0; number < 2; number++)
        ASSERT_OK(step(&m, number, 9, number == 0));
    const fsdp_tensor *scale = tree_of(trainee_unit(&m, "first"))->up->float8->scale;
    ASSERT(isfinite(*(const float *)elements_of(scale)));
    ASSERT_OK(trainee_close(&m));
}

/* Replicas hold the same rows, so the scales of a replica are those of all. */
TEST_RANKS(replicas_train_as_one_rank, 4)
{
    fsdp_device_mesh *mesh;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2},
                                      (const char *const[]){"replicate", "shard"}, &mesh));
    const fsdp_fully_shard_options hybrid = {.mesh = mesh};
    trainee many, one;
    ASSERT_OK(open_float8(t->group, NULL, &hybrid, true, 1, &many));
    ASSERT_OK(open_float8(NULL, NULL, &(fsdp_fully_shard_options){0}, true, 1, &one));
    for (int number = 0; number < 3; number++) {
        ASSERT_OK(step(&many, number, 4, true));
        ASSERT_OK(step(&one, number, 4, true));
        ASSERT_OK(tree_same_params(&many, &one));
    }
    ASSERT_OK(trainee_close(&many));
    ASSERT_OK(trainee_close(&one));
    fsdp_device_mesh_destroy(mesh);
}

static int last_dim(const char *name, const fsdp_parameter *parameter, void *arg)
{
    (void)name, (void)arg;
    return fsdp_parameter_ndim(parameter) == 2 ? 1 : 0;
}

TEST_RANKS(columns_may_be_sharded, 2)
{
    trainee many, one;
    const fsdp_fully_shard_options options = {.shard_placement_fn = last_dim};
    ASSERT_OK(open_float8(t->group, NULL, &options, true, 1, &many));
    ASSERT_OK(open_float8(NULL, NULL, &(fsdp_fully_shard_options){0}, true, 1, &one));
    for (int number = 0; number < 3; number++) {
        ASSERT_OK(step(&many, number, 2, true));
        ASSERT_OK(step(&one, number, 2, true));
        ASSERT_OK(tree_same_params(&many, &one));
    }
    ASSERT_OK(trainee_close(&many));
    ASSERT_OK(trainee_close(&one));
}

TEST_RANKS(staged_weights_give_the_same_bits, 2)
{
    trainee many, one;
    const char *dir = fsdp_test_dir(t);
    const fsdp_fully_shard_options options = {.offload_policy = {FSDP_OFFLOAD_DIR, dir}};
    ASSERT_OK(open_float8(t->group, NULL, &options, true, 1, &many));
    ASSERT_OK(open_float8(NULL, NULL, &(fsdp_fully_shard_options){0}, true, 1, &one));
    for (int number = 0; number < 3; number++) {
        ASSERT_OK(step(&many, number, 2, number > 0));
        ASSERT_OK(step(&one, number, 2, true));
        ASSERT_OK(tree_same_params(&many, &one));
    }
    ASSERT_OK(trainee_close(&many));
    ASSERT_OK(trainee_close(&one));
}

/* --- traffic --- */

TEST_RANKS(one_byte_an_element_travels, 3)
{
    trainee m;
    const fsdp_fully_shard_options options = {.mp_policy = {.param_dtype = FSDP_DTYPE_BF16}};
    ASSERT_OK(open_float8(t->group, NULL, &options, true, 1, &m));
    fsdp_module *inner = trainee_unit(&m, "second.inner");
    const tree *unit = tree_of(inner);
    const fsdp_comm_counters before = *fsdp_group_counters(t->group);
    ASSERT_OK(fsdp_unit_unshard(inner));
    const fsdp_comm_counters *after = fsdp_group_counters(t->group);
    const uint64_t matrices =
        (uint64_t)(fsdp_parameter_numel(unit->up) + fsdp_parameter_numel(unit->down));
    ASSERT_INT(after->logical_bytes[FSDP_KIND_ALL_GATHER] -
                   before.logical_bytes[FSDP_KIND_ALL_GATHER],
               matrices + 2 * (uint64_t)fsdp_parameter_numel(unit->norm));
    ASSERT_INT(fsdp_tensor_dtype(fsdp_parameter_data(unit->up)), FSDP_DTYPE_U8);
    ASSERT_OK(fsdp_unit_reshard(inner));
    ASSERT(!fsdp_tensor_has_data(fsdp_parameter_data(unit->up)));
    ASSERT_OK(trainee_close(&m));
}

/* One reduction of all scales after the optimizer's step; without it, one for each unit. Scales
 * that are up to date are not computed again. */
TEST_RANKS(scales_are_computed_by_one_reduction, 2)
{
    trainee m;
    const fsdp_fully_shard_options options = {0};
    ASSERT_OK(open_float8(t->group, NULL, &options, true, 1, &m));
    ASSERT_OK(step(&m, 0, 2, false));
    fsdp_comm_counters before = *fsdp_group_counters(t->group);
    const fsdp_comm_counters *now = fsdp_group_counters(t->group);
    ASSERT_OK(tree_evaluate(&m, m.model, 0));
    ASSERT_INT(now->calls[FSDP_KIND_ALL_REDUCE] - before.calls[FSDP_KIND_ALL_REDUCE], UNITS);
    ASSERT_OK(step(&m, 1, 2, false));
    before = *now;
    ASSERT_OK(fsdp_precompute_float8_dynamic_scale_for_fsdp(m.model));
    ASSERT_INT(now->calls[FSDP_KIND_ALL_REDUCE] - before.calls[FSDP_KIND_ALL_REDUCE], 1);
    ASSERT_INT(now->logical_bytes[FSDP_KIND_ALL_REDUCE] -
                   before.logical_bytes[FSDP_KIND_ALL_REDUCE],
               WEIGHTS * sizeof(float));
    ASSERT_OK(fsdp_precompute_float8_dynamic_scale_for_fsdp(m.model));
    ASSERT_OK(tree_evaluate(&m, m.model, 0));
    ASSERT_OK(tree_evaluate(&m, m.model, 1));
    ASSERT_INT(now->calls[FSDP_KIND_ALL_REDUCE] - before.calls[FSDP_KIND_ALL_REDUCE], 1);
    ASSERT_OK(trainee_close(&m));
}

/* --- codes --- */

/* Each rank reads the codes of all rows: those of the whole weight, cast by one rank. A write of
 * the rows changes the scale. */
TEST_RANKS(codes_and_scale_are_those_of_the_whole_weight, 2)
{
    trainee m;
    const fsdp_fully_shard_options options = {0};
    ASSERT_OK(open_float8(t->group, NULL, &options, true, 1, &m));
    fsdp_module *first = trainee_unit(&m, "first");
    fsdp_parameter *up = tree_of(first)->up;
    const int64_t n = fsdp_parameter_numel(up);
    for (int times = 0; times < 3; times++) {
        float *whole, most = 0.0f;
        fsdp_tensor *full;
        fsdp_tensor *local = fsdp_parameter_local(up);
        ASSERT_OK(fsdp_tensor_begin_write(local));
        float *rows = elements_of(local);
        for (int64_t i = 0; i < fsdp_tensor_numel(local); i++)
            rows[i] = times == 2 ? 0.0f : rows[i] * (t->rank ? 3.0f : 1.0f);
        elements_changed(local, rows);
        fsdp_tensor_end_write(local);
        if (times == 1)
            ASSERT_OK(fsdp_precompute_float8_dynamic_scale_for_fsdp(m.model));
        ASSERT_OK(fsdp_full_tensor(local, &full));
        whole = elements_of(full);
        for (int64_t i = 0; i < n; i++)
            most = fmaxf(most, fabsf(whole[i]));
        ASSERT_OK(fsdp_unit_unshard(first));
        const float scale = *(const float *)elements_of(up->float8->scale);
        const uint8_t *codes = elements_of(fsdp_parameter_data(up));
        ASSERT_F32(scale, fsdp_float8_scale(FSDP_FLOAT8_E4M3FN, most, false));
        for (int64_t i = 0; i < n; i++)
            ASSERT_INT(codes[i], fsdp_float8_saturated(FSDP_FLOAT8_E4M3FN, whole[i] * scale));
        ASSERT_OK(fsdp_unit_reshard(first));
        fsdp_tensor_release(full);
    }
    ASSERT_OK(trainee_close(&m));
}

/* --- memory --- */

/* A plan is a run on meta. */
TEST(meta_counts_the_memory_of_a_real_step)
{
    for (int v = 0; v < 2; v++) {
        int64_t peaks[2];
        for (int meta = 0; meta < 2; meta++) {
            trainee m;
            fsdp_memory_stats stats;
            ASSERT_OK(
                open_float8(NULL, meta ? fsdp_test_meta() : NULL, &tree_variants[v], true, 1, &m));
            for (int number = 0; number < 2; number++)
                ASSERT_OK(tree_forward_backward(&m, m.model,
                                                &(tree_call){.step = number, .n_micro_steps = 1}));
            fsdp_device_memory(m.device, &stats);
            peaks[meta] = stats.allocated_peak;
            ASSERT_OK(trainee_close(&m));
        }
        ASSERT_INT(peaks[0], peaks[1]);
    }
}

/* Other users of a weight than float8 products get an error, not codes. */
TEST(codes_are_not_read_as_values)
{
    trainee m;
    fsdp_scope *s;
    const fsdp_fully_shard_options options = {0};
    ASSERT_OK(open_float8(NULL, NULL, &options, true, 1, &m));
    fsdp_module *first = trainee_unit(&m, "first");
    fsdp_parameter *up = tree_of(first)->up;
    ASSERT_OK(fsdp_unit_unshard(first));
    ASSERT_OK(fsdp_scope_open(m.device, NULL, NULL, &s));
    ASSERT(!fsdp_embedding(s, (const int32_t[]){0}, 1, fsdp_read(s, up), -1));
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_INVALID, "uint8");
    fsdp_scope_close(s);
    ASSERT_OK(fsdp_unit_reshard(first));
    ASSERT_OK(trainee_close(&m));
}
