/* reshard_after_forward as an integer: after forward the parameters cannot be read, but the
 * gathered memory is kept, and backward's gather does not wait for peers. */
#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    STEPS = 10,
    UNITS = 4,
    RANKS = 2 /* of 4 ranks */
};

static fsdp_fully_shard_options to_smaller(fsdp_dtype param_dtype)
{
    return (fsdp_fully_shard_options){.mp_policy = {.param_dtype = param_dtype},
                                      .reshard_after_forward = FSDP_RESHARD_TO_SMALLER,
                                      .reshard_ranks = RANKS};
}

/* With these param_dtypes, operations read float32 masters as they are, their upper halves, or a
 * cast copy. */
static const fsdp_dtype dtypes[] = {FSDP_DTYPE_F32, FSDP_DTYPE_BF16, FSDP_DTYPE_F16};

TEST_RANKS(it_trains_to_the_bits_of_one_rank, 4)
{
    fsdp_group_set_delay(t->group, 3, 100);
    for (int d = 0; d < 3; d++) {
        const fsdp_fully_shard_options o = to_smaller(dtypes[d]);
        const fsdp_fully_shard_options alone = {.mp_policy = o.mp_policy};
        trainee many, one;
        ASSERT_OK(trainee_open_example(t->group, &o, &many));
        ASSERT_OK(trainee_open_example(NULL, &alone, &one));
        for (int step = 0; step < STEPS; step++) {
            ASSERT_OK(tree_step(&many, step, 8));
            ASSERT_OK(tree_step(&one, step, 8));
            ASSERT_OK(tree_evaluate(&many, many.model, step));
        }
        ASSERT(trainee_is_resharded(&many));
        ASSERT_OK(tree_same_params(&many, &one));
        ASSERT_OK(trainee_close(&many));
        ASSERT_OK(trainee_close(&one));
    }
}

/* Between forward and backward, parameters can be neither read nor written. */
TEST_RANKS(between_forward_and_backward_parameters_are_hidden, 4)
{
    for (int d = 0; d < 3; d++) {
        const fsdp_fully_shard_options o = to_smaller(dtypes[d]);
        const tree_call call = {.micro_batch = t->rank, .n_micro_steps = 1};
        trainee m;
        fsdp_scope *s;
        fsdp_unit_info info;
        ASSERT_OK(trainee_open_example(t->group, &o, &m));
        ASSERT_OK(tree_scope(&m, m.tape, &call, &s));
        fsdp_tensor *y = tree_forward(&m, s, m.model, &call);
        ASSERT_OK(fsdp_scope_status(s));
        ASSERT(trainee_is_resharded(&m));
        ASSERT_OK(fsdp_unit_get_info(m.model, &info));
        ASSERT(!info.is_unsharded && info.reshard_after_forward);
        ASSERT_INT(info.reshard_ranks, RANKS);
        ASSERT_ERROR(fsdp_tensor_begin_write(fsdp_parameter_local(tree_of(m.model)->up)),
                     FSDP_ERR_STATE, "is unsharded");
        ASSERT_OK(tree_backward(&m, &y, &call, 1));
        fsdp_scope_close(s);
        ASSERT(trainee_is_resharded(&m));
        ASSERT_OK(tree_sgd(m.model, 0.1f));
        ASSERT_OK(trainee_close(&m));
    }
}

