/* What users do with a model: methods other than forward, optimizers made before fully_shard,
 * freezing between steps, data that leaves a part unused on one rank. Sharded training must equal
 * training on one rank, with the expected number of collectives. */
#include <fsdp/optim.h>

#include "src/base/alloc.h"
#include "src/fsdp/state.h"
#include "tests/fsdp/chain.h"
#include "tests/fsdp/toy.h"
#include "tests/test.h"

/* --- methods other than forward --- */

/* Another method of a tree module, with another result: 3 x + the module's own term. */
static void generate(fsdp_scope *s, fsdp_module *self, const fsdp_args *in, fsdp_args *out)
{
    tree *m = tree_of(self);
    fsdp_tensor *h = fsdp_rms_norm(s, in->t[0], fsdp_read(s, m->norm), 1e-6f);
    h = fsdp_linear(s, fsdp_linear(s, h, fsdp_read(s, m->up), NULL), fsdp_read(s, m->down), NULL);
    out->t[out->n++] = fsdp_add(s, fsdp_scale(s, in->t[0], 3.0f), h);
}

static fsdp_status call_method(trainee *m, fsdp_module *unit, int step)
{
    const tree_call call = {.step = step, .micro_batch = trainee_rank(m)};
    fsdp_scope *s;
    FSDP_TRY(tree_scope(m, m->tape, &call, &s));
    fsdp_tensor *x = tree_forward(m, s, m->model, &call);
    fsdp_tensor *y = fsdp_module_call(s, unit, generate, (fsdp_args){.t = {x}, .n = 1}).t[0];
    fsdp_status status = fsdp_scope_status(s);
    if (status == FSDP_OK)
        status = tree_backward(m, &y, &call, 1);
    fsdp_scope_close(s);
    return status;
}

/* torch.distributed.fsdp.register_fsdp_forward_method: here every method runs the hooks. */
TEST_RANKS(a_method_other_than_forward_is_gathered_and_reduced, 2)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        chain c;
        ASSERT_OK(chain_open(t->group, &tree_variants[v], &c));
        for (int i = 0; i < CHAIN_BLOCKS; i++)
            tree_of(c.m.model)->calls[i] = i != 2; /* "c" is called by the method alone */
        for (int step = 0; step < 2; step++) {
            chain_counts(&c);
            ASSERT_OK(call_method(&c.m, c.units[2], step));
            fsdp_comm_counters n = chain_counts(&c);
            ASSERT_INT(n.calls[FSDP_KIND_REDUCE_SCATTER], CHAIN_UNITS);
            ASSERT_INT(n.logical_bytes[FSDP_KIND_REDUCE_SCATTER],
                       chain_total(&c) * fsdp_dtype_size(tree_variants[v].mp_policy.reduce_dtype));
            ASSERT(!fsdp_tensor_has_data(fsdp_parameter_data(tree_of(c.units[2])->up)));
            ASSERT(fsdp_parameter_grad(tree_of(c.units[2])->norm));
            ASSERT_OK(tree_sgd(c.m.model, 0.1f));
            fsdp_module_zero_grad(c.m.model);
        }
        ASSERT_OK(chain_close(&c));
    }
}

/* --- optimizers --- */

static fsdp_status open_unsharded(fsdp_test *t, trainee *m)
{
    FSDP_TRY(trainee_open(t->group, NULL, FSDP_DTYPE_F32, m));
    FSDP_TRY(tree_example(TREE_EXAMPLE_WIDTH, &m->model));
    FSDP_TRY(fsdp_module_to_empty(m->model, m->device));
    return fsdp_module_init(m->model, 5);
}

static fsdp_status shard_example(fsdp_test *t, trainee *m)
{
    static const char *const units[] = {"second.inner", "first", "second", ""};
    for (int i = 0; i < 4; i++)
        FSDP_TRY(fsdp_fully_shard(trainee_unit(m, units[i]), t->group, m->device, NULL));
    return FSDP_OK;
}

