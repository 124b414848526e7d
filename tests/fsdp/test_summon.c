/* summon_full_params: whole parameters between steps, and the effect of changing them. */
#include "src/base/alloc.h"
#include "src/base/alloc_testing.h"
#include "src/fsdp/state.h"
#include "tests/elements.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

typedef fsdp_summon_full_params_options options;

static fsdp_parameter *up_of(const trainee *m, const char *path)
{
    return tree_of(trainee_unit(m, path))->up;
}

/* Set element i of each whole tensor to value + i. */
static void overwrite(const trainee *m, const fsdp_full_params *full, float value)
{
    fsdp_parameter_list list;
    if (fsdp_module_parameters(m->model, false, &list) != FSDP_OK)
        return;
    for (size_t i = 0; i < list.n; i++) {
        fsdp_tensor *whole = fsdp_full_params_get(full, list.items[i].parameter);
        float *data = whole ? elements_of(whole) : NULL;
        for (int64_t k = 0; data && k < fsdp_tensor_numel(whole); k++)
            data[k] = value + (float)k;
        if (whole)
            elements_changed(whole, data);
    }
    fsdp_parameter_list_free(&list);
}

/* Check that the whole tensor equals full_tensor(), in the dtype of the masters. */
static void check_whole(fsdp_test *t, const fsdp_full_params *full, const fsdp_parameter *p,
                        const float *expected)
{
    fsdp_tensor *whole = fsdp_full_params_get(full, p);
    ASSERT(whole);
    ASSERT_INT(fsdp_tensor_dtype(whole), FSDP_DTYPE_F32);
    ASSERT_INT(fsdp_tensor_numel(whole), fsdp_parameter_numel(p));
    ASSERT(memcmp(elements_of(whole), expected, (size_t)fsdp_tensor_numel(whole) * 4) == 0);
}

