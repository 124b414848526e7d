/* Ranks that do not do the same: an error on all of them, within seconds, that names rank and unit.
 */
#include <stdio.h>

#include "src/base/clock.h"
#include "src/comm/comm.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    RANKS = 3
};

/* What rank 1 does, while the others do a step. */
typedef fsdp_status odd_one_out(trainee *m);

typedef struct job {
    odd_one_out *odd;
    const fsdp_fully_shard_options *options;
    bool freeze_up; /* of unit "second", after the first step */
    char message[RANKS][1024];
    fsdp_status status[RANKS];
} job;

static fsdp_status one_rank(fsdp_group *group, void *arg)
{
    job *j = arg;
    const int rank = fsdp_group_rank(group);
    trainee m;
    FSDP_TRY(trainee_open_example(group, j->options, &m));
    fsdp_status status = tree_step(&m, 0, RANKS * 2);
    fsdp_parameter_set_requires_grad(tree_of(trainee_unit(&m, "second"))->up, !j->freeze_up);
    if (status == FSDP_OK)
        status = rank == 1 ? j->odd(&m) : tree_step(&m, 1, RANKS * 2);
    /* What a rank did not notice in its step it notices in the next. */
    if (status == FSDP_OK)
        status = tree_step(&m, 2, RANKS * 2);
    snprintf(j->message[rank], sizeof j->message[rank], "%s", fsdp_last_error());
    fsdp_group_abort(group, status);
    fsdp_status closed = trainee_close(&m);
    if (closed != FSDP_OK)
        return closed;
    return status == FSDP_OK ? FSDP_OK : fsdp_error(status, "%s", j->message[rank]);
}

static fsdp_status other_order(trainee *m)
{
    fsdp_scope *s;
    const tree_call call = {.step = 1, .n_micro_steps = 2};
    FSDP_TRY(tree_scope(m, m->tape, &call, &s));
    fsdp_tensor *y = tree_forward(m, s, trainee_unit(m, "second"), &call);
    y = fsdp_module_call1(s, trainee_unit(m, "first"), y);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = tree_backward(m, &y, &call, 1);
    fsdp_scope_close(s);
    return status == FSDP_OK ? tree_sgd(m->model, 0.1f) : status;
}

static fsdp_status skip_first(trainee *m)
{
    tree_of(m->model)->calls[0] = 0;
    fsdp_status status = tree_step(m, 1, RANKS * 2);
    tree_of(m->model)->calls[0] = 1;
    return status;
}

static fsdp_status use_first_twice(trainee *m)
{
    tree_of(m->model)->calls[0] = 2;
    fsdp_status status = tree_step(m, 1, RANKS * 2);
    tree_of(m->model)->calls[0] = 1;
    return status;
}

static fsdp_status other_step(trainee *m)
{
    return tree_step(m, 7, RANKS * 2);
}

static fsdp_status freeze_one(trainee *m)
{
    fsdp_parameter_set_requires_grad(tree_of(trainee_unit(m, "second"))->up, false);
    return tree_step(m, 1, RANKS * 2);
}

/* Of the same size as what the others freeze, so that no count of bytes tells. */
static fsdp_status freeze_another(trainee *m)
{
    fsdp_parameter_set_requires_grad(tree_of(trainee_unit(m, "second"))->up, true);
    fsdp_parameter_set_requires_grad(tree_of(trainee_unit(m, "second"))->down, false);
    return tree_step(m, 1, RANKS * 2);
}

static fsdp_status one_micro_step_less(trainee *m)
{
    return tree_step(m, 1, RANKS);
}

static fsdp_status evaluate_alone(trainee *m)
{
    FSDP_TRY(tree_evaluate(m, m->model, 1));
    return tree_step(m, 1, RANKS * 2);
}

static fsdp_status fail_in_forward(trainee *m)
{
    tree_of(trainee_unit(m, "second.inner"))->fail_forward = true;
    return tree_step(m, 1, RANKS * 2);
}

static fsdp_status fail_in_backward(trainee *m)
{
    tree_of(trainee_unit(m, "second.inner"))->fail_backward = true;
    return tree_step(m, 1, RANKS * 2);
}

