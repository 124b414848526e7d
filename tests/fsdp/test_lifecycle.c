/* The life cycle of a unit: when its parameters have data, and that a step that fails or is
 * abandoned has no effect on the next one. Every test trains the same tree sharded over the ranks
 * and on one rank, and expects the same bits. */
#include <fsdp/dtensor.h>

#include "src/base/alloc.h"
#include "src/comm/comm.h"
#include "src/comm/group_testing.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/tree.h"
#include "tests/test.h"

enum {
    LEAVES = 4,
    WIDTH = TREE_EXAMPLE_WIDTH
};

/* What happens between plain steps. */
typedef fsdp_status event(trainee *t, int step);

/* Run a step, the event and a step, twice, in every variant. With only_sharded, the event happens
 * only to the sharded model. */
static void run_event(fsdp_test *t, event *e, bool only_sharded)
{
    fsdp_group_set_delay(t->group, 3, 200);
    for (size_t v = 0; v < TREE_VARIANTS; v++) {
        trainee sharded, one;
        ASSERT_OK(trainee_open_example(t->group, &tree_variants[v], &sharded));
        ASSERT_OK(trainee_open_example(NULL, &tree_variants[v], &one));
        ASSERT_OK(tree_step(&sharded, 0, LEAVES));
        ASSERT_OK(tree_step(&one, 0, LEAVES));
        for (int step = 1; step < 3; step++) {
            ASSERT_OK(e(&sharded, step));
            if (!only_sharded)
                ASSERT_OK(e(&one, step));
            ASSERT(trainee_is_resharded(&sharded));
            ASSERT_OK(tree_step(&sharded, step, LEAVES));
            ASSERT_OK(tree_step(&one, step, LEAVES));
        }
        ASSERT_OK(tree_same_params(&sharded, &one));
        ASSERT_OK(trainee_close(&sharded));
        ASSERT_OK(trainee_close(&one));
    }
}

/* --- parameters have data between unshard and reshard, and only then --- */

TEST_RANKS(parameters_have_data_only_while_their_unit_runs, 2)
{
    for (size_t v = 0; v < TREE_VARIANTS; v++) {
        trainee m;
        ASSERT_OK(trainee_open_example(t->group, &tree_variants[v], &m));
        tree_of(trainee_unit(&m, "second.inner"))->check_unsharded = true;
        ASSERT(trainee_is_resharded(&m));
        ASSERT_OK(tree_evaluate(&m, m.model, 0));
        ASSERT(trainee_is_resharded(&m));
        ASSERT_OK(tree_step(&m, 0, 2));
        ASSERT(trainee_is_resharded(&m));
        ASSERT_OK(trainee_close(&m));
    }
}