static void shows_and_writes_back(fsdp_test *t, const fsdp_fully_shard_options *o)
{
    trainee m;
    fsdp_full_params *full;
    float *before, *after;
    size_t n;
    ASSERT_OK(trainee_open_example(t->group, o, &m));
    ASSERT_OK(tree_step(&m, 0, t->world_size));
    ASSERT_OK(tree_params(m.model, &before, &n));
    for (int writeback = 0; writeback < 2; writeback++) {
        ASSERT_OK(
            fsdp_summon_full_params_begin(m.model, &(options){.no_writeback = !writeback}, &full));
        const fsdp_tensor *norm = fsdp_full_params_get(full, tree_of(m.model)->norm);
        ASSERT(norm); /* the first in the list */
        check_whole(t, full, tree_of(m.model)->norm, before);
        CHECK_HERE();
        ASSERT(!fsdp_full_params_grad(full, up_of(&m, "first")));
        overwrite(&m, full, 0.5f);
        ASSERT_OK(fsdp_summon_full_params_end(full));
        ASSERT_OK(tree_params(m.model, &after, &n));
        ASSERT((memcmp(after, before, n * sizeof *after) == 0) == !writeback);
        if (writeback)
            ASSERT_F32(after[1], 1.5f);
        fsdp_free(after);
    }
    ASSERT_OK(tree_step(&m, 1, t->world_size)); /* training continues with the new values */
    fsdp_free(before);
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(full_params_are_shown_and_written_back, 3)
{
    shows_and_writes_back(t, &(fsdp_fully_shard_options){0});
}

TEST_RANKS(also_where_nothing_is_sharded, 2)
{
    shows_and_writes_back(t, &(fsdp_fully_shard_options){.no_shard = true});
}

TEST_RANKS(masters_are_shown_where_compute_is_in_bfloat16, 2)
{
    shows_and_writes_back(t, &tree_variants[1]);
}

TEST(a_rank_alone_has_copies_too)
{
    shows_and_writes_back(t, &(fsdp_fully_shard_options){0});
}

/* Each rank writes other values. It keeps its own rows of its own tensors. */
TEST_RANKS(each_rank_writes_its_own_rows_back, 2)
{
    trainee m;
    fsdp_full_params *full;
    ASSERT_OK(trainee_open_example(t->group, &(fsdp_fully_shard_options){0}, &m));
    ASSERT_OK(fsdp_summon_full_params_begin(m.model, NULL, &full));
    overwrite(&m, full, 100.0f * (float)t->rank);
    ASSERT_OK(fsdp_summon_full_params_end(full));
    fsdp_tensor *whole;
    ASSERT_OK(fsdp_full_tensor(fsdp_parameter_local(up_of(&m, "first")), &whole));
    const float *data = elements_of(whole);
    const int64_t numel = fsdp_tensor_numel(whole),
                  half = numel / 2; /* hidden is 4: two rows for each rank */
    ASSERT_F32(data[half - 1], (float)(half - 1));
    ASSERT_F32(data[half], 100.0f + (float)half);
    fsdp_tensor_release(whole);
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(rank0_only_gives_the_others_nothing, 2)
{
    trainee m;
    fsdp_full_params *full;
    ASSERT_OK(trainee_open_example(t->group, &(fsdp_fully_shard_options){0}, &m));
    ASSERT_ERROR(fsdp_summon_full_params_begin(m.model, &(options){.rank0_only = true}, &full),
                 FSDP_ERR_UNSUPPORTED, "rank0_only with writeback");
    ASSERT_OK(fsdp_summon_full_params_begin(
        m.model, &(options){.rank0_only = true, .no_writeback = true, .offload_to_cpu = true},
        &full));
    ASSERT((fsdp_full_params_get(full, up_of(&m, "second")) != NULL) == (t->rank == 0));
    ASSERT_OK(fsdp_summon_full_params_end(full));
    ASSERT_OK(tree_step(&m, 0, 2));
    ASSERT_OK(trainee_close(&m));
}

/* One rank has no memory for the list of units, or for that of parameters. Its peers must not wait
 * for it. */
TEST_RANKS(a_rank_without_memory_is_an_error_of_all, 2)
{
    trainee m;
    fsdp_full_params *full;
    ASSERT_OK(trainee_open_example(t->group, &(fsdp_fully_shard_options){0}, &m));
    for (int n = 1; n <= 3; n++) {
        fsdp_alloc_fail_at(t->rank == 1 ? n : 0);
        ASSERT_ERROR(fsdp_summon_full_params_begin(m.model, NULL, &full), FSDP_ERR_NOMEM,
                     "out of host memory");
    }
    ASSERT_OK(fsdp_summon_full_params_begin(m.model, NULL, &full));
    ASSERT_OK(fsdp_summon_full_params_end(full));
    ASSERT_OK(trainee_close(&m));
}

/* Opens the example with up_of(m, "first") frozen, and stored in the bfloat16 of its file. */
static fsdp_status open_with_frozen_bf16(fsdp_group *group, trainee *m)
{
    FSDP_TRY(trainee_open(group, NULL, FSDP_DTYPE_F32, m));
    FSDP_TRY(tree_example(TREE_EXAMPLE_WIDTH, &m->model));
    fsdp_parameter *up = up_of(m, "first");
    up->loaded = true;
    up->loaded_dtype = FSDP_DTYPE_BF16;
    fsdp_parameter_set_requires_grad(up, false);
    FSDP_TRY(tree_example_shard(m->model, group, m->device, &(fsdp_fully_shard_options){0}));
    return fsdp_module_init(m->model, 3);
}

/* Otherwise the peers would wait in the collectives that give an unfrozen parameter its float32
 * master. */
TEST_RANKS(a_rank_without_memory_is_an_error_of_all_before_masters_are_made, 2)
{
    trainee m;
    fsdp_full_params *full;
    ASSERT_OK(open_with_frozen_bf16(t->group, &m));
    fsdp_parameter *up = up_of(&m, "first");
    fsdp_parameter_set_requires_grad(up, true);
    for (int n = 1; n <= 2; n++) {
        fsdp_alloc_fail_at(t->rank == 1 ? n : 0);
        ASSERT_ERROR(fsdp_summon_full_params_begin(m.model, NULL, &full), FSDP_ERR_NOMEM,
                     "out of host memory");
        fsdp_alloc_fail_at(0);
        ASSERT(fsdp_parameter_local(up)->dtype == FSDP_DTYPE_BF16);
    }
    ASSERT_OK(fsdp_summon_full_params_begin(m.model, NULL, &full));
    ASSERT(fsdp_parameter_local(up)->dtype == FSDP_DTYPE_F32);
    ASSERT_OK(fsdp_summon_full_params_end(full));
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(without_recurse_the_outermost_units_alone_are_summoned, 2)
{
    trainee m;
    fsdp_full_params *full;
    ASSERT_OK(trainee_open_example(t->group, &(fsdp_fully_shard_options){0}, &m));
    ASSERT_OK(fsdp_summon_full_params_begin(trainee_unit(&m, "second"),
                                            &(options){.no_recurse = true}, &full));
    ASSERT(fsdp_full_params_get(full, up_of(&m, "second")));
    ASSERT(!fsdp_full_params_get(full, up_of(&m, "second.inner")));
    ASSERT(!fsdp_full_params_get(full, up_of(&m, "first")));
    ASSERT_OK(fsdp_summon_full_params_end(full));
    ASSERT_OK(fsdp_summon_full_params_begin(trainee_unit(&m, "second"), NULL, &full));
    ASSERT(fsdp_full_params_get(full, up_of(&m, "second.inner")));
    ASSERT_OK(fsdp_summon_full_params_end(full));
    ASSERT_OK(trainee_close(&m));
}

/* Doubling whole gradients has the effect of doubling their shards. */
TEST_RANKS(gradients_come_with_grads_and_are_written_back, 2)
{
    trainee m;
    fsdp_full_params *full;
    float *before, *after;
    ASSERT_OK(trainee_open_example(t->group, &(fsdp_fully_shard_options){0}, &m));
    const fsdp_parameter *up = up_of(&m, "first");
    ASSERT_OK(tree_forward_backward(&m, m.model, &(tree_call){.micro_batch = t->rank}));
    ASSERT_OK(tree_full_grad(up, &before));
    ASSERT_OK(fsdp_summon_full_params_begin(m.model, &(options){.with_grads = true}, &full));
    float *grad = elements_of(fsdp_full_params_grad(full, up));
    const int64_t n = fsdp_parameter_numel(up);
    ASSERT(memcmp(grad, before, (size_t)n * sizeof *grad) == 0);
    for (int64_t i = 0; i < n; i++)
        grad[i] *= 2.0f;
    elements_changed(fsdp_full_params_grad(full, up), grad);
    ASSERT_OK(fsdp_summon_full_params_end(full));
    ASSERT_OK(tree_full_grad(up, &after));
    for (int64_t i = 0; i < n; i++)
        ASSERT_F32(after[i], 2.0f * before[i]);
    fsdp_free(after);
    fsdp_free(before);
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(nothing_runs_or_is_written_while_parameters_are_summoned, 2)
{
    trainee m;
    fsdp_full_params *full, *again;
    fsdp_unshard_handle *handle;
    ASSERT_OK(trainee_open_example(t->group, &(fsdp_fully_shard_options){0}, &m));
    ASSERT_OK(tree_step(&m, 0, 2));
    ASSERT_OK(fsdp_summon_full_params_begin(m.model, NULL, &full));
    ASSERT_ERROR(fsdp_summon_full_params_begin(m.model, NULL, &again), FSDP_ERR_STATE,
                 "summoned already");
    ASSERT_ERROR(tree_evaluate(&m, m.model, 0), FSDP_ERR_STATE,
                 "full parameters are summoned: call fsdp_summon_full_params_end() first");
    ASSERT_ERROR(fsdp_module_init(m.model, 5), FSDP_ERR_STATE, "are summoned");
    ASSERT_ERROR(fsdp_unit_unshard(m.model), FSDP_ERR_STATE, "are summoned");
    ASSERT_ERROR(fsdp_unit_unshard_async(m.model, &handle), FSDP_ERR_STATE, "are summoned");
    ASSERT_OK(fsdp_summon_full_params_end(full));
    ASSERT_OK(tree_step(&m, 1, 2));
    ASSERT_OK(fsdp_unit_unshard(m.model));
    ASSERT_ERROR(fsdp_summon_full_params_begin(m.model, NULL, &full), FSDP_ERR_STATE,
                 "unit '' is unsharded");
    ASSERT_OK(fsdp_unit_reshard(m.model));
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(what_was_unfrozen_is_shown_as_its_master, 2)
{
    trainee m;
    fsdp_full_params *full;
    ASSERT_OK(open_with_frozen_bf16(t->group, &m));
    fsdp_parameter *up = up_of(&m, "first");
    for (int trains = 0; trains < 2; trains++) {
        fsdp_parameter_set_requires_grad(up, trains);
        ASSERT_OK(fsdp_summon_full_params_begin(m.model, NULL, &full));
        ASSERT_INT(fsdp_tensor_dtype(fsdp_full_params_get(full, up)),
                   trains ? FSDP_DTYPE_F32 : FSDP_DTYPE_BF16);
        ASSERT_OK(fsdp_summon_full_params_end(full));
    }
    ASSERT_OK(trainee_close(&m));
}

/* A prefetched copy would be stale. */
TEST_RANKS(a_prefetch_is_dropped, 2)
{
    trainee m;
    fsdp_full_params *full;
    float *values;
    size_t n;
    ASSERT_OK(trainee_open_example(t->group, &tree_variants[1], &m));
    ASSERT_OK(fsdp_unit_unshard_async(trainee_unit(&m, "first"), NULL));
    ASSERT_OK(fsdp_summon_full_params_begin(m.model, NULL, &full));
    overwrite(&m, full, 2.0f);
    ASSERT_OK(fsdp_summon_full_params_end(full));
    ASSERT_OK(tree_params(m.model, &values, &n));
    ASSERT_F32(values[0], 2.0f);
    fsdp_free(values);
    ASSERT_OK(tree_step(&m, 0, 2));
    ASSERT_OK(trainee_close(&m));
}

TEST(what_has_no_unit_has_nothing_to_summon)
{
    trainee m;
    fsdp_full_params *full;
    ASSERT_OK(trainee_open(NULL, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(TREE_EXAMPLE_WIDTH, &m.model));
    ASSERT_ERROR(fsdp_summon_full_params_begin(m.model, NULL, &full), FSDP_ERR_INVALID, "no unit");
    ASSERT_OK(trainee_close(&m));
}

TEST(every_failing_allocation_is_reported_and_nothing_is_left_summoned)
{
    trainee m;
    fsdp_status status = FSDP_ERR_NOMEM;
    ASSERT_OK(trainee_open_example(NULL, &(fsdp_fully_shard_options){0}, &m));
    for (long n = 1; status != FSDP_OK; n++) {
        fsdp_full_params *full;
        fsdp_alloc_fail_at(n);
        status = fsdp_summon_full_params_begin(m.model, NULL, &full);
        fsdp_alloc_fail_at(0);
        ASSERT(status == FSDP_OK || status == FSDP_ERR_NOMEM);
        if (status == FSDP_OK)
            ASSERT_OK(fsdp_summon_full_params_end(full));
        ASSERT(n < 1000);
    }
    ASSERT_OK(tree_step(&m, 0, 1));
    ASSERT_OK(trainee_close(&m));
}
