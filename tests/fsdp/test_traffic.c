/* How often units are gathered and reduced, how many bytes this moves, and that gathers begin ahead
 * of time. */
#include "src/comm/comm.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    UNITS = 4
};

/* Counts since the last call. */
static fsdp_comm_counters since(const fsdp_group *group, fsdp_comm_counters *before)
{
    fsdp_comm_counters now = *fsdp_group_counters(group), d = now;
    for (int k = 0; k < FSDP_KIND_COUNT; k++) {
        d.calls[k] -= before->calls[k];
        d.logical_bytes[k] -= before->logical_bytes[k];
    }
    d.moved_bytes -= before->moved_bytes;
    *before = now;
    return d;
}

static uint64_t numel_of(fsdp_module *m)
{
    uint64_t n = 0;
    fsdp_parameter_list list;
    if (fsdp_module_parameters(m, false, &list) != FSDP_OK)
        return 0;
    for (size_t i = 0; i < list.n; i++)
        n += (uint64_t)fsdp_parameter_numel(list.items[i].parameter);
    fsdp_parameter_list_free(&list);
    return n;
}

/* The number of gathers in backward: all units but the root, all, or none. */
static uint64_t backward_gathers(const fsdp_fully_shard_options *o)
{
    if (o->reshard_after_forward == FSDP_RESHARD_FALSE)
        return 0;
    return o->reshard_after_forward == FSDP_RESHARD_TRUE ? UNITS : UNITS - 1;
}

static void check_counts(fsdp_test *t, const fsdp_fully_shard_options *o)
{
    trainee m;
    fsdp_comm_counters before = {0};
    const uint64_t element = fsdp_dtype_size(o->mp_policy.param_dtype);
    ASSERT_OK(trainee_open_example(t->group, o, &m));
    const uint64_t numel = numel_of(m.model);
    for (int step = 0; step < 3; step++) {
        since(t->group, &before);
        ASSERT_OK(tree_evaluate(&m, m.model, step));
        fsdp_comm_counters c = since(t->group, &before);
        ASSERT_INT(c.calls[FSDP_KIND_ALL_GATHER], UNITS);
        ASSERT_INT(c.logical_bytes[FSDP_KIND_ALL_GATHER], numel * element);
        ASSERT_INT(c.calls[FSDP_KIND_REDUCE_SCATTER], 0);
        ASSERT_INT(c.moved_bytes, 0);
        for (int a = 0; a < 2; a++) {
            ASSERT_OK(tree_forward_backward(
                &m, m.model, &(tree_call){.step = step, .micro_step = a, .n_micro_steps = 2}));
            c = since(t->group, &before);
            ASSERT_INT(c.calls[FSDP_KIND_ALL_GATHER], UNITS + backward_gathers(o));
            ASSERT_INT(c.calls[FSDP_KIND_REDUCE_SCATTER], UNITS);
            ASSERT_INT(c.logical_bytes[FSDP_KIND_REDUCE_SCATTER],
                       numel * fsdp_dtype_size(o->mp_policy.reduce_dtype));
            ASSERT_INT(c.moved_bytes, 0);
            /* Each gather writes one copy, and no prefetch is in vain. Copies that are kept for
             * backward are kept until parameters are written. */
            const bool copies = o->mp_policy.param_dtype == FSDP_DTYPE_F16;
            ASSERT_INT(c.calls[FSDP_KIND_WRITE_SHARD], copies ? 2 * backward_gathers(o) : 0);
        }
        ASSERT_OK(tree_sgd(m.model, 0.1f));
    }
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(one_gather_a_unit_and_pass_one_reduce_a_unit_and_micro_step, 3)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        if (tree_variants[v].no_shard)
            continue;
        check_counts(t, &tree_variants[v]);
        CHECK_HERE();
    }
    const fsdp_fully_shard_options half = {
        .mp_policy = {.param_dtype = FSDP_DTYPE_BF16, .reduce_dtype = FSDP_DTYPE_BF16}};
    check_counts(t, &half);
}