/* FSDP2 gathers twice. Here no rank writes for the second gather, so no rank has to wait. */
TEST_RANKS(the_second_gather_counts_and_moves_nothing, 4)
{
    for (int d = 0; d < 3; d++) {
        const fsdp_fully_shard_options o = to_smaller(dtypes[d]);
        trainee m;
        fsdp_parameter_list list;
        uint64_t numel = 0;
        ASSERT_OK(trainee_open_example(t->group, &o, &m));
        ASSERT_OK(fsdp_module_parameters(m.model, false, &list));
        for (size_t i = 0; i < list.n; i++)
            numel += (uint64_t)fsdp_parameter_numel(list.items[i].parameter);
        fsdp_parameter_list_free(&list);
        ASSERT_OK(tree_step(&m, 0, 4));
        const fsdp_comm_counters before = *fsdp_group_counters(t->group);
        ASSERT_OK(tree_forward_backward(&m, m.model, &(tree_call){.step = 1, .n_micro_steps = 1}));
        const fsdp_comm_counters *after = fsdp_group_counters(t->group);
        ASSERT_INT(after->calls[FSDP_KIND_ALL_GATHER] - before.calls[FSDP_KIND_ALL_GATHER],
                   2 * UNITS);
        ASSERT_INT(after->logical_bytes[FSDP_KIND_ALL_GATHER] -
                       before.logical_bytes[FSDP_KIND_ALL_GATHER],
                   2 * numel * fsdp_dtype_size(dtypes[d]));
        ASSERT_INT(after->calls[FSDP_KIND_WRITE_SHARD] - before.calls[FSDP_KIND_WRITE_SHARD],
                   dtypes[d] == FSDP_DTYPE_F16 ? UNITS : 0);
        ASSERT_OK(trainee_close(&m));
    }
}

/* A forward without backward, and a step that fails, leave no parameters hidden. */
TEST_RANKS(a_forward_without_backward_leaves_nothing, 4)
{
    const fsdp_fully_shard_options o = to_smaller(FSDP_DTYPE_F16);
    const tree_call call = {.micro_batch = t->rank, .n_micro_steps = 1};
    trainee m;
    fsdp_scope *s;
    ASSERT_OK(trainee_open_example(t->group, &o, &m));
    ASSERT_OK(tree_scope(&m, m.tape, &call, &s));
    tree_forward(&m, s, m.model, &call);
    ASSERT_OK(fsdp_scope_status(s));
    fsdp_scope_close(s);
    fsdp_tape_reset(m.tape);
    ASSERT_OK(fsdp_module_init(m.model, 7));
    tree_of(trainee_unit(&m, "first"))->fail_backward = true;
    ASSERT_ERROR(tree_step(&m, 1, 4), FSDP_ERR_INVALID, "on purpose");
    ASSERT_OK(fsdp_module_init(m.model, 7));
    ASSERT_OK(trainee_close(&m));
}

/* As in FSDP2, 1 means false, and the number of ranks means true. */
TEST_RANKS(trivial_numbers_are_the_bool, 4)
{
    fsdp_fully_shard_options o = to_smaller(FSDP_DTYPE_F32);
    fsdp_unit_info info;
    trainee m;
    for (int ranks = 1; ranks <= 4; ranks += 3) {
        o.reshard_ranks = ranks;
        ASSERT_OK(trainee_open_example(t->group, &o, &m));
        ASSERT_OK(fsdp_unit_get_info(m.model, &info));
        ASSERT(info.reshard_after_forward == (ranks == 4));
        ASSERT_INT(info.reshard_ranks, 0);
        ASSERT_OK(tree_step(&m, 0, 4));
        ASSERT(trainee_is_resharded(&m));
        ASSERT_OK(trainee_close(&m));
    }
}

TEST_RANKS(other_numbers_are_refused, 4)
{
    static const int wrong[] = {0, 3, 8, -2};
    fsdp_fully_shard_options o = to_smaller(FSDP_DTYPE_F32);
    trainee m;
    ASSERT_OK(trainee_open(t->group, NULL, FSDP_DTYPE_F32, &m));
    ASSERT_OK(tree_example(7, &m.model));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        o.reshard_ranks = wrong[i];
        ASSERT_ERROR(fsdp_fully_shard(m.model, t->group, m.device, &o), FSDP_ERR_INVALID,
                     "ranks of the 4 that it is sharded over");
    }
    o.reshard_ranks = 3;
    ASSERT_ERROR(
        fsdp_fully_shard(fsdp_module_find(m.model, "second.inner"), t->group, m.device, &o),
        FSDP_ERR_INVALID, "module 'second.inner' (");
    o.reshard_ranks = 2;
    o.no_shard = true;
    ASSERT_ERROR(fsdp_fully_shard(m.model, t->group, m.device, &o), FSDP_ERR_INVALID,
                 "to 2 ranks of the 1 that");
    ASSERT(!fsdp_module_is_unit(m.model));
    ASSERT_OK(trainee_close(&m));
}
