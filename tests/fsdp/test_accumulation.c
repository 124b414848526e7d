/* Gradient accumulation in its three modes: reduce every micro-step, reduce-scatter alone, no
 * communication. Checks exactly what each mode sends, and that all give the same gradients up to
 * rounding. */
#include <math.h>

#include "src/base/alloc.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/chain.h"
#include "tests/test.h"

enum {
    MICRO_STEPS = 3,
    MAX_NUMEL = 1024
};

static const fsdp_mp_policy policies[] = {
    {.param_dtype = FSDP_DTYPE_F32},
    {.param_dtype = FSDP_DTYPE_BF16},
    {.param_dtype = FSDP_DTYPE_BF16, .reduce_dtype = FSDP_DTYPE_BF16},
};

/* --- gradients --- */

typedef struct gradients {
    float values[MAX_NUMEL];
    size_t n;
    int present; /* parameters that have a gradient */
} gradients;

static fsdp_status add_gradient(const fsdp_parameter *p, gradients *g)
{
    float *values;
    const size_t numel = (size_t)fsdp_parameter_numel(p);
    FSDP_TRY(tree_full_grad(p, &values));
    g->present += values != NULL;
    for (size_t i = 0; i < numel && g->n < MAX_NUMEL; i++)
        g->values[g->n++] = values ? values[i] : 0.0f;
    fsdp_free(values);
    return FSDP_OK;
}

static fsdp_status gradients_of(fsdp_module *m, gradients *g)
{
    fsdp_parameter_list list;
    *g = (gradients){.n = 0};
    FSDP_TRY(fsdp_module_parameters(m, false, &list));
    fsdp_status status = FSDP_OK;
    for (size_t i = 0; i < list.n && status == FSDP_OK; i++)
        status = add_gradient(list.items[i].parameter, g);
    fsdp_parameter_list_free(&list);
    return status;
}

static void check_close(fsdp_test *t, const gradients *a, const gradients *b, double tolerance)
{
    double largest = 0.0, difference = 0.0;
    ASSERT_INT(a->n, b->n);
    ASSERT_INT(a->present, b->present);
    ASSERT(a->n < MAX_NUMEL);
    for (size_t i = 0; i < a->n; i++) {
        largest = fmax(largest, fabs((double)b->values[i]));
        difference = fmax(difference, fabs((double)a->values[i] - (double)b->values[i]));
    }
    ASSERT(largest > 0.0);
    if (!(difference <= tolerance * largest))
        FAIL("gradients up to %g differ by %g", largest, difference);
}

/* The gradients if every micro-step is reduced. */
static fsdp_status reference(fsdp_group *group, const fsdp_fully_shard_options *o, gradients *g)
{
    chain c;
    FSDP_TRY(chain_open(group, o, &c));
    for (int a = 0; a < MICRO_STEPS; a++)
        FSDP_TRY(chain_micro_step(&c, 0, a, MICRO_STEPS));
    FSDP_TRY(gradients_of(c.m.model, g));
    return chain_close(&c);
}

/* With a reduce_dtype below float32, each reduce rounds once. */
static double tolerance_of(const fsdp_mp_policy *mp)
{
    return mp->reduce_dtype == FSDP_DTYPE_BF16 ? 0.02 : 1e-5;
}

/* --- no communication --- */

/* declared = false is PyTorch's way: the scope has no number of micro-steps; only the controls say
 * when to communicate. */
static fsdp_status run_micro_step(chain *c, int step, int a, bool declared)
{
    if (declared)
        return chain_micro_step(c, step, a, MICRO_STEPS);
    return tree_forward_backward(
        &c->m, c->m.model,
        &(tree_call){.step = step,
                     .micro_batch = a * trainee_world_size(&c->m) + trainee_rank(&c->m)});
}

/* Micro-step a of a step that communicates only in its last micro-step. */
static fsdp_status micro_step_of(chain *c, int step, int a, bool declared)
{
    FSDP_TRY(fsdp_set_requires_gradient_sync(c->m.model, a == MICRO_STEPS - 1, true));
    return run_micro_step(c, step, a, declared);
}