TEST_RANKS(an_optimizer_made_before_fully_shard_follows_its_parameters, 2)
{
    trainee early, late;
    fsdp_optimizer *first, *second;
    ASSERT_OK(open_unsharded(t, &early));
    ASSERT_OK(fsdp_adamw_create(early.model, NULL, &first));
    ASSERT_OK(shard_example(t, &early));
    ASSERT_OK(open_unsharded(t, &late));
    ASSERT_OK(shard_example(t, &late));
    ASSERT_OK(fsdp_adamw_create(late.model, NULL, &second));
    for (int step = 0; step < 3; step++) {
        const tree_call call = {.step = step, .micro_batch = t->rank};
        ASSERT_OK(tree_forward_backward(&early, early.model, &call));
        ASSERT_OK(tree_forward_backward(&late, late.model, &call));
        ASSERT_OK(fsdp_optimizer_step(first, 1.0f));
        ASSERT_OK(fsdp_optimizer_step(second, 1.0f));
        ASSERT_OK(tree_same_params(&early, &late));
    }
    fsdp_optimizer_destroy(first);
    fsdp_optimizer_destroy(second);
    ASSERT_OK(trainee_close(&early));
    ASSERT_OK(trainee_close(&late));
}

/* The optimizer's moments belong to whole parameters. The step returns an error and changes
 * nothing. */
TEST_RANKS(an_optimizer_that_stepped_before_fully_shard_fails_at_its_next_step, 2)
{
    trainee m;
    fsdp_optimizer *adamw;
    float *before = NULL, *after = NULL;
    size_t n;
    const tree_call call = {.micro_batch = t->rank};
    ASSERT_OK(open_unsharded(t, &m));
    ASSERT_OK(fsdp_adamw_create(m.model, NULL, &adamw));
    ASSERT_OK(tree_forward_backward(&m, m.model, &(tree_call){0}));
    ASSERT_OK(fsdp_optimizer_step(adamw, 1.0f));
    ASSERT_OK(shard_example(t, &m));
    ASSERT_OK(tree_forward_backward(&m, m.model, &call));
    ASSERT_OK(tree_params(m.model, &before, &n));
    ASSERT_ERROR(fsdp_optimizer_step(adamw, 1.0f), FSDP_ERR_STATE, "the optimizer's state is");
    ASSERT_OK(tree_params(m.model, &after, &n));
    ASSERT(memcmp(before, after, n * sizeof *before) == 0);
    fsdp_free(before);
    fsdp_free(after);
    fsdp_optimizer_destroy(adamw);
    ASSERT_OK(trainee_close(&m));
}

/* --- freezing and unfreezing --- */

static void set_trains(fsdp_module *unit, bool norm, bool up, bool down)
{
    fsdp_parameter_set_requires_grad(tree_of(unit)->norm, norm);
    fsdp_parameter_set_requires_grad(tree_of(unit)->up, up);
    fsdp_parameter_set_requires_grad(tree_of(unit)->down, down);
}

enum {
    FREEZE_STEPS = 5
};

/* Set which parameters train in a step. */
static void freeze_for(chain *c, int step)
{
    set_trains(c->units[1], step != 1, step != 1, step != 1); /* step 1: without "b" */
    set_trains(c->units[2], true, step != 2, true);           /* step 2: without c.up */
    set_trains(c->m.model, step < 3, step < 3, step < 3);     /* steps 3 and 4: without the root */
}

static uint64_t frozen_numel(const chain *c, int step)
{
    return step == 1   ? chain_numel(c, 1)
           : step == 2 ? (uint64_t)fsdp_parameter_numel(tree_of(c->units[2])->up)
           : step > 2  ? chain_numel(c, CHAIN_BLOCKS)
                       : 0;
}

