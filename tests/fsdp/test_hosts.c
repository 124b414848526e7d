/* Units on several hosts, which are imagined (mpi_ranks.h): what the gathers of a step send between
 * hosts, and that the parameters have the bits of one rank. */
#include <string.h>

#include "src/base/assert.h"
#include "src/comm/comm.h"
#include "src/fsdp/state.h"
#include "tests/comm/mpi_ranks.h"
#include "tests/fsdp/tree.h"

enum {
    STEPS = 4,
    LEAVES = 8 /* a multiple of the ranks of every test that compares bits */
};

/* --- bytes --- */

/* Set *sum to the sum of `value` over all ranks. */
static fsdp_status sum_over_ranks(fsdp_group *group, uint64_t value, uint64_t *sum)
{
    uint64_t all[64];
    const int n = fsdp_group_world_size(group);
    FSDP_TRY(fsdp_all_gather(group, &value, sizeof value, all));
    *sum = 0;
    for (int r = 0; r < n; r++)
        *sum += all[r];
    return FSDP_OK;
}

typedef fsdp_status action(trainee *m, int step);

/* Set *sum to the bytes that all ranks send to other hosts in `act`. */
static fsdp_status sent_in(trainee *m, action *act, int step, uint64_t *sum)
{
    const uint64_t before = fsdp_group_counters(m->group)->moved_bytes;
    FSDP_TRY(act(m, step));
    return sum_over_ranks(m->group, fsdp_group_counters(m->group)->moved_bytes - before, sum);
}

static fsdp_status evaluate(trainee *m, int step)
{
    return tree_evaluate(m, m->model, step);
}

static fsdp_status forward_backward(trainee *m, int step)
{
    return tree_forward_backward(m, m->model, &(tree_call){.step = step, .n_micro_steps = 1});
}

/* The bytes of the gathers of forward, and of all that a forward and a backward send, summed over
 * the ranks. */
typedef struct traffic {
    uint64_t forward, all;
} traffic;

static fsdp_status measure(fsdp_group *group, const fsdp_fully_shard_options *o, traffic *out)
{
    trainee m;
    FSDP_TRY(trainee_open_example(group, o, &m));
    FSDP_TRY(tree_step(&m, 0, fsdp_group_world_size(group)));
    FSDP_TRY(sent_in(&m, evaluate, 1, &out->forward));
    FSDP_TRY(tree_step(&m, 1, fsdp_group_world_size(group)));
    FSDP_TRY(sent_in(&m, forward_backward, 2, &out->all));
    return trainee_close(&m);
}

/* Set *bytes to the size of all copies of the example, with their padding. */
static fsdp_status copy_bytes(fsdp_dtype dtype, uint64_t *bytes)
{
    trainee m;
    fsdp_parameter_list list;
    const fsdp_fully_shard_options o = {.mp_policy = {.param_dtype = dtype}};
    *bytes = 0;
    FSDP_TRY(trainee_open_example(NULL, &o, &m));
    FSDP_TRY(fsdp_module_parameters(m.model, false, &list));
    for (size_t i = 0; i < list.n; i++)
        *bytes += (uint64_t)fsdp_aligned_numel(fsdp_parameter_numel(list.items[i].parameter)) *
                  fsdp_dtype_size(dtype);
    fsdp_parameter_list_free(&list);
    return trainee_close(&m);
}

static fsdp_status expect_bytes(const char *what, int ranks, uint64_t actual, uint64_t expected)
{
    return actual == expected
               ? FSDP_OK
               : fsdp_error(FSDP_ERR_STATE, "%s to %d ranks sends %llu bytes, not %llu", what,
                            ranks, (unsigned long long)actual, (unsigned long long)expected);
}

/* Compare with reshard_after_forward true, whose gradients are the same: there, the second gather
 * sends what the first one does. */