/* All fail within seconds; messages contain `text` and, if given, `also`. */
static void expect(fsdp_test *t, odd_one_out *odd, int variant, fsdp_status status,
                   const char *text, const char *also)
{
    job j = {.odd = odd, .options = &tree_variants[variant], .freeze_up = odd == freeze_another};
    double start = fsdp_clock_s();
    fsdp_status first = fsdp_run_ranks(RANKS, one_rank, &j, j.status);
    ASSERT(first != FSDP_OK);
    ASSERT(fsdp_clock_s() - start < 5.0);
    for (int r = 0; r < RANKS; r++) {
        if (j.status[r] != FSDP_ERR_COMM && !(r == 1 && j.status[r] == status))
            FAIL("variant %d: rank %d: %s: %s", variant, r, fsdp_status_name(j.status[r]),
                 j.message[r]);
        if (!strstr(j.message[r], text) || (also && r != 1 && !strstr(j.message[r], also)))
            FAIL("variant %d: rank %d says: %s", variant, r, j.message[r]);
    }
}

static void diverges(fsdp_test *t, odd_one_out *odd, bool no_shard_too)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        if (tree_variants[v].no_shard && !no_shard_too)
            continue;
        expect(t, odd, v, FSDP_ERR_COMM, "rank 1", "unit");
        CHECK_HERE();
    }
}

TEST(another_order_of_units)
{
    diverges(t, other_order, true);
}

TEST(a_skipped_unit)
{
    diverges(t, skip_first, true);
}

/* Where units are kept after forward, the second use is no communication, and no harm. */
TEST(a_unit_used_twice)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        if (tree_variants[v].no_shard ||
            tree_variants[v].reshard_after_forward == FSDP_RESHARD_FALSE)
            continue;
        expect(t, use_first_twice, v, FSDP_ERR_COMM, "rank 1", "unit");
        CHECK_HERE();
    }
}

TEST(another_step_number)
{
    diverges(t, other_step, true);
}

TEST(another_set_of_frozen_parameters)
{
    diverges(t, freeze_one, true);
}

TEST(other_frozen_parameters_of_the_same_size)
{
    diverges(t, freeze_another, true);
}

TEST(another_number_of_micro_steps)
{
    diverges(t, one_micro_step_less, true);
}

TEST(an_evaluation_on_one_rank_alone)
{
    diverges(t, evaluate_alone, false);
}

TEST(a_rank_that_fails_mid_step_ends_the_others)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        expect(t, fail_in_forward, v, FSDP_ERR_INVALID, "fails in forward on purpose",
               "rank 1 failed in step 2, unit second.inner, forward");
        CHECK_HERE();
        expect(t, fail_in_backward, v, FSDP_ERR_INVALID, "fails in backward on purpose",
               "rank 1 failed in step 2, unit second.inner, backward");
        CHECK_HERE();
    }
}

/* A rank that returns as if all were done. */
static fsdp_status leaves_early(fsdp_group *group, void *arg)
{
    trainee m;
    (void)arg;
    FSDP_TRY(trainee_open_example(group, &tree_variants[0], &m));
    FSDP_TRY(tree_step(&m, 0, RANKS));
    fsdp_status status = fsdp_group_rank(group) == 2 ? FSDP_OK : tree_step(&m, 1, RANKS);
    fsdp_group_abort(group, status);
    FSDP_TRY(trainee_close(&m));
    return status;
}

TEST(a_rank_that_leaves_early)
{
    fsdp_status status[RANKS];
    double start = fsdp_clock_s();
    fsdp_status first = fsdp_run_ranks(RANKS, leaves_early, NULL, status);
    ASSERT_INT(first, FSDP_ERR_COMM);
    ASSERT(strstr(fsdp_last_error(), "rank 2"));
    ASSERT(fsdp_clock_s() - start < 5.0);
    ASSERT_INT(status[0], FSDP_ERR_COMM);
    ASSERT_INT(status[1], FSDP_ERR_COMM);
    ASSERT_INT(status[2], FSDP_OK);
}

/* Models of other shapes on one rank. */
static fsdp_status other_shape(fsdp_group *group, void *arg)
{
    trainee m;
    (void)arg;
    const int64_t width = fsdp_group_rank(group) == 1 ? 8 : 7;
    FSDP_TRY(trainee_open(group, "cpu", FSDP_DTYPE_F32, &m));
    FSDP_TRY(tree_example(width, &m.model));
    fsdp_status status = tree_example_shard(m.model, group, m.device, NULL);
    fsdp_group_abort(group, status);
    FSDP_TRY(trainee_close(&m));
    return status;
}

TEST(a_model_of_another_shape)
{
    ASSERT_ERROR(fsdp_run_ranks(RANKS, other_shape, NULL, NULL), FSDP_ERR_COMM, "rank 1");
}