TEST_RANKS(freezing_between_steps_changes_what_is_reduced, 2)
{
    for (int v = 0; v < TREE_VARIANTS; v++) {
        const fsdp_fully_shard_options *o = &tree_variants[v];
        chain c, one;
        ASSERT_OK(chain_open(t->group, o, &c));
        ASSERT_OK(chain_open(NULL, o, &one));
        for (int step = 0; step < FREEZE_STEPS; step++) {
            freeze_for(&c, step);
            freeze_for(&one, step);
            fsdp_module_zero_grad(c.m.model);
            chain_counts(&c);
            ASSERT_OK(chain_run(&c, step));
            const fsdp_comm_counters n = chain_counts(&c);
            ASSERT_INT(n.calls[FSDP_KIND_REDUCE_SCATTER],
                       step == 1 || step > 2 ? CHAIN_UNITS - 1 : CHAIN_UNITS);
            ASSERT_INT(n.logical_bytes[FSDP_KIND_REDUCE_SCATTER],
                       (chain_total(&c) - frozen_numel(&c, step)) *
                           fsdp_dtype_size(o->mp_policy.reduce_dtype));
            ASSERT(!fsdp_parameter_grad(tree_of(c.units[1])->up) == (step == 1));
            ASSERT(!fsdp_parameter_grad(tree_of(c.units[2])->up) == (step == 2));
            ASSERT(!fsdp_parameter_grad(tree_of(c.m.model)->down) == (step > 2));
            ASSERT_OK(tree_step(&c.m, step, 4));
            ASSERT_OK(tree_step(&one.m, step, 4));
        }
        ASSERT_OK(tree_same_params(&c.m, &one.m));
        ASSERT_OK(chain_close(&c));
        ASSERT_OK(chain_close(&one));
    }
}

/* --- unused on one rank --- */

/* The rows of rank 1 have no label. It runs the same program and adds nothing. */
TEST_RANKS(data_that_uses_nothing_on_one_rank_adds_nothing, 2)
{
    static const toy_shape shape = {.vocab = 11, .width = 7, .hidden = 5, .blocks = 2};
    static const int32_t ids[] = {1, 4, 9, 2}, labels[] = {4, 9, 2, 3},
                         none[] = {-100, -100, -100, -100};
    const fsdp_fully_shard_options o = {0};
    fsdp_device *device;
    fsdp_tape *tape;
    fsdp_module *model[2];
    float *got = NULL, *want = NULL;
    ASSERT_OK(fsdp_device_create(NULL, &device));
    ASSERT_OK(fsdp_tape_create(&tape));
    for (int alone = 0; alone < 2; alone++) {
        const bool has_labels = alone || t->rank == 0;
        const toy_batch batch = {
            .ids = ids, .labels = has_labels ? labels : none, .n = 4, .factor = 1};
        fsdp_scope *s;
        ASSERT_OK(toy_create(&shape, &model[alone]));
        ASSERT_OK(toy_shard(model[alone], alone ? NULL : t->group, device, &o));
        ASSERT_OK(fsdp_module_init(model[alone], 2));
        ASSERT_OK(fsdp_set_gradient_divide_factor(model[alone], 1.0));
        ASSERT_OK(fsdp_scope_open(device, tape, NULL, &s));
        fsdp_tensor *loss = toy_loss(s, model[alone], &batch);
        ASSERT_OK(fsdp_scope_status(s));
        ASSERT_OK(fsdp_backward(tape, &loss, NULL, 1));
        fsdp_scope_close(s);
        const fsdp_module *block = fsdp_module_find(model[alone], "blocks.1");
        ASSERT_OK(tree_full_grad(fsdp_module_parameter(block, "up"), alone ? &want : &got));
    }
    ASSERT_INT(fsdp_group_counters(t->group)->calls[FSDP_KIND_REDUCE_SCATTER], 3);
    for (int i = 0; i < 5 * 7; i++)
        ASSERT_F32(got[i], want[i]);
    fsdp_free(got);
    fsdp_free(want);
    fsdp_tape_destroy(tape);
    fsdp_module_destroy(model[0]);
    fsdp_module_destroy(model[1]);
    fsdp_device_destroy(device);
}

/* If one rank's code leaves a unit out, all ranks get an error that names the rank that differs. */
TEST_RANKS(a_unit_that_one_rank_leaves_out_is_an_error_of_all, 2)
{
    chain c;
    ASSERT_OK(chain_open(t->group, &tree_variants[0], &c));
    ASSERT_OK(chain_run(&c, 0));
    tree_of(c.m.model)->calls[4] = t->rank;
    ASSERT_ERROR(chain_run(&c, 1), FSDP_ERR_COMM, "ranks diverged");
    ASSERT_OK(chain_close(&c));
}