TEST_RANKS(reading_outside_of_a_units_forward_is_an_error_that_says_so, 2)
{
    trainee m;
    fsdp_scope *s;
    double value;
    ASSERT_OK(trainee_open_example(t->group, &tree_variants[1], &m));
    fsdp_tensor *data = fsdp_parameter_data(tree_of(m.model)->up);
    ASSERT(!fsdp_tensor_data(data));
    ASSERT(strstr(fsdp_last_error(), "resharded"));
    float values[5 * WIDTH];
    ASSERT_ERROR(fsdp_tensor_to_floats(data, values), FSDP_ERR_STATE, "resharded");
    (void)value;
    ASSERT_OK(tree_scope(&m, NULL, &(tree_call){0}, &s));
    fsdp_linear(s, data, data, NULL);
    ASSERT_ERROR(fsdp_scope_status(s), FSDP_ERR_STATE, "'up' of unit 'root' is resharded");
    fsdp_scope_close(s);
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(unshard_holds_parameters_until_reshard, 2)
{
    for (size_t v = 0; v < TREE_VARIANTS; v++) {
        trainee m;
        ASSERT_OK(trainee_open_example(t->group, &tree_variants[v], &m));
        fsdp_module *first = trainee_unit(&m, "first");
        const fsdp_tensor *data = fsdp_parameter_data(tree_of(first)->up);
        float *full = NULL, held[4 * WIDTH];
        size_t n;
        ASSERT_OK(fsdp_unit_unshard(first));
        ASSERT(fsdp_tensor_has_data(data));
        ASSERT_OK(fsdp_tensor_to_floats(data, held));
        ASSERT_OK(tree_evaluate(&m, m.model, 0));
        ASSERT_OK(tree_forward_backward(&m, m.model, &(tree_call){0}));
        ASSERT(fsdp_tensor_has_data(data));
        ASSERT_ERROR(tree_sgd(first, 0.1f), FSDP_ERR_STATE, "'first' is unsharded");
        ASSERT_ERROR(fsdp_module_init(first, 1), FSDP_ERR_STATE, "reshard");
        ASSERT_OK(fsdp_unit_reshard(first));
        ASSERT(!fsdp_tensor_has_data(data));
        ASSERT_OK(tree_params(first, &full, &n));
        for (int i = 0; i < 4 * WIDTH; i++) /* after norm; equal to bfloat16's precision */
            ASSERT_NEAR(held[i], full[WIDTH + i], 0.01);
        fsdp_free(full);
        ASSERT_OK(tree_sgd(m.model, 0.1f));
        ASSERT_OK(trainee_close(&m));
    }
}

TEST_RANKS(unshard_of_what_is_no_unit_is_refused, 2)
{
    fsdp_module *plain;
    ASSERT_OK(fsdp_linear_create(3, 3, true, (fsdp_init){0}, &plain));
    ASSERT_ERROR(fsdp_unit_unshard(plain), FSDP_ERR_INVALID, "fully_shard");
    ASSERT_ERROR(fsdp_unit_reshard(plain), FSDP_ERR_INVALID, "fully_shard");
    ASSERT(!fsdp_module_is_unit(plain));
    fsdp_module_destroy(plain);
}

/* --- forwards and backwards in unusual orders, the same on one rank --- */

static tree_call leaf_of(const trainee *t, int step, int micro_step, int leaf)
{
    return (tree_call){.step = step,
                       .micro_batch = leaf,
                       .micro_step = micro_step,
                       .n_micro_steps = LEAVES / trainee_world_size(t)};
}

/* Call f for every leaf of this rank, then run SGD. */
static fsdp_status each_leaf(trainee *t, int step, fsdp_status (*f)(trainee *, const tree_call *))
{
    const int world_size = trainee_world_size(t);
    fsdp_module_zero_grad(t->model);
    FSDP_TRY(fsdp_set_gradient_divide_factor(t->model, LEAVES));
    for (int a = 0; a < LEAVES / world_size; a++) {
        tree_call call = leaf_of(t, step, a, a * world_size + trainee_rank(t));
        FSDP_TRY(f(t, &call));
    }
    return tree_sgd(t->model, 0.1f);
}

static fsdp_status twice_in_one_forward(trainee *t, int step)
{
    tree_of(t->model)->calls[0] = 2;
    tree_of(trainee_unit(t, "second"))->calls[0] = 3;
    fsdp_status status = tree_step(t, step, LEAVES);
    tree_of(t->model)->calls[0] = 1;
    tree_of(trainee_unit(t, "second"))->calls[0] = 1;
    return status;
}

TEST_RANKS(a_unit_used_more_than_once_in_a_forward, 2)
{
    run_event(t, twice_in_one_forward, false);
}

static fsdp_status two_forwards(trainee *t, const tree_call *call)
{
    fsdp_scope *s;
    const tree_call calls[2] = {
        *call, {call->step + 50, call->micro_batch, call->micro_step, call->n_micro_steps}};
    fsdp_tensor *y[2];
    FSDP_TRY(tree_scope(t, t->tape, call, &s));
    for (int i = 0; i < 2; i++)
        y[i] = tree_forward(t, s, t->model, &calls[i]);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = tree_backward(t, y, calls, 2);
    fsdp_scope_close(s);
    return status;
}

static fsdp_status two_forwards_one_backward(trainee *t, int step)
{
    return each_leaf(t, step, two_forwards);
}

TEST_RANKS(two_forwards_then_one_backward, 2)
{
    run_event(t, two_forwards_one_backward, false);
}

/* Call "first" and "second" one after the other, without a unit around them. */
static fsdp_status units_one_by_one(trainee *t, const tree_call *call)
{
    fsdp_scope *s;
    FSDP_TRY(tree_scope(t, t->tape, call, &s));
    fsdp_tensor *x = tree_forward(t, s, trainee_unit(t, "first"), call);
    fsdp_tensor *y = fsdp_module_call1(s, trainee_unit(t, "second"), x);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = tree_backward(t, &y, call, 1);
    fsdp_scope_close(s);
    return status;
}

static fsdp_status without_the_root(trainee *t, int step)
{
    return each_leaf(t, step, units_one_by_one);
}

TEST_RANKS(units_called_without_the_root_get_their_gradients, 2)
{
    run_event(t, without_the_root, false);
}

static fsdp_status only_inner(trainee *t, const tree_call *call)
{
    return tree_forward_backward(t, trainee_unit(t, "second.inner"), call);
}

static fsdp_status forward_of_a_nested_unit(trainee *t, int step)
{
    return each_leaf(t, step, only_inner);
}

TEST_RANKS(a_nested_unit_trains_alone, 2)
{
    run_event(t, forward_of_a_nested_unit, false);
}

/* The output of "first" is not used. */
static fsdp_status with_unused_output(trainee *t, const tree_call *call)
{
    fsdp_scope *s;
    FSDP_TRY(tree_scope(t, t->tape, call, &s));
    tree_forward(t, s, trainee_unit(t, "first"), call);
    fsdp_tensor *y = tree_forward(t, s, t->model, call);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = tree_backward(t, &y, call, 1);
    fsdp_scope_close(s);
    return status;
}

static fsdp_status unused_output(trainee *t, int step)
{
    return each_leaf(t, step, with_unused_output);
}

TEST_RANKS(an_output_that_is_not_used_gives_no_gradient, 2)
{
    run_event(t, unused_output, false);
}

static fsdp_status skipped_unit(trainee *t, int step)
{
    tree_of(t->model)->calls[0] = 0;
    fsdp_status status = tree_step(t, step, LEAVES);
    tree_of(t->model)->calls[0] = 1;
    if (status == FSDP_OK && fsdp_parameter_grad(tree_of(trainee_unit(t, "first"))->up))
        return fsdp_error(FSDP_ERR_STATE, "a unit that was not used has a gradient");
    return status;
}

TEST_RANKS(a_unit_that_a_step_skips_has_no_gradient, 2)
{
    run_event(t, skipped_unit, false);
}

/* Leaves 0 and 1 use "first", 2 and 3 do not. */
static fsdp_status first_half_only(trainee *t, const tree_call *call)
{
    tree_of(t->model)->calls[0] = call->micro_batch < LEAVES / 2;
    fsdp_status status = tree_forward_backward(t, t->model, call);
    tree_of(t->model)->calls[0] = 1;
    return status;
}

static fsdp_status used_in_an_earlier_micro_step(trainee *t, int step)
{
    return each_leaf(t, step, first_half_only);
}

TEST_RANKS(a_unit_that_only_an_earlier_micro_step_uses_keeps_its_gradient, 2)
{
    run_event(t, used_in_an_earlier_micro_step, false);
}

/* Two models on one tape and device. The second one reads the output of the first. */
static fsdp_status step_through_both(trainee *a, trainee *b, int step)
{
    const int world_size = trainee_world_size(a), micro_steps = LEAVES / world_size;
    fsdp_module_zero_grad(a->model);
    fsdp_module_zero_grad(b->model);
    FSDP_TRY(fsdp_set_gradient_divide_factor(a->model, LEAVES));
    FSDP_TRY(fsdp_set_gradient_divide_factor(b->model, LEAVES));
    for (int m = 0; m < micro_steps; m++) {
        fsdp_scope *s;
        const tree_call call = leaf_of(a, step, m, m * world_size + trainee_rank(a));
        FSDP_TRY(tree_scope(a, a->tape, &call, &s));
        fsdp_tensor *y = fsdp_module_call1(s, b->model, tree_forward(a, s, a->model, &call));
        fsdp_status status = fsdp_scope_status(s);
        if (status == FSDP_OK)
            status = tree_backward(a, &y, &call, 1);
        fsdp_scope_close(s);
        FSDP_TRY(status);
    }
    FSDP_TRY(tree_sgd(a->model, 0.1f));
    return tree_sgd(b->model, 0.1f);
}

TEST_RANKS(two_models_share_a_tape, 2)
{
    for (size_t v = 0; v < TREE_VARIANTS; v++) {
        trainee a[2], b[2]; /* [0] over the group, [1] over one rank */
        for (int i = 0; i < 2; i++) {
            ASSERT_OK(trainee_open_example(i ? NULL : t->group, &tree_variants[v], &a[i]));
            b[i] = a[i];
            ASSERT_OK(tree_example(WIDTH, &b[i].model));
            ASSERT_OK(tree_example_shard(b[i].model, a[i].group, a[i].device, &tree_variants[v]));
            for (int step = 0; step < 3; step++) {
                ASSERT_OK(step_through_both(&a[i], &b[i], step));
                ASSERT(trainee_is_resharded(&a[i]) && trainee_is_resharded(&b[i]));
            }
        }
        ASSERT_OK(tree_same_params(&a[0], &a[1]));
        ASSERT_OK(tree_same_params(&b[0], &b[1]));
        for (int i = 0; i < 2; i++) {
            fsdp_module_destroy(b[i].model);
            ASSERT_OK(trainee_close(&a[i]));
        }
    }
}

/* --- gradients add up as in PyTorch --- */

TEST_RANKS(a_gradient_that_was_not_zeroed_is_added_to, 2)
{
    trainee m;
    float *once = NULL, *twice = NULL;
    ASSERT_OK(trainee_open_example(t->group, &tree_variants[0], &m));
    const fsdp_parameter *p = tree_of(trainee_unit(&m, "first"))->up;
    const tree_call call = {.micro_batch = t->rank};
    ASSERT_OK(tree_forward_backward(&m, m.model, &call));
    ASSERT_OK(tree_full_grad(p, &once));
    ASSERT_OK(tree_forward_backward(&m, m.model, &call));
    ASSERT_OK(tree_full_grad(p, &twice));
    for (int i = 0; i < 4 * WIDTH; i++)
        ASSERT_F32(twice[i], 2.0f * once[i]);
    fsdp_free(once);
    fsdp_free(twice);
    ASSERT_OK(trainee_close(&m));
}

TEST_RANKS(the_divide_factor_divides_and_zero_is_the_world_size, 2)
{
    trainee m;
    float *mean = NULL, *sum = NULL;
    ASSERT_OK(trainee_open_example(t->group, &tree_variants[0], &m));
    const fsdp_parameter *p = tree_of(trainee_unit(&m, "first"))->up;
    const tree_call call = {.micro_batch = t->rank};
    ASSERT_ERROR(fsdp_set_gradient_divide_factor(m.model, -1.0), FSDP_ERR_INVALID, "-1");
    ASSERT_ERROR(fsdp_set_gradient_divide_factor(m.model, (double)NAN), FSDP_ERR_INVALID, "nan");
    ASSERT_OK(tree_forward_backward(&m, m.model, &call));
    ASSERT_OK(tree_full_grad(p, &mean));
    fsdp_module_zero_grad(m.model);
    ASSERT_OK(fsdp_set_gradient_divide_factor(m.model, 1.0));
    ASSERT_OK(tree_forward_backward(&m, m.model, &call));
    ASSERT_OK(tree_full_grad(p, &sum));
    for (int i = 0; i < 4 * WIDTH; i++)
        ASSERT_F32(sum[i], 2.0f * mean[i]);
    fsdp_free(mean);
    fsdp_free(sum);
    ASSERT_OK(trainee_close(&m));
}

/* --- abandoned steps --- */

static fsdp_status evaluation(trainee *t, int step)
{
    FSDP_TRY(tree_evaluate(t, t->model, step));
    FSDP_TRY(tree_evaluate(t, trainee_unit(t, "second"), step));
    return tree_evaluate(t, t->model, step);
}

TEST_RANKS(evaluation_between_steps_changes_nothing, 2)
{
    run_event(t, evaluation, true);
}

/* Evaluation must see the update. Its output must equal that of a new model of these values. */
TEST_RANKS(evaluation_sees_the_parameters_of_the_last_update, 2)
{
    for (size_t v = 0; v < TREE_VARIANTS; v++) {
        trainee m, one;
        ASSERT_OK(trainee_open_example(t->group, &tree_variants[v], &m));
        ASSERT_OK(trainee_open_example(NULL, &tree_variants[v], &one));
        for (int step = 0; step < 3; step++) {
            fsdp_scope *s[2];
            const tree_call call = {.step = step};
            float y[2][TREE_ROWS * WIDTH];
            ASSERT_OK(tree_step(&m, step, LEAVES));
            ASSERT_OK(tree_step(&one, step, LEAVES));
            for (int i = 0; i < 2; i++) {
                trainee *who = i ? &one : &m;
                ASSERT_OK(tree_scope(who, NULL, &call, &s[i]));
                fsdp_tensor *out = tree_forward(who, s[i], who->model, &call);
                ASSERT_OK(fsdp_scope_status(s[i]));
                ASSERT_OK(fsdp_tensor_to_floats(out, y[i]));
                fsdp_scope_close(s[i]);
            }
            ASSERT(memcmp(y[0], y[1], sizeof y[0]) == 0);
        }
        ASSERT_OK(trainee_close(&m));
        ASSERT_OK(trainee_close(&one));
    }
}

static fsdp_status evaluate_then_backward(trainee *t, const tree_call *call)
{
    fsdp_scope *s;
    FSDP_TRY(tree_scope(t, t->tape, call, &s));
    fsdp_tensor *y = tree_forward(t, s, t->model, call);
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = tree_evaluate(t, t->model, call->step);
    if (status == FSDP_OK)
        status = tree_backward(t, &y, call, 1);
    fsdp_scope_close(s);
    return status;
}

static fsdp_status evaluation_before_backward(trainee *t, int step)
{
    return each_leaf(t, step, evaluate_then_backward);
}

TEST_RANKS(evaluation_between_forward_and_backward, 2)
{
    run_event(t, evaluation_before_backward, false);
}

static fsdp_status forward_alone(trainee *t, int step)
{
    fsdp_scope *s;
    const tree_call call = {.step = step + 20, .micro_batch = trainee_rank(t)};
    FSDP_TRY(tree_scope(t, t->tape, &call, &s));
    tree_forward(t, s, t->model, &call);
    fsdp_status status = fsdp_scope_status(s);
    fsdp_scope_close(s);
    fsdp_tape_reset(t->tape);
    return status;
}

TEST_RANKS(a_forward_without_backward_is_cancelled_by_a_reset, 2)
{
    run_event(t, forward_alone, true);
}

static fsdp_status forward_with_a_lost_tape(trainee *t, int step)
{
    fsdp_scope *s;
    const tree_call call = {.step = step + 20, .micro_batch = trainee_rank(t)};
    FSDP_TRY(tree_scope(t, t->tape, &call, &s));
    tree_forward(t, s, t->model, &call);
    fsdp_status status = fsdp_scope_status(s);
    fsdp_scope_close(s);
    fsdp_tape_destroy(t->tape);
    t->tape = NULL;
    FSDP_TRY(status);
    return fsdp_tape_create(&t->tape);
}

TEST_RANKS(a_forward_without_backward_is_cancelled_with_its_tape, 2)
{
    run_event(t, forward_with_a_lost_tape, true);
}

static fsdp_status expect_failure(fsdp_status status, const char *text)
{
    if (status == FSDP_ERR_INVALID && strstr(fsdp_last_error(), text))
        return FSDP_OK;
    return fsdp_error(FSDP_ERR_STATE, "%s instead of a failure: %s", fsdp_status_name(status),
                      fsdp_last_error());
}

/* The second of two micro-steps fails in a nested unit, after other units have run. */
static fsdp_status failing_forward(trainee *t, int step)
{
    const tree_call calls[2] = {{.step = step + 30, .n_micro_steps = 2},
                                {.step = step + 30, .micro_step = 1, .n_micro_steps = 2}};
    FSDP_TRY(tree_forward_backward(t, t->model, &calls[0]));
    tree_of(trainee_unit(t, "second.inner"))->fail_forward = true;
    fsdp_status status = tree_forward_backward(t, t->model, &calls[1]);
    FSDP_TRY(expect_failure(status, "fails in forward"));
    FSDP_TRY(expect_failure(tree_evaluate(t, t->model, step), "fails in forward"));
    tree_of(trainee_unit(t, "second.inner"))->fail_forward = false;
    return FSDP_OK;
}

TEST_RANKS(a_failing_forward_is_cancelled, 2)
{
    run_event(t, failing_forward, true);
}

static fsdp_status failing_backwards(trainee *t, int step)
{
    static const char *const units[] = {"", "first", "second", "second.inner"};
    for (size_t i = 0; i < 4; i++) {
        const tree_call call = {.step = step + 30, .micro_batch = trainee_rank(t)};
        tree_of(trainee_unit(t, units[i]))->fail_backward = true;
        fsdp_status status = tree_forward_backward(t, t->model, &call);
        tree_of(trainee_unit(t, units[i]))->fail_backward = false;
        FSDP_TRY(expect_failure(status, "fails in backward"));
    }
    return FSDP_OK;
}

TEST_RANKS(a_failing_backward_is_cancelled, 2)
{
    run_event(t, failing_backwards, true);
}

/* The micro-steps of an abandoned step must not add to the next step. */
static fsdp_status abandoned_step(trainee *t, int step)
{
    return tree_forward_backward(t, t->model, &(tree_call){.step = step + 40, .n_micro_steps = 3});
}

TEST_RANKS(a_step_given_up_after_a_micro_step_leaves_no_trace, 2)
{
    run_event(t, abandoned_step, true);
}