static void check_without_communication(fsdp_test *t, const fsdp_mp_policy *mp, bool declared)
{
    const fsdp_fully_shard_options o = {.mp_policy = *mp};
    chain c;
    gradients want, got;
    ASSERT_OK(reference(t->group, &o, &want));
    ASSERT_OK(chain_open(t->group, &o, &c));
    const uint64_t total = chain_total(&c);
    for (int step = 0; step < 2; step++) {
        for (int a = 0; a < MICRO_STEPS; a++) {
            ASSERT_OK(micro_step_of(&c, 0, a, declared));
            const bool last = a == MICRO_STEPS - 1;
            const fsdp_comm_counters n = chain_counts(&c);
            ASSERT_INT(n.calls[FSDP_KIND_ALL_GATHER], 2 * CHAIN_UNITS - 1);
            ASSERT_INT(n.logical_bytes[FSDP_KIND_ALL_GATHER],
                       (2 * total - chain_numel(&c, CHAIN_BLOCKS)) *
                           fsdp_dtype_size(mp->param_dtype));
            ASSERT_INT(n.calls[FSDP_KIND_REDUCE_SCATTER], last ? CHAIN_UNITS : 0);
            ASSERT_INT(n.logical_bytes[FSDP_KIND_REDUCE_SCATTER],
                       last ? total * fsdp_dtype_size(mp->reduce_dtype) : 0);
            ASSERT_INT(n.calls[FSDP_KIND_GRADIENT], a == 0 ? CHAIN_UNITS : 0);
            ASSERT_INT(n.moved_bytes, 0);
            ASSERT_OK(gradients_of(c.m.model, &got));
            ASSERT(last ? got.present > 0 : got.present == 0);
            chain_counts(&c);
        }
        check_close(t, &got, &want, tolerance_of(mp));
        CHECK_HERE();
        fsdp_module_zero_grad(c.m.model);
    }
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(without_communication_gradients_add_up_until_the_last_micro_step, 2)
{
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        for (int declared = 0; declared < 2; declared++) {
            check_without_communication(t, &policies[p], declared);
            CHECK_HERE();
        }
}

/* Without communication every rank keeps whole gradient buffers. The meta device counts them as
 * well. */
TEST_RANKS(accumulation_without_communication_takes_a_gradient_buffer_for_every_unit, 2)
{
    chain c;
    fsdp_memory_stats before, after;
    ASSERT_OK(chain_open(t->group, &tree_variants[0], &c));
    ASSERT_OK(fsdp_no_sync_begin(c.m.model));
    fsdp_device_memory(c.m.device, &before);
    ASSERT_OK(chain_run(&c, 0));
    fsdp_device_memory(c.m.device, &after);
    ASSERT(after.tag_allocated[FSDP_TAG_GRAD] - before.tag_allocated[FSDP_TAG_GRAD] >=
           (int64_t)chain_total(&c) * 4);
    for (int a = 0; a < 3; a++)
        ASSERT_OK(chain_run(&c, 0));
    fsdp_device_memory(c.m.device, &before);
    ASSERT_INT(before.tag_allocated[FSDP_TAG_GRAD], after.tag_allocated[FSDP_TAG_GRAD]);
    ASSERT_OK(chain_close(&c)); /* with gradients in all buffers */
}

TEST_RANKS(one_unit_alone_waits_if_the_control_does_not_recurse, 2)
{
    chain c;
    ASSERT_OK(chain_open(t->group, &tree_variants[0], &c));
    ASSERT_OK(fsdp_set_requires_gradient_sync(c.units[1], false, false));
    ASSERT_OK(fsdp_set_requires_gradient_sync(c.m.model, false, false));
    ASSERT_OK(chain_run(&c, 0));
    fsdp_comm_counters n = chain_counts(&c);
    ASSERT_INT(n.calls[FSDP_KIND_REDUCE_SCATTER], CHAIN_UNITS - 2);
    ASSERT(!fsdp_parameter_grad(tree_of(c.units[1])->up));
    ASSERT(!fsdp_parameter_grad(tree_of(c.m.model)->up));
    ASSERT(fsdp_parameter_grad(tree_of(c.units[2])->up));
    ASSERT_OK(fsdp_set_requires_gradient_sync(c.m.model, true, true));
    ASSERT_OK(chain_run(&c, 0));
    n = chain_counts(&c);
    ASSERT_INT(n.calls[FSDP_KIND_REDUCE_SCATTER], CHAIN_UNITS);
    /* Both gradients contain both backwards. */
    float *waited = NULL, *once = NULL;
    ASSERT_OK(tree_full_grad(tree_of(c.units[1])->up, &waited));
    fsdp_module_zero_grad(c.m.model);
    ASSERT_OK(chain_run(&c, 0));
    ASSERT_OK(tree_full_grad(tree_of(c.units[1])->up, &once));
    for (int i = 0; i < 4 * 7; i++)
        ASSERT_NEAR(waited[i], 2.0f * once[i], 1e-5);
    fsdp_free(waited);
    fsdp_free(once);
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(no_sync_begins_and_ends, 2)
{
    chain c;
    fsdp_unit_info info;
    ASSERT_OK(chain_open(t->group, &tree_variants[1], &c));
    ASSERT_ERROR(fsdp_no_sync_end(c.m.model), FSDP_ERR_STATE, "has not begun");
    ASSERT_ERROR(fsdp_no_sync_begin(c.units[0]), FSDP_ERR_INVALID, "no_sync: unit '' is around");
    ASSERT_OK(fsdp_set_requires_gradient_sync(c.units[0], false, false));
    ASSERT_OK(fsdp_no_sync_begin(c.m.model));
    ASSERT_ERROR(fsdp_no_sync_begin(c.m.model), FSDP_ERR_STATE, "has begun already");
    ASSERT_OK(fsdp_unit_get_info(c.units[1], &info));
    ASSERT(!info.requires_gradient_sync);
    ASSERT_OK(chain_run(&c, 0));
    ASSERT_INT(chain_counts(&c).calls[FSDP_KIND_REDUCE_SCATTER], 0);
    ASSERT_OK(fsdp_no_sync_end(c.m.model));
    ASSERT_OK(chain_run(&c, 0)); /* the first unit now runs as before */
    ASSERT_INT(chain_counts(&c).calls[FSDP_KIND_REDUCE_SCATTER], CHAIN_UNITS - 1);
    ASSERT_OK(fsdp_unit_get_info(c.units[1], &info));
    ASSERT(info.requires_gradient_sync);
    ASSERT_OK(chain_close(&c));
}

/* The unit runs only in the first micro-step. Its gradient is reduced at the end of the last. */
TEST_RANKS(a_unit_that_the_last_micro_step_skips_is_reduced_all_the_same, 2)
{
    chain c;
    ASSERT_OK(chain_open(t->group, &tree_variants[0], &c));
    for (int a = 0; a < 2; a++) {
        ASSERT_OK(fsdp_set_requires_gradient_sync(c.m.model, a == 1, true));
        tree_of(c.m.model)->calls[3] = a == 0;
        ASSERT_OK(chain_micro_step(&c, 0, a, 2));
    }
    ASSERT_INT(chain_counts(&c).calls[FSDP_KIND_REDUCE_SCATTER], CHAIN_UNITS);
    ASSERT(fsdp_parameter_grad(tree_of(c.units[3])->up));
    ASSERT_OK(chain_close(&c));
}

/* --- steps without effect on the next --- */

typedef fsdp_status disturb_fn(chain *c);

static fsdp_status evaluate(chain *c)
{
    return tree_evaluate(&c->m, c->m.model, 7);
}

static fsdp_status fail_first(chain *c)
{
    FSDP_TRY(fsdp_set_requires_gradient_sync(c->m.model, false, true));
    FSDP_TRY(chain_run(c, 3));
    tree_of(c->units[2])->fail_forward = true;
    fsdp_status status = chain_run(c, 3);
    tree_of(c->units[2])->fail_forward = false;
    return status == FSDP_ERR_INVALID ? FSDP_OK : FSDP_ERR_STATE;
}

static fsdp_status give_up(chain *c)
{
    FSDP_TRY(fsdp_set_requires_gradient_sync(c->m.model, false, true));
    return chain_micro_step(c, 3, 0, 2);
}

static fsdp_status reset(chain *c)
{
    fsdp_scope *s;
    const tree_call call = {.step = 3};
    FSDP_TRY(give_up(c));
    FSDP_TRY(tree_scope(&c->m, c->m.tape, &call, &s));
    tree_forward(&c->m, s, c->m.model, &call);
    fsdp_status status = fsdp_scope_status(s);
    fsdp_scope_close(s);
    fsdp_tape_reset(c->m.tape);
    return status;
}

static void check_disturbed(fsdp_test *t, disturb_fn *before, disturb_fn *between)
{
    const fsdp_fully_shard_options *o = &tree_variants[1];
    chain c;
    gradients want, got;
    ASSERT_OK(reference(t->group, o, &want));
    ASSERT_OK(chain_open(t->group, o, &c));
    if (before)
        ASSERT_OK(before(&c));
    for (int a = 0; a < MICRO_STEPS; a++) {
        ASSERT_OK(micro_step_of(&c, 0, a, true));
        if (between)
            ASSERT_OK(between(&c));
    }
    ASSERT_OK(gradients_of(c.m.model, &got));
    check_close(t, &got, &want, 1e-5);
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(evaluation_between_micro_steps_changes_nothing, 2)
{
    check_disturbed(t, NULL, evaluate);
}

static fsdp_status fail_evaluation(chain *c)
{
    tree_of(c->units[2])->fail_forward = true;
    fsdp_status status = tree_evaluate(&c->m, c->m.model, 7);
    tree_of(c->units[2])->fail_forward = false;
    return status == FSDP_ERR_INVALID ? FSDP_OK : FSDP_ERR_STATE;
}

TEST_RANKS(an_evaluation_that_fails_changes_nothing, 2)
{
    check_disturbed(t, NULL, fail_evaluation);
}

/* Here the sums of earlier micro-steps are sharded. */
TEST_RANKS(an_evaluation_that_fails_drops_no_sums, 2)
{
    chain c;
    gradients want, got;
    ASSERT_OK(reference(t->group, &tree_variants[1], &want));
    ASSERT_OK(chain_open(t->group, &tree_variants[1], &c));
    for (int a = 0; a < MICRO_STEPS; a++) {
        ASSERT_OK(fail_evaluation(&c));
        ASSERT_OK(chain_micro_step(&c, 0, a, MICRO_STEPS));
    }
    ASSERT_OK(gradients_of(c.m.model, &got));
    check_close(t, &got, &want, 0.0);
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(a_step_that_lost_sums_begins_again, 2)
{
    chain c;
    gradients want, got;
    ASSERT_OK(reference(t->group, &tree_variants[1], &want));
    ASSERT_OK(chain_open(t->group, &tree_variants[1], &c));
    for (int backward = 0; backward < 2; backward++) {
        tree *failing = tree_of(c.units[2]);
        ASSERT_OK(chain_micro_step(&c, 0, 0, MICRO_STEPS));
        failing->fail_forward = !backward;
        failing->fail_backward = backward;
        ASSERT(chain_micro_step(&c, 0, 1, MICRO_STEPS) != FSDP_OK);
        failing->fail_forward = failing->fail_backward = false;
        for (int a = 1; a < MICRO_STEPS; a++)
            ASSERT_ERROR(chain_micro_step(&c, 0, a, MICRO_STEPS), FSDP_ERR_STATE,
                         "begin it again with micro_step 0");
        ASSERT_OK(evaluate(&c));
        for (int a = 0; a < MICRO_STEPS; a++)
            ASSERT_OK(chain_micro_step(&c, 0, a, MICRO_STEPS));
        ASSERT_OK(gradients_of(c.m.model, &got));
        check_close(t, &got, &want, 0.0);
        fsdp_module_zero_grad(c.m.model);
    }
    ASSERT_OK(chain_close(&c));
}

/* Backward from a forward of a later micro-step that ran before the loss is an error as well. */
TEST_RANKS(a_backward_of_a_step_that_lost_sums_is_an_error, 2)
{
    const tree_call calls[] = {{.micro_step = 1, .n_micro_steps = MICRO_STEPS},
                               {.micro_step = 2, .n_micro_steps = MICRO_STEPS}};
    chain c;
    fsdp_scope *s, *s_other;
    fsdp_tape *other;
    gradients want, got;
    ASSERT_OK(reference(t->group, &tree_variants[1], &want));
    ASSERT_OK(chain_open(t->group, &tree_variants[1], &c));
    ASSERT_OK(fsdp_tape_create(&other));
    ASSERT_OK(chain_micro_step(&c, 0, 0, MICRO_STEPS));
    ASSERT_OK(tree_scope(&c.m, c.m.tape, &calls[0], &s));
    fsdp_tensor *y = tree_forward(&c.m, s, c.m.model, &calls[0]);
    ASSERT_OK(tree_scope(&c.m, other, &calls[1], &s_other));
    ASSERT(tree_forward(&c.m, s_other, c.m.model, &calls[1]));
    fsdp_scope_close(s_other);
    fsdp_tape_reset(other);
    ASSERT_ERROR(tree_backward(&c.m, &y, calls, 1), FSDP_ERR_STATE,
                 "begin it again with micro_step 0");
    fsdp_scope_close(s);
    for (int a = 0; a < MICRO_STEPS; a++)
        ASSERT_OK(chain_micro_step(&c, 0, a, MICRO_STEPS));
    ASSERT_OK(gradients_of(c.m.model, &got));
    check_close(t, &got, &want, 0.0);
    fsdp_tape_destroy(other);
    ASSERT_OK(chain_close(&c));
}

/* Leaf 0 twice, as two backwards of micro-step 0 or as micro-steps 0 and 1; then leaf 2. */
static fsdp_status leaf_twice(fsdp_group *group, bool one_micro_step, gradients *g)
{
    chain c;
    FSDP_TRY(chain_open(group, &tree_variants[1], &c));
    tree_call call = {.micro_batch = trainee_rank(&c.m), .n_micro_steps = MICRO_STEPS};
    for (int k = 0; k < 2; k++) {
        if (one_micro_step)
            FSDP_TRY(fsdp_set_is_last_backward(c.m.model, k == 1));
        else
            call.micro_step = k;
        FSDP_TRY(tree_forward_backward(&c.m, c.m.model, &call));
    }
    FSDP_TRY(chain_micro_step(&c, 0, 2, MICRO_STEPS));
    FSDP_TRY(gradients_of(c.m.model, g));
    return chain_close(&c);
}

TEST_RANKS(a_first_micro_step_of_two_backwards_keeps_both, 2)
{
    gradients want, got;
    ASSERT_OK(leaf_twice(t->group, false, &want));
    ASSERT_OK(leaf_twice(t->group, true, &got));
    check_close(t, &got, &want, 1e-6);
}

/* The last micro-step does not communicate. The gradient is the sum of the micro-steps that did. */
TEST_RANKS(sums_are_the_gradient_though_the_last_micro_step_does_not_communicate, 2)
{
    chain c;
    gradients want, got;
    ASSERT_OK(chain_open(t->group, &tree_variants[1], &c));
    ASSERT_OK(chain_micro_step(&c, 0, 0, 1));
    ASSERT_OK(gradients_of(c.m.model, &want));
    fsdp_module_zero_grad(c.m.model);
    for (int a = 0; a < 2; a++) {
        ASSERT_OK(fsdp_set_requires_gradient_sync(c.m.model, a == 0, true));
        ASSERT_OK(chain_micro_step(&c, 0, a, 2));
    }
    ASSERT_OK(gradients_of(c.m.model, &got));
    check_close(t, &got, &want, 1e-6);
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(gradients_that_added_up_before_a_failure_are_dropped, 2)
{
    check_disturbed(t, fail_first, NULL);
    check_disturbed(t, give_up, NULL);
    check_disturbed(t, reset, NULL);
}

TEST_RANKS(unfreezing_while_gradients_add_up_is_an_error, 2)
{
    chain c;
    fsdp_parameter *up;
    ASSERT_OK(chain_open(t->group, &tree_variants[0], &c));
    up = tree_of(c.units[1])->up;
    fsdp_parameter_set_requires_grad(up, false);
    ASSERT_OK(fsdp_no_sync_begin(c.m.model));
    ASSERT_OK(chain_run(&c, 0));
    fsdp_parameter_set_requires_grad(up, true);
    ASSERT_ERROR(chain_run(&c, 0), FSDP_ERR_STATE, "'up' of unit 'b.unit' was unfrozen");
    ASSERT_OK(fsdp_no_sync_end(c.m.model));
    ASSERT_OK(chain_run(&c, 1));
    ASSERT(fsdp_parameter_grad(up));
    ASSERT_OK(chain_close(&c));
}

/* --- reduce-scatter alone --- */

static uint64_t calls_of(const fsdp_device_mesh *mesh, int dim, fsdp_phase_kind kind,
                         uint64_t *bytes)
{
    const fsdp_comm_counters *n = fsdp_group_counters(fsdp_device_mesh_group(mesh, dim));
    *bytes = n->logical_bytes[kind];
    return n->calls[kind];
}

static uint64_t moved_over(const fsdp_device_mesh *mesh)
{
    return fsdp_group_counters(fsdp_device_mesh_group(mesh, 0))->moved_bytes +
           fsdp_group_counters(fsdp_device_mesh_group(mesh, 1))->moved_bytes;
}

static uint64_t local_total(const chain *c)
{
    uint64_t n = 0;
    fsdp_unit_info info;
    for (int i = 0; i < CHAIN_UNITS; i++)
        n += fsdp_unit_get_info(c->units[i], &info) == FSDP_OK ? (uint64_t)info.local_numel : 0;
    return n;
}

static void check_reduce_scatter_alone(fsdp_test *t, const fsdp_device_mesh *mesh,
                                       const fsdp_mp_policy *mp, bool declared)
{
    const fsdp_fully_shard_options o = {.mp_policy = *mp, .mesh = mesh};
    const uint64_t element = fsdp_dtype_size(mp->reduce_dtype);
    chain c;
    gradients want, got;
    ASSERT_OK(reference(t->group, &o, &want));
    ASSERT_OK(chain_open(t->group, &o, &c));
    for (int a = 0; a < MICRO_STEPS; a++) {
        const bool last = a == MICRO_STEPS - 1;
        uint64_t row_bytes, column_bytes, row_after, column_after;
        ASSERT_OK(fsdp_set_requires_all_reduce(c.m.model, last, true));
        const uint64_t row = calls_of(mesh, 1, FSDP_KIND_REDUCE_SCATTER, &row_bytes);
        const uint64_t column = calls_of(mesh, 0, FSDP_KIND_ALL_REDUCE, &column_bytes);
        const uint64_t moved = moved_over(mesh);
        ASSERT_OK(run_micro_step(&c, 0, a, declared));
        ASSERT_INT(moved_over(mesh) - moved, 0);
        ASSERT_INT(calls_of(mesh, 1, FSDP_KIND_REDUCE_SCATTER, &row_after) - row, CHAIN_UNITS);
        ASSERT_INT(row_after - row_bytes, chain_total(&c) * element);
        ASSERT_INT(calls_of(mesh, 0, FSDP_KIND_ALL_REDUCE, &column_after) - column,
                   last ? CHAIN_UNITS : 0);
        ASSERT_INT(column_after - column_bytes, last ? local_total(&c) * element : 0);
        ASSERT_OK(gradients_of(c.m.model, &got));
        ASSERT(last ? got.present > 0 : got.present == 0);
    }
    check_close(t, &got, &want, tolerance_of(mp));
    ASSERT_OK(chain_close(&c));
}

TEST_RANKS(replicas_are_added_in_the_last_micro_step_alone, 4)
{
    fsdp_device_mesh *mesh;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, NULL, &mesh));
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        for (int declared = 0; declared < 2; declared++) {
            check_reduce_scatter_alone(t, mesh, &policies[p], declared);
            CHECK_HERE();
        }
    fsdp_device_mesh_destroy(mesh);
}

/* The skipped unit takes no gradient buffer in the last micro-step, but its partial sum still waits
 * for the replicas. */
TEST_RANKS(a_unit_that_the_last_micro_step_skips_is_added_over_replicas, 4)
{
    fsdp_device_mesh *mesh;
    chain c;
    ASSERT_OK(fsdp_device_mesh_create(t->group, 2, (int[]){2, 2}, NULL, &mesh));
    ASSERT_OK(chain_open(t->group, &(fsdp_fully_shard_options){.mesh = mesh}, &c));
    for (int a = 0; a < 2; a++) {
        ASSERT_OK(fsdp_set_requires_all_reduce(c.m.model, a == 1, true));
        tree_of(c.m.model)->calls[3] = a == 0;
        ASSERT_OK(chain_micro_step(&c, 0, a, 2));
        ASSERT(!fsdp_parameter_grad(tree_of(c.units[3])->up) == (a == 0));
    }
    ASSERT_OK(chain_close(&c));
    fsdp_device_mesh_destroy(mesh);
}

/* Without replicas the control has no effect. */
TEST_RANKS(requires_all_reduce_is_for_replicas_alone, 2)
{
    chain c;
    ASSERT_OK(chain_open(t->group, &tree_variants[0], &c));
    ASSERT_OK(fsdp_set_requires_all_reduce(c.m.model, false, true));
    ASSERT_OK(chain_run(&c, 0));
    ASSERT(fsdp_parameter_grad(tree_of(c.units[1])->up));
    ASSERT_OK(chain_close(&c));
}