/* NO_SHARD gathers nothing but still reduces. */
TEST_RANKS(whole_units_are_reduced_and_never_gathered, 2)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        trainee m;
        fsdp_comm_counters before = {0};
        fsdp_fully_shard_options o = {.no_shard = true};
        o.mp_policy.param_dtype = bf16 ? FSDP_DTYPE_BF16 : FSDP_DTYPE_F32;
        ASSERT_OK(trainee_open_example(t->group, &o, &m));
        since(t->group, &before);
        ASSERT_OK(tree_forward_backward(&m, m.model, &(tree_call){0}));
        ASSERT_OK(tree_sgd(m.model, 0.1f));
        fsdp_comm_counters c = since(t->group, &before);
        ASSERT_INT(c.calls[FSDP_KIND_ALL_GATHER], 0);
        ASSERT_INT(c.calls[FSDP_KIND_WRITE_SHARD], 0);
        ASSERT_INT(c.calls[FSDP_KIND_REDUCE_SCATTER], UNITS);
        ASSERT_OK(trainee_close(&m));
    }
}

TEST_RANKS(a_world_of_one_communicates_nothing, 1)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        trainee m;
        ASSERT_OK(trainee_open_example(t->group, &tree_variants[v], &m));
        ASSERT_OK(tree_step(&m, 0, 2));
        ASSERT_OK(tree_step(&m, 1, 2));
        const fsdp_comm_counters *c = fsdp_group_counters(t->group);
        for (int k = 0; k < FSDP_KIND_COUNT; k++)
            ASSERT_INT(c->calls[k] + c->logical_bytes[k], 0);
        ASSERT_INT(c->moved_bytes, 0);
        ASSERT_OK(trainee_close(&m));
    }
}

/* For units that compute in float32, the optimizer writes the shards in place; for bfloat16 it
 * writes their halves. No bytes move in a whole step. */
TEST_RANKS(a_step_moves_no_byte, 4)
{
    for (int v = 0; v < 2; v++) {
        trainee m;
        ASSERT_OK(trainee_open_example(t->group, &tree_variants[v], &m));
        ASSERT_OK(tree_step(&m, 0, 8));
        ASSERT_INT(fsdp_group_counters(t->group)->moved_bytes, 0);
        ASSERT(fsdp_group_counters(t->group)->calls[FSDP_KIND_WRITE_SHARD] > 0);
        ASSERT_OK(trainee_close(&m));
    }
}

/* --- ahead of time --- */

typedef struct watch {
    fsdp_region_hooks hooks;
    const fsdp_module *next_forward, *next_backward;
    bool forward, backward; /* was the next unit being gathered? */
} watch;

static bool under_way(const fsdp_module *m)
{
    const fsdp_state *state = m ? m->fsdp_state : NULL;
    return state && state->param_group->state == FSDP_STATE_GATHERING;
}

static fsdp_status watch_forward(void *self, fsdp_scope *s, fsdp_args *in)
{
    watch *w = self;
    (void)s, (void)in;
    w->forward = under_way(w->next_forward);
    return FSDP_OK;
}

static fsdp_status watch_backward(void *self)
{
    watch *w = self;
    w->backward = under_way(w->next_backward);
    return FSDP_OK;
}

/* Forward enters root, first, second, inner; backward enters root, second, inner, first. */
TEST_RANKS(the_next_unit_is_gathered_ahead_of_time, 2)
{
    static const char *const names[UNITS] = {"", "first", "second", "second.inner"};
    static const int next_forward[UNITS] = {1, 2, 3, -1}, next_backward[UNITS] = {2, -1, 3, 1};
    const fsdp_fully_shard_options o = {.mp_policy = {.param_dtype = FSDP_DTYPE_F16},
                                        .reshard_after_forward = FSDP_RESHARD_TRUE};
    trainee m;
    watch watches[UNITS];
    ASSERT_OK(trainee_open_example(t->group, &o, &m));
    for (int i = 0; i < UNITS; i++) {
        watch *w = &watches[i];
        *w = (watch){.hooks = {.pre_forward = watch_forward, .pre_backward = watch_backward}};
        w->hooks.self = w;
        w->next_forward = next_forward[i] < 0 ? NULL : trainee_unit(&m, names[next_forward[i]]);
        w->next_backward = next_backward[i] < 0 ? NULL : trainee_unit(&m, names[next_backward[i]]);
        ASSERT_OK(fsdp_module_add_hooks(trainee_unit(&m, names[i]), &w->hooks, NULL));
    }
    for (int step = 0; step < 3; step++) {
        ASSERT_OK(tree_step(&m, step, 4));
        for (int i = 0; i < UNITS; i++) {
            /* The first forward has no earlier order, but step 0 has a second forward. */
            ASSERT(watches[i].forward == (next_forward[i] >= 0));
            ASSERT(watches[i].backward == (next_backward[i] >= 0));
        }
    }
    ASSERT_OK(trainee_close(&m));
}