static fsdp_status check_traffic(fsdp_group *group, fsdp_dtype dtype, int reshard_ranks)
{
    const int ranks = fsdp_group_world_size(group), local = fsdp_group_local_world_size(group);
    fsdp_fully_shard_options o = {.mp_policy = {.param_dtype = dtype},
                                  .reshard_after_forward = FSDP_RESHARD_TRUE};
    traffic all, kept, smaller;
    uint64_t bytes;
    FSDP_TRY(measure(group, &o, &all));
    o.reshard_after_forward = FSDP_RESHARD_FALSE;
    FSDP_TRY(measure(group, &o, &kept));
    o.reshard_after_forward = FSDP_RESHARD_TO_SMALLER;
    o.reshard_ranks = reshard_ranks;
    FSDP_TRY(measure(group, &o, &smaller));
    FSDP_TRY(copy_bytes(dtype, &bytes));
    const int hosts = reshard_ranks > local ? reshard_ranks / local : 1;
    const uint64_t second =
        bytes * (uint64_t)(hosts - 1) * (uint64_t)(ranks / (hosts * local)); /* for all ranks */
    if (all.forward == 0)
        return fsdp_error(FSDP_ERR_STATE, "a gather sends nothing");
    FSDP_TRY(expect_bytes("no reshard", ranks, kept.all, all.all - all.forward));
    FSDP_TRY(expect_bytes("the forward of reshard", reshard_ranks, smaller.forward, all.forward));
    return expect_bytes("reshard", reshard_ranks, smaller.all, all.all - all.forward + second);
}

static fsdp_status second_gathers(fsdp_group *group, void *arg)
{
    const int ranks = fsdp_group_world_size(group);
    (void)arg;
    for (int n = 2; n < ranks; n++) {
        if (ranks % n)
            continue;
        FSDP_TRY(check_traffic(group, FSDP_DTYPE_F32, n));
        FSDP_TRY(check_traffic(group, FSDP_DTYPE_BF16, n));
    }
    return FSDP_OK;
}

TEST(a_gather_in_backward_reaches_only_the_hosts_that_keep_the_unit)
{
    mpi_ranks_run(t, &open_mpi, "second gathers", 4, 2, false);
    CHECK_HERE();
    if (!t->skipped)
        mpi_ranks_run(t, &open_mpi, "second gathers", 4, 4, false);
}

TEST(and_with_mpich)
{
    mpi_ranks_run(t, &mpich, "second gathers", 8, 4, false);
}

/* --- bits --- */

static fsdp_status check_bits(fsdp_group *group, const fsdp_fully_shard_options *o)
{
    const fsdp_fully_shard_options alone = {.mp_policy = o->mp_policy};
    trainee many, one;
    FSDP_TRY(trainee_open_example(group, o, &many));
    FSDP_TRY(trainee_open_example(NULL, &alone, &one));
    for (int step = 0; step < STEPS; step++) {
        FSDP_TRY(tree_step(&many, step, LEAVES));
        FSDP_TRY(tree_step(&one, step, LEAVES));
        FSDP_TRY(tree_evaluate(&many, many.model, step));
    }
    FSDP_TRY(tree_same_params(&many, &one));
    FSDP_TRY(trainee_close(&many));
    return trainee_close(&one);
}

static fsdp_status bits(fsdp_group *group, void *arg)
{
    static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};
    (void)arg;
    for (int n = 2; n < fsdp_group_world_size(group); n *= 2)
        for (size_t d = 0; d < FSDP_LENGTH(dtypes); d++)
            FSDP_TRY(check_bits(group, &(fsdp_fully_shard_options){
                                           .mp_policy = {.param_dtype = dtypes[d]},
                                           .reshard_after_forward = FSDP_RESHARD_TO_SMALLER,
                                           .reshard_ranks = n,
                                           .backward_prefetch = (fsdp_backward_prefetch)d}));
    return FSDP_OK;
}

TEST(units_that_few_hosts_keep_train_to_the_bits_of_one_rank)
{
    mpi_ranks_run(t, &open_mpi, "bits", 4, 4, false);
    CHECK_HERE();
    if (!t->skipped)
        mpi_ranks_run(t, &open_mpi, "bits", 8, 4, false);
}

/* --- between forward and backward --- */

static fsdp_status expect_state(const trainee *m, fsdp_sharded_state state)
{
    const fsdp_state *root = m->model->fsdp_state;
    for (size_t i = 0; i < root->context->n_states; i++)
        if (root->context->states[i]->param_group->state != state)
            return fsdp_error(FSDP_ERR_STATE, "unit %zu is in state %d, not %d", i,
                              (int)root->context->states[i]->param_group->state, (int)state);
    return FSDP_OK;
}

static fsdp_status expect_refused(fsdp_status status, const char *part)
{
    return status == FSDP_ERR_STATE && strstr(fsdp_last_error(), part)
               ? FSDP_OK
               : fsdp_error(FSDP_ERR_STATE, "a write of a kept unit is not refused");
}

/* A forward whose backward may not follow. */
static fsdp_status forward_only(trainee *m, bool has_backward, fsdp_sharded_state state)
{
    const tree_call call = {.micro_batch = fsdp_group_rank(m->group), .n_micro_steps = 1};
    fsdp_tensor *up = fsdp_parameter_local(tree_of(m->model)->up);
    fsdp_scope *s;
    FSDP_TRY(tree_scope(m, m->tape, &call, &s));
    fsdp_tensor *y = tree_forward(m, s, m->model, &call);
    FSDP_TRY(fsdp_scope_status(s));
    FSDP_TRY(expect_state(m, state));
    FSDP_TRY(expect_refused(fsdp_tensor_begin_write(up), "is unsharded"));
    if (has_backward)
        FSDP_TRY(tree_backward(m, &y, &call, 1));
    fsdp_scope_close(s);
    fsdp_tape_reset(m->tape);
    return FSDP_OK;
}

/* Each rank has a part of every unit in private memory, and nothing else. */
static fsdp_status expect_parts(const trainee *m, int ranks)
{
    const fsdp_state *root = m->model->fsdp_state;
    fsdp_memory_stats with, without;
    int64_t most = 0;
    fsdp_device_memory(m->device, &with);
    for (size_t i = 0; i < root->context->n_states; i++) {
        const fsdp_param_group *g = root->context->states[i]->param_group;
        most += g->memories.items[FSDP_MEMORY_COPY]->numel;
        fsdp_param_group_reshard(root->context->states[i]->param_group);
    }
    FSDP_TRY(fsdp_pools_trim(&(fsdp_pool *){&root->context->comm.whole}, 1, 0));
    fsdp_device_memory(m->device, &without);
    const int64_t parts =
        with.tag_allocated[FSDP_TAG_PARAM] - without.tag_allocated[FSDP_TAG_PARAM];
    const int64_t whole = most * (int64_t)sizeof(float);
    /* Parts are rounded up to 128 bytes, and the memory of a pool to 64. */
    const int64_t slack = (int64_t)root->context->n_states * (128 + 64);
    if (parts < whole / ranks || parts > whole / ranks + slack)
        return fsdp_error(FSDP_ERR_STATE, "the parts have %lld bytes, of %lld of the unit",
                          (long long)parts, (long long)whole);
    return FSDP_OK;
}

static fsdp_status between(fsdp_group *group, void *arg)
{
    const fsdp_fully_shard_options o = {.reshard_after_forward = FSDP_RESHARD_TO_SMALLER,
                                        .reshard_ranks = 2};
    const bool spans = fsdp_group_local_world_size(group) == 1;
    const fsdp_sharded_state state = spans ? FSDP_STATE_SECONDARY : FSDP_STATE_HIDDEN;
    const tree_call call = {.micro_batch = fsdp_group_rank(group), .n_micro_steps = 1};
    fsdp_unit_info info;
    trainee m;
    fsdp_scope *s;
    (void)arg;
    FSDP_TRY(trainee_open_example(group, &o, &m));
    FSDP_TRY(fsdp_unit_get_info(m.model, &info));
    if (info.reshard_ranks != 2 || info.kept_ranks != 2)
        return fsdp_error(FSDP_ERR_STATE, "%d ranks keep the unit", info.kept_ranks);
    FSDP_TRY(forward_only(&m, true, state));
    FSDP_TRY(forward_only(&m, false, state));
    FSDP_TRY(evaluate(&m, 1)); /* drops what was kept for the backward that did not follow */
    FSDP_TRY(expect_state(&m, FSDP_STATE_SHARDED));
    FSDP_TRY(tree_scope(&m, m.tape, &call, &s));
    tree_forward(&m, s, m.model, &call);
    FSDP_TRY(fsdp_scope_status(s));
    if (spans)
        FSDP_TRY(expect_parts(&m, 2));
    fsdp_scope_close(s);
    fsdp_tape_reset(m.tape);
    return trainee_close(&m);
}

TEST(between_forward_and_backward_a_kept_unit_cannot_be_written)
{
    mpi_ranks_run(t, &open_mpi, "between", 4, 2, false);
    CHECK_HERE();
    if (!t->skipped)
        mpi_ranks_run(t, &open_mpi, "between", 4, 4, false);
}

static const mpi_body bodies[] = {
    {"second gathers", second_gathers}, {"bits", bits}, {"between", between}};

TEST(body_of_a_rank_of_mpi)
{
    mpi_ranks_run_body(t, bodies, FSDP_LENGTH(bodies));
}
